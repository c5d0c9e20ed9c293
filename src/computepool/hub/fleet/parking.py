"""Waits with a time limit: thousands of parked polls share a few timers."""

from __future__ import annotations

import asyncio
from asyncio import Future
from dataclasses import dataclass, field

#: A wait may last so much too long.
_SLOT_S = 0.02


@dataclass(slots=True)
class Parking:
    """Futures that are done when their time is over, if nothing ends them before."""

    _slots: dict[int, dict[Future[None], None]] = field(default_factory=dict)

    def park(self, timeout_s: float) -> tuple[Future[None], int]:
        """The future, and the number of its slot."""
        loop = asyncio.get_running_loop()
        number = int((loop.time() + timeout_s) / _SLOT_S) + 1
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = {}
            loop.call_at(number * _SLOT_S, self._end, number)
        waiter: Future[None] = loop.create_future()
        slot[waiter] = None
        return waiter, number

    def leave(self, waiter: Future[None], number: int) -> None:
        """The wait has ended, or nobody waits any more."""
        self._slots.get(number, {}).pop(waiter, None)

    def _end(self, number: int) -> None:
        for waiter in self._slots.pop(number):
            if not waiter.done():
                waiter.set_result(None)
