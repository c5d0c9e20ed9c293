"""Clients that submit work whatever happens, and check what the hub acknowledged."""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Self

from sqlalchemy import Row

from computepool.core.jobs.lifecycle import TERMINAL, JobKind, JobState
from computepool.hub.observability.consistency import pool as consistency
from computepool.protocol.jobs.groups import ResultPage
from computepool.protocol.jobs.jobs import Item, JobSpec, Needs
from computepool.protocol.jobs.views import JobView
from computepool.sdk.pool import Pool
from computepool.testing.processes import HubProcess
from computepool.testing.waiting import wait_until

JOBS_MAX = 100_000
#: Another number makes the faults occur at other moments.
SEED = int(os.environ.get("COMPUTEPOOL_FAULT_SEED", "0"))
TRUE = ("/bin/true",)


def transfers(hub: HubProcess) -> list[Row[*tuple[Any, ...]]]:
    """Every transfer in the ledger, oldest first."""
    with consistency.snapshot(hub.settings.url) as connection:
        return list(connection.exec_driver_sql("SELECT * FROM transfers ORDER BY seq").all())


def seeded(number: int) -> random.Random:
    return random.Random(SEED * 1_000 + number)


def command(*argv: str, name: str = "fault", cores: float = 0.5, host: str | None = None, **fields: object) -> JobSpec:
    needs = Needs(cores=cores, ram_mb=64, disk_mb=16, host=host)
    return JobSpec.model_validate({"kind": JobKind.COMMAND, "name": name, "argv": list(argv), "needs": needs, **fields})


class _Background:
    """Work on a thread of its own until it is stopped; its error is raised then."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, timeout_s: float = 60) -> None:
        self._stop.set()
        self._thread.join(timeout_s)
        if self.errors:
            raise self.errors[0]
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - raised by stop()
            self.errors.append(error)

    def work(self) -> None:
        raise NotImplementedError


class Load(_Background):
    """Small jobs in batches of one to four, all in one group, until stopped."""

    def __init__(self, client: Pool, specs: Sequence[JobSpec], *, pause_s: float = 0.05, retries: int = 0) -> None:
        super().__init__()
        self.client = client
        self.group_id = client.groups.create("load").id
        self.acknowledged: list[str] = []
        self._specs = specs
        self._pause_s = pause_s
        self._retries = retries

    def work(self) -> None:
        for number, spec in enumerate(itertools.cycle(self._specs)):
            if self._stop.wait(self._pause_s):
                return
            reply = self.client.jobs.submit(
                spec, items=[Item()] * (1 + number % 4), group_id=self.group_id, retries=self._retries
            )
            self.acknowledged += reply.job_ids

    def wait_for_more(self, count: int, timeout_s: float = 60) -> None:
        """Until the hub has acknowledged so many more jobs."""
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted or self.errors, timeout_s, f"{count} more jobs")

    # ------------------------------------------------------------ results
    def finished(self, client: Pool | None = None) -> int:
        counts = (client or self.client).groups.get(self.group_id).counts
        return sum(counts.get(state.value, 0) for state in TERMINAL)

    def wait_finished(self, timeout_s: float = 60) -> list[JobView]:
        """All jobs of the group, when the last one has finished."""
        self.stop()
        wanted = len(self.acknowledged)
        wait_until(lambda: self.finished() >= wanted, timeout_s, f"{wanted} jobs have finished")
        return self.client.jobs.list(group_id=self.group_id, limit=JOBS_MAX)

    def check_exactly_once(self, timeout_s: float = 60) -> list[JobView]:
        """Check that exactly the acknowledged jobs exist, that all succeeded, and that each result comes once."""
        jobs = self.wait_finished(timeout_s)
        assert sorted(job.id for job in jobs) == sorted(self.acknowledged)
        states = Counter(job.state for job in jobs)
        assert states == {JobState.SUCCEEDED: len(self.acknowledged)}, [
            (job.id, job.state, job.reason, job.error) for job in jobs if job.state is not JobState.SUCCEEDED
        ]
        assert sorted(self.results()) == sorted(self.acknowledged)
        return jobs

    def results(self) -> list[str]:
        """The ids in the stream of results, read from its start."""
        found: list[str] = []
        cursor = 0
        while True:
            page = self.client.transport.get(f"/groups/{self.group_id}/results", ResultPage, params={"after": cursor})
            found += [result.job_id for result in page.results]
            if not page.results:
                return found
            cursor = page.cursor


def square(number: int) -> int:
    return number * number


class MapLoad(_Background):
    """A long `map` of tiny functions, as in a user's script: many share a lane, and results come in order."""

    def __init__(self, client: Pool) -> None:
        super().__init__()
        self._client = client
        self._given = 0
        self._results: list[int] = []

    def _numbers(self) -> Iterator[int]:
        while not self._stop.is_set():
            yield self._given
            self._given += 1

    def work(self) -> None:
        for result in self._client.map(square, self._numbers(), progress=False, in_flight_max=100, cores=0.5):
            self._results.append(result)
            self._stop.wait(0.005)  # leaves the processor to the others

    def check(self) -> int:
        """Check that every result is there, once and in its place; returns how many there are."""
        self.stop()
        assert self._results == [square(number) for number in range(self._given)]
        return self._given
