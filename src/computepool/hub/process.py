"""State of this hub's process: its id, its start, whether it is stopping, and threads for slow calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_THREADS = 16


@dataclass(slots=True)
class ProcessState:
    hub_id: str
    started_at_ms: int
    stopping: bool = False
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_THREADS, "slow"))

    async def in_thread(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call a function that waits for a disk or another service, without blocking the store's threads."""
        call = partial(function, *args, **options)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def end(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
