"""`pool.schedules`: jobs that the hub submits at the times of a cron expression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

from computepool.core.errors import NotFound
from computepool.protocol import schedules as wire
from computepool.protocol.jobs.jobs import Item, JobSpec, SubmitRequest
from computepool.sdk.client.paging import iterate_pages
from computepool.sdk.client.resource import Resource, validate
from computepool.sdk.client.transport import Params

if TYPE_CHECKING:
    from computepool.sdk.jobs.options import JobOptions
    from computepool.sdk.jobs.submitter import Submitter, Work
    from computepool.sdk.pool import Pool

_PREFIX = "sched_"


class ScheduleApi(Resource):
    def __init__(self, pool: Pool) -> None:
        super().__init__(pool.transport)
        self._pool = pool

    def add(
        self,
        name: str,
        what: Work,
        args: Sequence[object] = (),
        /,
        *,
        cron: str,
        tz: str = "UTC",
        overlap: str = "skip",
        missed: str = "run-once",
        slices: int = 1,
        **options: Unpack[JobOptions],
    ) -> wire.ScheduleView:
        """Run a script, a command, or a function without arguments, at the times of a cron expression.

        `overlap`: what happens while the run before is unfinished: skip, queue or replace. `missed`: what happens after
        times at which no hub ran: run-once or skip. Code, files and options are those of now; secrets those of each run.

        >>> pool.schedules.add("nightly", "nightly.py", cron="0 3 * * *", tz="Europe/Berlin", secrets=["DB"])
        """
        work = self._pool.options(**options)
        times = {"cron": cron, "tz": tz, "overlap": overlap, "missed": missed}
        return self.add_spec(name, work.spec_of(what, args), work, slices=slices, **times)

    def add_spec(
        self, name: str, spec: JobSpec, work: Submitter, *, slices: int = 1, **times: str
    ) -> wire.ScheduleView:
        """As `add`, for a spec that was made with `work`."""
        request = validate(SubmitRequest, spec=spec, items=[Item()] * slices, **work.terms)
        return self._post("/schedules", wire.ScheduleView, wire.ScheduleRequest, name=name, request=request, **times)

    def list(self, *, limit: int = 100) -> list[wire.ScheduleView]:
        return [*self._each("/schedules", wire.SchedulePage, lambda page: page.schedules, limit=limit)]

    def get(self, schedule: str) -> wire.ScheduleDetail:
        """A schedule with its newest runs, by name or ID."""
        return self._transport.get(self._path(schedule), wire.ScheduleDetail)

    def runs(self, schedule: str, *, limit: int = 100) -> Iterator[wire.ScheduleRun]:
        """Its runs, newest first."""
        path = f"{self._path(schedule)}/runs"

        def fetch_page(cursor: Params) -> tuple[Sequence[wire.ScheduleRun], str | None]:
            before = {"before" if word == "after" else word: value for word, value in cursor.items()}
            page = self._transport.get(path, wire.ScheduleRunPage, params=before)
            return page.runs, page.next

        return iterate_pages(fetch_page, limit=limit)

    def pause(self, schedule: str) -> wire.ScheduleView:
        return self._transport.post(f"{self._path(schedule)}/pause", wire.ScheduleView)

    def resume(self, schedule: str) -> wire.ScheduleView:
        """Resume it from now on; times that have passed meanwhile are not made up for."""
        return self._transport.post(f"{self._path(schedule)}/resume", wire.ScheduleView)

    def run(self, schedule: str) -> wire.ScheduleRun:
        """Run it once now."""
        return self._transport.post(f"{self._path(schedule)}/run", wire.ScheduleRun)

    def remove(self, schedule: str) -> None:
        """Remove it. Its jobs continue."""
        self._transport.call("DELETE", self._path(schedule))

    def _path(self, schedule: str) -> str:
        """The path of a schedule, by name or ID."""
        if schedule.startswith(_PREFIX):
            return f"/schedules/{schedule}"
        for one in self.list(limit=10_000):
            if one.name == schedule:
                return f"/schedules/{one.id}"
        raise NotFound(f"You have no schedule {schedule!r}; `pool schedule list` lists them.")
