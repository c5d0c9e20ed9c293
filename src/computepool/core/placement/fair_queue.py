"""Jobs that wait, in order: priority, then fair share between accounts, then age. Knows nothing of nodes.

A *line* is what one account has waiting at one priority. Its jobs are sorted into *bins* by shape, so that a
shape that fits nowhere can be set aside without touching its jobs, and the cost of a decision does not grow
with the queue.

Fair share is start-time fair queueing: every job that starts adds its cost to its account's service, and the
account with the least service goes next. An account that comes (back) starts at the service of whoever was
served last, so nobody saves up turns by waiting and nobody is starved by newcomers.

The heaps are lazy. A bin or line has one entry that counts, the one it says is listed; its key may be too low
by now, and is put right when it comes up. Entries that do not count are dropped then, or when they are too
many.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

from computepool.core.fleet.node_record import cards_needed
from computepool.core.resources import Requirements, Shape

#: What one card counts for in cores, and one GB-sized share of RAM: a job costs its account its dominant
#: resource.
CARD_COST_MILLI = 8_000
RAM_MB_PER_MILLI = 4
#: With this many accounts, those that have nothing waiting are forgotten, and what they are ahead of others.
ACCOUNTS_SWEEP_MIN = 1_024
#: A bin's emptied front is cut off when it is this long and the larger half.
_FRONT_MAX = 1_024
#: A heap is rebuilt when this many more entries do not count than do.
_DEAD_MAX = 64

#: Age first; the second number keeps jobs of equal age in the order in which they came.
Key = tuple[str, int]
#: Least service first; of equals, the one served longest ago.
Rank = tuple[int, int]


@dataclass(slots=True)
class Job:
    id: str
    key: Key
    shape: Shape
    account: str
    priority: int
    ready_at_ms: int | None = None  #: None: it is ready


@dataclass(slots=True, eq=False)
class ShapeBins:
    """One shape's bins, across priorities."""

    shape: Shape
    cost: int
    count: int = 0
    parked_at: int | None = None  #: the fleet's supply when it last fitted nowhere
    bins: dict[tuple[int, str], Bin] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Bin:
    """The jobs of one shape in one line, oldest first."""

    number: int
    shape: ShapeBins
    line: AccountQueue
    entries: list[tuple[Key, str]] = field(default_factory=list)
    start: int = 0  #: entries before this are gone
    listed: Key | None = None

    def __len__(self) -> int:
        return len(self.entries) - self.start

    def head(self) -> Key:
        return self.entries[self.start][0]

    def insert(self, key: Key, job_id: str) -> None:
        insort(self.entries, (key, job_id), lo=self.start)

    def before(self, key: Key) -> int:
        """How many of its jobs come before this key."""
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
    """What one account has waiting at one priority."""

    number: int
    account: Account
    priority: int
    count: int = 0
    bins: dict[Shape, Bin] = field(default_factory=dict)
    heap: list[tuple[Key, int, Bin]] = field(default_factory=list)
    listed: Rank | None = None


@dataclass(slots=True, eq=False)
class Account:
    name: str
    service: int  #: what its jobs cost so far, from the common starting line
    turn: int = 0  #: when it was served last
    count: int = 0
    lines: dict[int, AccountQueue] = field(default_factory=dict)

    @property
    def rank(self) -> Rank:
        return self.service, self.turn


@dataclass(slots=True, eq=False)
class PriorityLevel:
    """One priority."""

    count: int = 0
    lines: dict[str, AccountQueue] = field(default_factory=dict)
    heap: list[tuple[Rank, int, AccountQueue]] = field(default_factory=list)


class Lines:
    """All lines of ready jobs."""

    def __init__(self) -> None:
        self.shapes: dict[Shape, ShapeBins] = {}
        self._levels: dict[int, PriorityLevel] = {}
        self._accounts: dict[str, Account] = {}
        self._accounts_sweep = ACCOUNTS_SWEEP_MIN
        self._service = 0  # the common clock: the service of whoever was served last in turn, before it paid
        self._turns = 0
        self._numbers = 0

    def insert(self, job: Job) -> None:
        box = self._bin_for(job)
        box.insert(job.key, job.id)
        self._count(box, 1)
        self._list(box)

    def delete(self, job: Job) -> None:
        box = self.shapes[job.shape].bins[job.priority, job.account]
        box.delete(job.key)
        self._shrunk(box)

    def first(self, priority: int) -> Bin | None:
        """The bin whose oldest job is next at this priority, parked shapes aside."""
        level = self._levels.get(priority)
        while level is not None and level.heap:
            listed, _, line = level.heap[0]
            box = _first_bin(line) if line.listed == listed else None
            if box is None:
                heappop(level.heap)
                line.listed = None if line.listed == listed else line.listed
            elif listed == line.account.rank:
                return box
            else:
                line.listed = line.account.rank
                heapreplace(level.heap, (line.listed, line.number, line))
        return None

    def take(self, box: Bin, *, in_turn: bool = True) -> str:
        """The bin's oldest job leaves the line, and its account pays for it."""
        job_id = box.pop()
        account = box.line.account
        self._turns += 1
        # Who could not be served for a while has not saved up: the common clock went on without them. It
        # follows those who are served in turn; who is served out of turn runs ahead of it, and waits until
        # the others caught up.
        start = max(self._service, account.service)
        if in_turn:
            self._service = start
        account.service = start + box.shape.cost
        account.turn = self._turns
        self._shrunk(box)
        return job_id

    def refund(self, account: str, shape: Shape) -> None:
        """A job that was taken did not start after all."""
        if found := self._accounts.get(account):
            found.service -= cost_of(shape.requirements)
            for line in found.lines.values():
                self._list_line(line)

    def park(self, shape: ShapeBins, supply: int) -> None:
        """Set a shape aside that fits nowhere at this supply."""
        shape.parked_at = supply

    def unpark(self, shape: ShapeBins) -> None:
        shape.parked_at = None
        for box in shape.bins.values():
            self._list(box)

    def priorities(self) -> Iterator[int]:
        return iter(sorted(self._levels, reverse=True))

    def ahead_of(self, job: Job) -> int:
        """How many jobs start before this one, if everything fits and every job costs the same.

        They are those of higher priority, the older ones of its own line, and as many of every other account
        as turns come round until then.
        """
        higher = sum(level.count for priority, level in self._levels.items() if priority > job.priority)
        level = self._levels[job.priority]
        own = sum(box.before(job.key) for box in level.lines[job.account].bins.values())
        others = sum(min(line.count, own) for name, line in level.lines.items() if name != job.account)
        return higher + own + others

    def _bin_for(self, job: Job) -> Bin:
        shape = self.shapes.get(job.shape)
        if shape is None:
            shape = self.shapes[job.shape] = ShapeBins(job.shape, cost_of(job.shape.requirements))
        box = shape.bins.get((job.priority, job.account))
        if box is None:
            line = self._line(job.account, job.priority)
            box = Bin(self._number(), shape, line)
            shape.bins[job.priority, job.account] = line.bins[job.shape] = box
        return box

    def _line(self, name: str, priority: int) -> AccountQueue:
        account = self._accounts.get(name)
        if account is None:
            account = self._accounts[name] = Account(name, self._service)
        if not account.count:
            account.service = max(account.service, self._service)
        line = account.lines.get(priority)
        if line is None:
            line = account.lines[priority] = AccountQueue(self._number(), account, priority)
            self._levels.setdefault(priority, PriorityLevel()).lines[name] = line
        return line

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _list(self, box: Bin) -> None:
        """Enter a bin that is not parked, and its line, where `first` looks for them."""
        if box.shape.parked_at is not None:
            return
        line, head = box.line, box.head()
        if box.listed is None or head < box.listed:
            box.listed = head
            heappush(line.heap, (head, box.number, box))
            if len(line.heap) > 2 * len(line.bins) + _DEAD_MAX:
                line.heap = [entry for entry in line.heap if entry[2].listed == entry[0]]
                heapify(line.heap)
        self._list_line(line)

    def _list_line(self, line: AccountQueue) -> None:
        level, rank = self._levels[line.priority], line.account.rank
        if line.listed is None or rank < line.listed:
            line.listed = rank
            heappush(level.heap, (rank, line.number, line))
            if len(level.heap) > 2 * len(level.lines) + _DEAD_MAX:
                level.heap = [entry for entry in level.heap if entry[2].listed == entry[0]]
                heapify(level.heap)

    def _count(self, box: Bin, change: int) -> None:
        box.shape.count += change
        box.line.count += change
        box.line.account.count += change
        self._levels[box.line.priority].count += change

    def _shrunk(self, box: Bin) -> None:
        self._count(box, -1)
        if len(box):
            return
        line, shape = box.line, box.shape
        box.listed = None
        del line.bins[shape.shape], shape.bins[line.priority, line.account.name]
        if not shape.bins:
            del self.shapes[shape.shape]
        if not line.bins:
            self._close(line)

    def _close(self, line: AccountQueue) -> None:
        line.listed = None
        level = self._levels[line.priority]
        del line.account.lines[line.priority], level.lines[line.account.name]
        if not level.lines:
            del self._levels[line.priority]
        if not self._levels:
            self._accounts.clear()  # what was used while nobody else waited is held against no one
        elif len(self._accounts) >= self._accounts_sweep:
            self._accounts = {name: account for name, account in self._accounts.items() if account.count}
            self._accounts_sweep = max(ACCOUNTS_SWEEP_MIN, 2 * len(self._accounts))


def cost_of(needs: Requirements) -> int:
    """What a job counts for in its account's share: its dominant resource, in thousandths of a core."""
    return max(1, needs.cpu_milli, needs.ram_mb // RAM_MB_PER_MILLI, cards_needed(needs) * CARD_COST_MILLI)


def _first_bin(line: AccountQueue) -> Bin | None:
    while line.heap:
        listed, _, box = line.heap[0]
        if box.listed != listed:
            heappop(line.heap)
        elif box.shape.parked_at is not None:
            heappop(line.heap)
            box.listed = None
        elif listed == (head := box.head()):
            return box
        else:
            box.listed = head
            heapreplace(line.heap, (head, box.number, box))
    return None
