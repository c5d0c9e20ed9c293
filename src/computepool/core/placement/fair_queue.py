"""The order of waiting jobs: priority, then fair share between accounts, then age. Knows nothing about nodes.

An account's waiting jobs at one priority form a queue. The queue sorts them into *buckets* by shape. So a shape that
fits nowhere can be parked without touching its jobs, and the cost of a decision does not grow with the number of jobs.

Fair share is start-time fair queueing: every job that starts adds its cost to its account's service, and the account
with the least service goes next. An account that arrives or returns starts at the service of whoever was served last, so
nobody saves up turns by waiting, and newcomers starve nobody.

The heaps are lazy. Of the entries of a bucket or queue, only the one with the key in `listed` is valid. That key may be
too low by now; it is corrected when it reaches the top. Invalid entries are dropped then, or when there are too many.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Any

from computepool.core.fleet.node_record import cards_needed
from computepool.core.resources import Requirements, Shape

#: The cost of a card and of RAM in thousandths of a core. A job costs its account its dominant resource.
CARD_COST_MILLI = 8_000
RAM_MB_PER_MILLI = 4
#: From this many accounts on, those without waiting jobs are forgotten, with their service.
ACCOUNTS_SWEEP_MIN = 1_024
#: The emptied front of a bucket is removed when it is longer than this and than the rest.
_FRONT_MAX = 1_024
#: A heap is rebuilt when its invalid entries outnumber the valid ones by this many.
_DEAD_MAX = 64

#: Age first. The second number keeps jobs of equal age in order of arrival.
Key = tuple[str, int]
#: Least service first; of equals, the least recently served.
Rank = tuple[int, int]


@dataclass(slots=True)
class Job:
    id: str
    key: Key
    shape: Shape
    priority: int
    ready_at_ms: int | None = None  #: None if it is ready


@dataclass(slots=True, eq=False)
class ShapeBuckets:
    """One shape's buckets, across priorities."""

    shape: Shape
    cost: int
    count: int = 0
    parked_at: int | None = None  #: while parked, the fleet's supply when the shape last fitted nowhere
    buckets: dict[int, Bucket] = field(default_factory=dict)  #: by priority


@dataclass(slots=True, eq=False)
class Bucket:
    """The jobs of one shape in one queue, the oldest first."""

    number: int
    siblings: ShapeBuckets
    queue: AccountQueue
    entries: list[tuple[Key, str]] = field(default_factory=list)
    start: int = 0  #: entries before this one have been taken
    listed: Key | None = None

    def __len__(self) -> int:
        return len(self.entries) - self.start

    def head(self) -> Key:
        return self.entries[self.start][0]

    def insert(self, key: Key, job_id: str) -> None:
        insort(self.entries, (key, job_id), lo=self.start)

    def before(self, key: Key) -> int:
        return bisect_left(self.entries, (key, ""), lo=self.start) - self.start

    def delete(self, key: Key) -> None:
        del self.entries[self.start + self.before(key)]

    def pop(self) -> str:
        job_id = self.entries[self.start][1]
        self.start += 1
        if self.start > _FRONT_MAX and self.start * 2 > len(self.entries):
            del self.entries[: self.start]
            self.start = 0
        return job_id


@dataclass(slots=True, eq=False)
class AccountQueue:
    """The waiting jobs of one account at one priority."""

    number: int
    account: Account
    priority: int
    count: int = 0
    buckets: dict[Shape, Bucket] = field(default_factory=dict)
    heap: list[tuple[Key, int, Bucket]] = field(default_factory=list)
    listed: Rank | None = None


@dataclass(slots=True, eq=False)
class Account:
    name: str
    service: int  #: the cost of its jobs so far, from the common start
    turn: int = 0  #: the number of the turn in which it was last served
    queues: dict[int, AccountQueue] = field(default_factory=dict)

    @property
    def rank(self) -> Rank:
        return self.service, self.turn


@dataclass(slots=True, eq=False)
class PriorityLevel:
    count: int = 0
    queues: dict[str, AccountQueue] = field(default_factory=dict)
    heap: list[tuple[Rank, int, AccountQueue]] = field(default_factory=list)


class FairQueue:
    def __init__(self) -> None:
        self.shapes: dict[Shape, ShapeBuckets] = {}
        self._levels: dict[int, PriorityLevel] = {}
        self._accounts: dict[str, Account] = {}
        self._accounts_sweep = ACCOUNTS_SWEEP_MIN
        self._service = 0  # the common clock: the service of whoever was last served in turn, before its job was added
        self._turns = 0
        self._numbers = count()

    def insert(self, job: Job) -> None:
        bucket = self._bucket_for(job)
        bucket.insert(job.key, job.id)
        self._count(bucket, 1)
        self._list(bucket)

    def delete(self, job: Job) -> None:
        bucket = self.shapes[job.shape].buckets[job.priority]
        bucket.delete(job.key)
        self._shrink(bucket)

    def first(self, priority: int) -> Bucket | None:
        """The bucket whose oldest job is next at this priority, ignoring parked shapes."""
        level = self._levels.get(priority)
        while level is not None and level.heap:
            listed, _, queue = level.heap[0]
            bucket = _first_bucket(queue) if queue.listed == listed else None
            if bucket is None:
                heappop(level.heap)
                queue.listed = None if queue.listed == listed else queue.listed
            elif listed == queue.account.rank:
                return bucket
            else:
                queue.listed = queue.account.rank
                heapreplace(level.heap, (queue.listed, queue.number, queue))
        return None

    def take(self, bucket: Bucket, *, in_turn: bool = True) -> str:
        """Take the bucket's oldest job, and add its cost to its account's service."""
        job_id = bucket.pop()
        account = bucket.queue.account
        self._turns += 1
        # An account that could not be served for a while does not save up turns: the common clock moved on without it.
        # The clock follows accounts served in turn. An account served out of turn gets ahead of it, and waits until the
        # others have caught up.
        start = max(self._service, account.service)
        if in_turn:
            self._service = start
        account.service = start + bucket.siblings.cost
        account.turn = self._turns
        self._shrink(bucket)
        return job_id

    def refund(self, shape: Shape) -> None:
        if found := self._accounts.get(shape.account):
            found.service -= cost_of(shape.requirements)
            for queue in found.queues.values():
                self._list_queue(queue)

    def unpark(self, shape: ShapeBuckets) -> None:
        """Make a parked shape eligible again."""
        shape.parked_at = None
        for bucket in shape.buckets.values():
            self._list(bucket)

    def priorities(self) -> Iterator[int]:
        return iter(sorted(self._levels, reverse=True))

    def ahead_of(self, job: Job) -> int:
        """The number of jobs that start before this one, if everything fits and every job costs the same.

        Those are all jobs of higher priority, the older jobs of its own queue, and from every other account as many as get
        a turn until then.
        """
        higher = sum(level.count for priority, level in self._levels.items() if priority > job.priority)
        level = self._levels[job.priority]
        account = job.shape.account
        own = sum(bucket.before(job.key) for bucket in level.queues[account].buckets.values())
        others = sum(min(queue.count, own) for name, queue in level.queues.items() if name != account)
        return higher + own + others

    def _bucket_for(self, job: Job) -> Bucket:
        shape = self.shapes.get(job.shape)
        if shape is None:
            shape = self.shapes[job.shape] = ShapeBuckets(job.shape, cost_of(job.shape.requirements))
        bucket = shape.buckets.get(job.priority)
        if bucket is None:
            queue = self._queue_for(job.shape.account, job.priority)
            bucket = Bucket(next(self._numbers), shape, queue)
            shape.buckets[job.priority] = queue.buckets[job.shape] = bucket
        return bucket

    def _queue_for(self, name: str, priority: int) -> AccountQueue:
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = Account(name, self._service)
        if not account.queues:
            account.service = max(account.service, self._service)
        queue = account.queues.get(priority)
        if queue is None:
            queue = account.queues[priority] = AccountQueue(next(self._numbers), account, priority)
            self._levels.setdefault(priority, PriorityLevel()).queues[name] = queue
        return queue

    def _list(self, bucket: Bucket) -> None:
        """Push a bucket that is not parked, and its queue, onto the heaps that `first` reads."""
        if bucket.siblings.parked_at is not None:
            return
        queue, head = bucket.queue, bucket.head()
        if bucket.listed is None or head < bucket.listed:
            bucket.listed = head
            _push(queue.heap, (head, bucket.number, bucket), valid_max=len(queue.buckets))
        self._list_queue(queue)

    def _list_queue(self, queue: AccountQueue) -> None:
        level, rank = self._levels[queue.priority], queue.account.rank
        if queue.listed is None or rank < queue.listed:
            queue.listed = rank
            _push(level.heap, (rank, queue.number, queue), valid_max=len(level.queues))

    def _count(self, bucket: Bucket, change: int) -> None:
        bucket.siblings.count += change
        bucket.queue.count += change
        self._levels[bucket.queue.priority].count += change

    def _shrink(self, bucket: Bucket) -> None:
        self._count(bucket, -1)
        if len(bucket):
            return
        queue, shape = bucket.queue, bucket.siblings
        bucket.listed = None
        del queue.buckets[shape.shape], shape.buckets[queue.priority]
        if not shape.buckets:
            del self.shapes[shape.shape]
        if not queue.buckets:
            self._close(queue)

    def _close(self, queue: AccountQueue) -> None:
        queue.listed = None
        level = self._levels[queue.priority]
        del queue.account.queues[queue.priority], level.queues[queue.account.name]
        if not level.queues:
            del self._levels[queue.priority]
        if not self._levels:
            self._accounts.clear()  # service obtained while nobody else waited does not count against anyone
        elif len(self._accounts) >= self._accounts_sweep:
            self._accounts = {name: account for name, account in self._accounts.items() if account.queues}
            self._accounts_sweep = max(ACCOUNTS_SWEEP_MIN, 2 * len(self._accounts))


def cost_of(needs: Requirements) -> int:
    """A job's cost for fair share: its dominant resource, in thousandths of a core."""
    each = max(1, needs.cpu_milli, needs.ram_mb // RAM_MB_PER_MILLI, cards_needed(needs) * CARD_COST_MILLI)
    return each * needs.nodes


def _push(heap: list[Any], entry: tuple[Any, int, Any], *, valid_max: int) -> None:
    heappush(heap, entry)
    if len(heap) > 2 * valid_max + _DEAD_MAX:
        heap[:] = [each for each in heap if each[2].listed == each[0]]
        heapify(heap)


def _first_bucket(queue: AccountQueue) -> Bucket | None:
    while queue.heap:
        listed, _, bucket = queue.heap[0]
        if bucket.listed != listed:
            heappop(queue.heap)
        elif bucket.siblings.parked_at is not None:
            heappop(queue.heap)
            bucket.listed = None
        elif listed == (head := bucket.head()):
            return bucket
        else:
            bucket.listed = head
            heapreplace(queue.heap, (head, bucket.number, bucket))
    return None
