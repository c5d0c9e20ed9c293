"""The hub's queue of ready jobs in memory: which job is next, and where it fits. The store disposes.

Soft state: losing it loses nothing, because queued jobs are rows. Synchronous, without a clock. `take` places
jobs in order (priority, fair share, age) and skips shapes that fit nowhere, so a job that needs a GPU nobody
has never blocks those behind.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count

from computepool.core.fleet.fleet import Fleet
from computepool.core.placement.allocator import Placement, Search
from computepool.core.placement.exploration import Explorer
from computepool.core.placement.fair_queue import Bin, Job, Lines, ShapeBins
from computepool.core.resources import Shape

#: Shapes that may turn out to fit nowhere in one `take`; each costs a look at the whole fleet. The others
#: keep their place for the next one.
SHAPES_FAILED_MAX = 64
#: Shapes that fitted nowhere and are tried again in one `take`, longest waiting first. Half of the above, so
#: that old hopeless shapes cannot use up the tries of new ones; up to this many, order is exact.
SHAPES_RETRIED_MAX = SHAPES_FAILED_MAX // 2
#: Candidates that a shape's search prepares at first: with many shapes in one `take`, each places only a few jobs.
EXPECTED_MAX = 16
#: Jobs taken lately that `restore` and `shape_of` still know.
TAKEN_MAX = 20_000


class Backlog:
    """Ready and delayed jobs."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._jobs: dict[str, Job] = {}
        self._taken: OrderedDict[str, Job] = OrderedDict()
        self._due: list[tuple[int, str]] = []
        self._delayed = 0
        self._parked: OrderedDict[Shape, ShapeBins] = OrderedDict()  # longest untried first
        self._numbers = count()

    def __len__(self) -> int:
        """Ready and delayed jobs; those that were taken are gone."""
        return len(self._jobs)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._jobs

    @property
    def delayed(self) -> int:
        return self._delayed

    def add(
        self, job_id: str, shape: Shape, *, age_key: str, priority: int = 0, account: str | None = None
    ) -> None:
        """Queue a job, or queue it anew. Smaller age keys are older; `account` shares fairly, the shape's by default."""
        self.remove(job_id)
        owner = shape.account if account is None else account
        job = Job(job_id, (age_key, next(self._numbers)), shape, owner, priority)
        self._jobs[job_id] = job
        self._lines.insert(job)

    def remove(self, job_id: str) -> bool:
        """Forget a job, ready, delayed or taken. False if it was neither ready nor delayed."""
        self._taken.pop(job_id, None)
        job = self._jobs.pop(job_id, None)
        if job is None:
            return False
        self._leave(job)
        return True

    def delay(self, job_id: str, ready_at_ms: int) -> bool:
        """Hold a queued job back until then. False if it is not here."""
        job = self._jobs.get(job_id)
        if job is None:
            return False
        self._leave(job)
        job.ready_at_ms = ready_at_ms
        self._delayed += 1
        heappush(self._due, (ready_at_ms, job_id))
        return True

    def release_due(self, now_ms: int) -> int:
        """Make the delayed jobs ready whose time has come; how many they were."""
        released = 0
        while (due_ms := self.next_due_ms()) is not None and due_ms <= now_ms:
            job = self._jobs[heappop(self._due)[1]]
            job.ready_at_ms = None
            self._delayed -= 1
            self._lines.insert(job)
            released += 1
        return released

    def next_due_ms(self) -> int | None:
        """When the next delayed job becomes ready."""
        while self._due:
            ready_at_ms, job_id = self._due[0]
            job = self._jobs.get(job_id)
            if job is not None and job.ready_at_ms == ready_at_ms:
                return ready_at_ms
            heappop(self._due)  # removed, or delayed anew
        return None

    def take(self, fleet: Fleet, limit: int, explorer: Explorer | None = None) -> list[tuple[str, Placement]]:
        """Place up to `limit` jobs in order, reserving as it goes. They leave the backlog; `restore` brings one back.

        With an explorer, some of them are placed by chance.
        """
        self._retry_parked(fleet)
        searches: dict[ShapeBins, Search] = {}
        taken: list[tuple[str, Placement]] = []
        failed = 0
        for box in self._in_order():
            search = searches.get(box.shape)
            if search is None:
                expected = min(limit - len(taken), box.shape.count, EXPECTED_MAX)
                search = Search(fleet, box.shape.shape, expected, explorer=explorer)
                searches[box.shape] = search
            if placement := search.place():
                taken.append((self._take(box), placement))
            else:
                self._park(box.shape, fleet)
                failed += 1
            if len(taken) >= limit or failed >= SHAPES_FAILED_MAX:
                break
        return taken

    def take_like(self, shape: Shape, limit: int) -> list[str]:
        """More jobs of this shape, in order, without a place of their own: they run one after the other on one."""
        taken: list[str] = []
        while len(taken) < limit and (found := self._lines.shapes.get(shape)) and found.bins:
            box = min(found.bins.values(), key=lambda box: (-box.line.priority, box.head()))
            taken.append(self._take(box, in_turn=False))
        self._forget_parked(shape)
        return taken

    def restore(self, job_id: str) -> bool:
        """Put a taken job back to its old place: its lease was not written. Its reservation is the caller's to release."""
        job = self._taken.pop(job_id, None)
        if job is None or job_id in self._jobs:
            return False
        self._lines.refund(job.account, job.shape)
        self._jobs[job_id] = job
        self._lines.insert(job)
        return True

    def unfinished(self, fleet: Fleet) -> bool:
        """Whether another `take` could place something now: the last one stopped at a limit, or more came free."""
        oldest = next(iter(self._parked.values()), None)
        if oldest is not None and oldest.parked_at != fleet.supply:
            return True
        return next(self._in_order(), None) is not None

    def ready_at_ms(self, job_id: str) -> int | None:
        """When a delayed job becomes ready; None for any other."""
        job = self._jobs.get(job_id)
        return None if job is None else job.ready_at_ms

    def shapes(self) -> dict[Shape, int]:
        """How many ready jobs there are of each shape."""
        return {shape: found.count for shape, found in self._lines.shapes.items() if found.count}

    def shape_of(self, job_id: str) -> Shape:
        """The shape of a job that is here or was taken lately. Raises KeyError for any other."""
        job = self._jobs.get(job_id) or self._taken[job_id]
        return job.shape

    def position(self, job_id: str) -> int | None:
        """About how many jobs start before this one; None if it is not ready.

        Exact for one account whose jobs all fit somewhere. It does not foresee which shapes will have to
        wait, and counts every job of other accounts as one turn.
        """
        job = self._jobs.get(job_id)
        return None if job is None or job.ready_at_ms is not None else self._lines.ahead_of(job)

    def _in_order(self) -> Iterator[Bin]:
        """The next job's bin, again and again, while the caller takes from it or parks it."""
        for priority in self._lines.priorities():
            while (box := self._lines.first(priority)) is not None:
                yield box

    def _take(self, box: Bin, *, in_turn: bool = True) -> str:
        job_id = self._lines.take(box, in_turn=in_turn)
        self._taken[job_id] = self._jobs.pop(job_id)
        if len(self._taken) > TAKEN_MAX:
            self._taken.popitem(last=False)
        return job_id

    def _leave(self, job: Job) -> None:
        if job.ready_at_ms is None:
            self._lines.delete(job)
            self._forget_parked(job.shape)
        else:
            job.ready_at_ms = None
            self._delayed -= 1

    def _park(self, shape: ShapeBins, fleet: Fleet) -> None:
        self._lines.park(shape, fleet.supply)
        self._parked[shape.shape] = shape

    def _forget_parked(self, shape: Shape) -> None:
        if self._parked and shape not in self._lines.shapes:
            self._parked.pop(shape, None)

    def _retry_parked(self, fleet: Fleet) -> None:
        """Try again what fitted nowhere, if anything came free since. Capacity that was only taken changes nothing."""
        for _ in range(SHAPES_RETRIED_MAX):
            shape = next(iter(self._parked.values()), None)
            if shape is None or shape.parked_at == fleet.supply:
                return
            del self._parked[shape.shape]
            self._lines.unpark(shape)
