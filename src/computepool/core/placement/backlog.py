"""The hub's queue of ready jobs in memory: which job is next, and where it fits. The database decides.

Soft state: losing it loses nothing, because queued jobs are rows in the database. Synchronous, without a clock. `take`
places jobs in order (priority, fair share, age) and skips shapes that fit nowhere, so a job that needs an unavailable GPU
never blocks those behind it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count

from computepool.core.fleet.fleet import Fleet
from computepool.core.placement.allocator import Placement, Search
from computepool.core.placement.exploration import Explorer
from computepool.core.placement.fair_queue import Bucket, FairQueue, Job, ShapeBuckets
from computepool.core.placement.gangs import GangSearch
from computepool.core.resources import Shape

#: Shapes that may fail to fit in one `take`; each costs an evaluation of the whole fleet. The others keep their place
#: until the next `take`.
SHAPES_FAILED_MAX = 64
#: Parked shapes that one `take` tries again, the longest waiting first. Half of the above, so that old shapes that never
#: fit cannot use up the tries of new ones. Up to this many parked shapes, the order is exact.
SHAPES_RETRIED_MAX = SHAPES_FAILED_MAX // 2
#: Candidates that a shape's search prepares at first. With many shapes in one `take`, each places only a few jobs.
EXPECTED_MAX = 16
#: Recently taken jobs that `restore` and `shape_of` still know.
TAKEN_MAX = 20_000


class Backlog:
    def __init__(self) -> None:
        self._queue = FairQueue()
        self._jobs: dict[str, Job] = {}
        self._taken: OrderedDict[str, Job] = OrderedDict()
        self._due: list[tuple[int, str]] = []
        self.delayed = 0  #: number of delayed jobs
        self._parked: OrderedDict[Shape, ShapeBuckets] = OrderedDict()  # the longest untried first
        self._numbers = count()

    def __len__(self) -> int:
        """Ready and delayed jobs, without those taken."""
        return len(self._jobs)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._jobs

    def add(self, job_id: str, shape: Shape, *, age_key: str, priority: int = 0) -> None:
        """Queue a job, or queue it again. Smaller age keys are older."""
        self.remove(job_id)
        job = Job(job_id, (age_key, next(self._numbers)), shape, priority)
        self._jobs[job_id] = job
        self._queue.insert(job)

    def remove(self, job_id: str) -> bool:
        """Remove a ready, delayed or taken job. False if it was neither ready nor delayed."""
        self._taken.pop(job_id, None)
        job = self._jobs.pop(job_id, None)
        if job is None:
            return False
        self._leave(job)
        return True

    def delay(self, job_id: str, ready_at_ms: int) -> bool:
        """Hold a queued job back until `ready_at_ms`. False if it is not queued."""
        job = self._jobs.get(job_id)
        if job is None:
            return False
        self._leave(job)
        job.ready_at_ms = ready_at_ms
        self.delayed += 1
        heappush(self._due, (ready_at_ms, job_id))
        return True

    def release_due(self, now_ms: int) -> int:
        """Make the delayed jobs that are due ready. Returns their number."""
        released = 0
        while (due_ms := self.next_due_ms()) is not None and due_ms <= now_ms:
            job = self._jobs[heappop(self._due)[1]]
            job.ready_at_ms = None
            self.delayed -= 1
            self._queue.insert(job)
            released += 1
        return released

    def next_due_ms(self) -> int | None:
        while self._due:
            ready_at_ms, job_id = self._due[0]
            job = self._jobs.get(job_id)
            if job is not None and job.ready_at_ms == ready_at_ms:
                return ready_at_ms
            heappop(self._due)  # the job was removed or delayed again
        return None

    def take(self, fleet: Fleet, limit: int, explorer: Explorer | None = None) -> list[tuple[str, Placement]]:
        """Place up to `limit` jobs in order, and reserve their shares. They leave the backlog; `restore` undoes that.

        With an explorer, some of them explore nodes.
        """
        self._retry_parked(fleet)
        searches: dict[ShapeBuckets, Search | GangSearch] = {}
        taken: list[tuple[str, Placement]] = []
        failed = 0
        for bucket in self._in_order():
            buckets = bucket.siblings
            search = searches.get(buckets)
            if search is None:
                expected = min(limit - len(taken), buckets.count, EXPECTED_MAX)
                search = searches[buckets] = _search(fleet, buckets.shape, expected, explorer=explorer)
            if placement := search.place():
                taken.append((self._take(bucket), placement))
            else:
                buckets.parked_at = fleet.supply
                self._parked[buckets.shape] = buckets
                failed += 1
            if len(taken) >= limit or failed >= SHAPES_FAILED_MAX:
                break
        return taken

    def take_like(self, shape: Shape, limit: int) -> list[str]:
        """Take more jobs of this shape, in order and without placements: they share one reservation, one after the other."""
        taken: list[str] = []
        found = self._queue.shapes.get(shape)
        while found is not None and found.buckets and len(taken) < limit:
            bucket = min(found.buckets.values(), key=lambda each: (-each.queue.priority, each.head()))
            taken.append(self._take(bucket, in_turn=False))
        self._forget_parked(shape)
        return taken

    def restore(self, job_id: str) -> bool:
        """Put a taken job back in its place because its lease was not written. The caller releases the reservation."""
        job = self._taken.pop(job_id, None)
        if job is None or job_id in self._jobs:
            return False
        self._queue.refund(job.shape)
        self._jobs[job_id] = job
        self._queue.insert(job)
        return True

    def can_take_more(self, fleet: Fleet) -> bool:
        """Whether another `take` could place jobs now: the last one stopped at a limit, or capacity was freed since."""
        oldest = next(iter(self._parked.values()), None)
        if oldest is not None and oldest.parked_at != fleet.supply:
            return True
        return next(self._in_order(), None) is not None

    def ready_at_ms(self, job_id: str) -> int | None:
        """When a delayed job becomes ready; None for other jobs."""
        job = self._jobs.get(job_id)
        return None if job is None else job.ready_at_ms

    def shapes(self) -> dict[Shape, int]:
        """The number of ready jobs of each shape, with all members of gangs."""
        found = self._queue.shapes.items()
        return {shape: known.count * shape.requirements.nodes for shape, known in found if known.count}

    def shape_of(self, job_id: str) -> Shape:
        """The shape of a queued or recently taken job. Raises KeyError for other jobs."""
        job = self._jobs.get(job_id) or self._taken[job_id]
        return job.shape

    def position(self, job_id: str) -> int | None:
        """The approximate number of jobs that start before this one; None if it is not ready.

        Exact for a single account whose jobs all fit somewhere. It does not predict which shapes will have to wait, and
        counts every job of other accounts as one turn.
        """
        job = self._jobs.get(job_id)
        return None if job is None or job.ready_at_ms is not None else self._queue.ahead_of(job)

    def _in_order(self) -> Iterator[Bucket]:
        """The bucket of the next job, repeatedly, while the caller takes from it or parks it."""
        for priority in self._queue.priorities():
            while (bucket := self._queue.first(priority)) is not None:
                yield bucket

    def _take(self, bucket: Bucket, *, in_turn: bool = True) -> str:
        job_id = self._queue.take(bucket, in_turn=in_turn)
        self._taken[job_id] = self._jobs.pop(job_id)
        if len(self._taken) > TAKEN_MAX:
            self._taken.popitem(last=False)
        return job_id

    def _leave(self, job: Job) -> None:
        if job.ready_at_ms is None:
            self._queue.delete(job)
            self._forget_parked(job.shape)
        else:
            job.ready_at_ms = None
            self.delayed -= 1

    def _forget_parked(self, shape: Shape) -> None:
        if self._parked and shape not in self._queue.shapes:
            self._parked.pop(shape, None)

    def _retry_parked(self, fleet: Fleet) -> None:
        """Reconsider parked shapes if capacity was freed since they were parked."""
        for _ in range(SHAPES_RETRIED_MAX):
            oldest = next(iter(self._parked.values()), None)
            if oldest is None or oldest.parked_at == fleet.supply:
                return
            del self._parked[oldest.shape]
            self._queue.unpark(oldest)


def _search(fleet: Fleet, shape: Shape, expected: int, *, explorer: Explorer | None) -> Search | GangSearch:
    if shape.requirements.nodes > 1:
        return GangSearch(fleet, shape)
    return Search(fleet, shape, expected, explorer=explorer)
