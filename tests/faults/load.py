"""A client that goes on submitting whatever happens, and remembers what the hub acknowledged."""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

from computepool.core.jobs.lifecycle import TERMINAL, JobKind, JobState
from computepool.protocol.jobs.groups import ResultPage
from computepool.protocol.jobs.jobs import Item, JobSpec, JobView, Needs
from computepool.sdk.pool import Pool
from computepool.testing.processes import wait_until

JOBS_MAX = 100_000
#: Another number gives other moments for the faults.
SEED = int(os.environ.get("COMPUTEPOOL_FAULT_SEED", "0"))
TRUE = ("/bin/true",)


def seeded(number: int) -> random.Random:
    return random.Random(SEED * 1_000 + number)


def command(
    *argv: str, name: str = "fault", cores: float = 0.5, host: str | None = None, **fields: object
) -> JobSpec:
    needs = Needs(cores=cores, ram_mb=64, disk_mb=16, host=host)
    return JobSpec.model_validate(
        {"kind": JobKind.COMMAND, "name": name, "argv": list(argv), "needs": needs, **fields}
    )


class Load:
    """Small jobs in batches of one to four, all in one group, until stopped."""

    def __init__(
        self, client: Pool, specs: Sequence[JobSpec], *, pause_s: float = 0.05, retries: int = 0
    ) -> None:
        self.client = client
        self.group_id = client.groups.create("load").id
        self.acknowledged: list[str] = []
        self.errors: list[BaseException] = []
        self._specs = specs
        self._pause_s = pause_s
        self._retries = retries
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        if self.errors:
            raise self.errors[0]

    def _run(self) -> None:
        try:
            for number, spec in enumerate(itertools.cycle(self._specs)):
                if self._stop.wait(self._pause_s):
                    return
                reply = self.client.jobs.submit(
                    spec,
                    items=[Item()] * (1 + number % 4),
                    group_id=self.group_id,
                    retries=self._retries,
                )
                self.acknowledged += reply.job_ids
        except BaseException as error:  # noqa: BLE001 - told to the test when it stops the load
            self.errors.append(error)

    def wait_for_more(self, count: int, timeout_s: float = 30) -> None:
        """Until the hub has acknowledged so many more jobs."""
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted or self.errors, timeout_s, f"{count} more jobs")

    # what became of it

    def finished(self, client: Pool | None = None) -> int:
        counts = (client or self.client).groups.get(self.group_id).counts
        return sum(counts.get(state.value, 0) for state in TERMINAL)

    def wait_finished(self, timeout_s: float = 60) -> list[JobView]:
        """All jobs of the group, when the last one is over."""
        self.stop()
        wanted = len(self.acknowledged)
        wait_until(lambda: self.finished() >= wanted, timeout_s, f"{wanted} jobs are over")
        return self.client.jobs.list(group_id=self.group_id, limit=JOBS_MAX)

    def check_exactly_once(self, timeout_s: float = 60) -> list[JobView]:
        """Every acknowledged job succeeded, none was made that was not acknowledged, each result comes once."""
        jobs = self.wait_finished(timeout_s)
        assert sorted(job.id for job in jobs) == sorted(self.acknowledged)
        states = Counter(job.state for job in jobs)
        assert states == {JobState.SUCCEEDED: len(self.acknowledged)}, [
            (job.id, job.state, job.reason, job.error) for job in jobs if job.state is not JobState.SUCCEEDED
        ]
        assert sorted(self.results()) == sorted(self.acknowledged)
        return jobs

    def results(self) -> list[str]:
        """Ids in the stream of results, as a client that reads it from the start sees them."""
        found: list[str] = []
        cursor = 0
        while True:
            page = self.client.transport.get(
                f"/groups/{self.group_id}/results", ResultPage, params={"after": cursor}
            )
            found += [result.job_id for result in page.results]
            if not page.results:
                return found
            cursor = page.cursor


def square(number: int) -> int:
    return number * number


class MapLoad:
    """A long `map` of tiny functions, as a user's script runs it: many share a lane, results come in order."""

    def __init__(self, client: Pool, *, in_flight_max: int = 100) -> None:
        self._client = client
        self._in_flight_max = in_flight_max
        self._stop = threading.Event()
        self._given = 0
        self._results: list[int] = []
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="map-load", daemon=True)

    def __enter__(self) -> MapLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _numbers(self) -> Iterator[int]:
        while not self._stop.is_set():
            yield self._given
            self._given += 1

    def _run(self) -> None:
        try:
            for result in self._client.map(
                square, self._numbers(), progress=False, in_flight_max=self._in_flight_max, cores=0.5
            ):
                self._results.append(result)
                self._stop.wait(0.005)  # leaves the processor to the others
        except BaseException as error:  # noqa: BLE001 - told to the test at the end
            self._errors.append(error)

    def check(self, timeout_s: float = 60) -> int:
        """Every result is there, once and in its place; how many there are."""
        self._stop.set()
        self._thread.join(timeout_s)
        if self._errors:
            raise self._errors[0]
        assert not self._thread.is_alive(), f"{len(self._results)} of {self._given} results came"
        assert self._results == [square(number) for number in range(self._given)]
        return self._given
