"""Lanes: attempts that run one after the other and share one reservation of the node, including its CPUs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from computepool.agent.execution.attempts import Attempt
from computepool.agent.hardware.cpus import SETTLED_S, Cpus
from computepool.agent.sandbox.supervise import Process
from computepool.agent.workers.workers import WorkerHandle


@dataclass(slots=True, eq=False)
class AttemptLane:
    id: str
    waiting: deque[Attempt] = field(default_factory=deque)
    head: Attempt | None = None
    head_since: float = 0.0
    worker: WorkerHandle | None = None
    fed: int = 0  #: how many of `waiting`, from the front, were sent to the worker ahead of time
    task: asyncio.Task[None] | None = None
    reserved_cores: float = 0.0
    cpu_ids: tuple[int, ...] = ()  #: where it may run now
    cores: float = 0.0  #: how much of these CPUs it may use now

    def pin(self, cpu_ids: tuple[int, ...], cores: float) -> None:
        """Use these CPUs from now on, also for what runs already."""
        if (cpu_ids, cores) == (self.cpu_ids, self.cores):
            return
        self.cpu_ids, self.cores = cpu_ids, cores
        if self.worker is not None:
            self.worker.pin(cpu_ids, cores)
        if self.head is not None and self.head.process is not None:
            self.head.process.pin(cpu_ids, cpus=cores)

    def process(self) -> Process | None:
        if self.worker is not None:
            return self.worker.process if self.worker.alive else None
        return None if self.head is None else self.head.process

    def pop(self, now: float) -> Attempt:
        self.head = self.waiting.popleft()
        self.head_since = now
        self.fed = max(0, self.fed - 1)
        return self.head

    def recall(self) -> None:
        """Take back calls that the worker has not started."""
        if self.worker is None or not self.fed:
            return
        running = None if self.head is None else self.head.call
        back = {call.seq for call in self.worker.recall(but=running)}
        for attempt in self.waiting:
            if attempt.call is not None and attempt.call.seq in back:
                attempt.call = None
        self.fed = sum(attempt.call is not None for attempt in self.waiting)

    def withdraw(self, matches: Callable[[Attempt], bool]) -> list[Attempt]:
        """Remove and return waiting attempts, except those that the worker has started."""
        self.recall()
        out = [attempt for attempt in self.waiting if attempt.call is None and matches(attempt)]
        if out:
            gone = set(map(id, out))
            self.waiting = deque(attempt for attempt in self.waiting if id(attempt) not in gone)
        return out


class LaneCpus:
    """Reserves CPUs for lanes, and lends idle ones to lanes that may stretch."""

    def __init__(self, cpus: Cpus, *, may_stretch: Callable[[Attempt], bool]) -> None:
        self.cpus = cpus
        self._may_stretch = may_stretch
        self._lanes: dict[str, AttemptLane] = {}

    def enter(self, lane: AttemptLane, cores: float, *, near: tuple[int, ...] = ()) -> None:
        """Call it before a lane's first attempt, and before one that needs a different number of cores."""
        lane.reserved_cores = cores
        self._lanes[lane.id] = lane
        if self.cpus.reserve(lane.id, cores, near=near):
            self._apply()  # Others return what they borrowed before this one starts.
        else:
            lane.pin(self.cpus.ids(lane.id), self.cpus.cores(lane.id))

    def leave(self, lane: AttemptLane, now: float) -> None:
        if self._lanes.pop(lane.id, None) is not None:
            self.cpus.release(lane.id, now)

    def patrol(self, now: float) -> None:
        """Call it once a second: lends CPUs that have been idle for a while to long-running lanes."""
        able = [
            lane.id
            for lane in self._lanes.values()
            if (head := lane.head) is not None
            and head.started_at is not None
            and now - head.started_at >= SETTLED_S
            and self._may_stretch(head)
        ]
        self.cpus.stretch(able, now)
        self._apply()

    def _apply(self) -> None:
        for lane in self._lanes.values():
            lane.pin(self.cpus.ids(lane.id), self.cpus.cores(lane.id))
