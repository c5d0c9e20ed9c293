"""Lanes: attempts that share one reservation of the node and run strictly one after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from computepool.agent.attempts import Attempt
from computepool.agent.workers import Worker


@dataclass(slots=True, eq=False)
class Lane:
    id: str
    waiting: deque[Attempt] = field(default_factory=deque)
    head: Attempt | None = None
    head_since: float = 0.0
    worker: Worker | None = None
    fed: int = 0  #: how many of `waiting`, from the front, the worker already has
    task: asyncio.Task[None] | None = None

    def pop(self, now: float) -> Attempt:
        self.head = self.waiting.popleft()
        self.head_since = now
        self.fed = max(0, self.fed - 1)
        return self.head

    def recall(self) -> None:
        """Take the calls that the worker has not started back into the lane."""
        if self.worker is None or not self.fed:
            return
        back = {call.seq for call in self.worker.recall()}
        for attempt in self.waiting:
            if attempt.call is not None and attempt.call.seq in back:
                attempt.call = None
        self.fed = sum(attempt.call is not None for attempt in self.waiting)

    def withdraw(self, wanted: Callable[[Attempt], bool]) -> list[Attempt]:
        """Remove waiting attempts that have not started; those that a worker has taken meanwhile stay."""
        self.recall()
        out = [attempt for attempt in self.waiting if attempt.call is None and wanted(attempt)]
        if out:
            gone = set(map(id, out))
            self.waiting = deque(attempt for attempt in self.waiting if id(attempt) not in gone)
        return out

    def extend(self, attempts: Iterable[Attempt]) -> None:
        self.waiting.extend(attempts)
