"""Calls of one kind that come while others are under way are made together: a storm of nodes is a few transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
#: One answer for each that was asked, in their order; an error is raised to the one who asked.
Call: TypeAlias = Callable[[list[Asked]], Awaitable[Sequence[Answer | Exception]]]


@dataclass(slots=True)
class _Waiting(Generic[Asked, Answer]):
    key: Hashable
    asked: Asked
    call: Call[Asked, Answer]
    future: asyncio.Future[Answer]


class Together(Generic[Asked, Answer]):
    """The first is made at once. What comes meanwhile waits for it, and goes together."""

    def __init__(self, *, most: int = 200) -> None:
        self._most = most
        self._waiting: list[_Waiting[Asked, Answer]] = []
        self._work: asyncio.Task[None] | None = None

    async def ask(self, key: Hashable, asked: Asked, call: Call[Asked, Answer]) -> Answer:
        """Of two with the same key the second goes after the first, never with it."""
        loop = asyncio.get_running_loop()
        waiting: _Waiting[Asked, Answer] = _Waiting(key, asked, call, loop.create_future())
        self._waiting.append(waiting)
        if self._work is None:
            self._work = loop.create_task(self._answer_all())
        return await waiting.future

    async def _answer_all(self) -> None:
        try:
            while self._waiting:
                await self._answer(self._take())
        finally:
            self._work = None
            for left in self._waiting:  # the loop ends
                left.future.cancel()

    def _take(self) -> list[_Waiting[Asked, Answer]]:
        chosen: dict[Hashable, _Waiting[Asked, Answer]] = {}
        rest = []
        for waiting in self._waiting:
            if waiting.future.done():
                continue  # nobody waits for it any more
            if waiting.key in chosen or len(chosen) == self._most:
                rest.append(waiting)
            else:
                chosen[waiting.key] = waiting
        self._waiting = rest
        return list(chosen.values())

    async def _answer(self, part: list[_Waiting[Asked, Answer]]) -> None:
        if not part:
            return
        try:
            answers = await part[0].call([waiting.asked for waiting in part])
        except Exception as error:  # noqa: BLE001 - each of them gets its own verdict
            if len(part) == 1:
                _tell(part[0], error)
                return
            for waiting in part:
                await self._answer([waiting])
        else:
            for waiting, answer in zip(part, answers, strict=True):
                _tell(waiting, answer)


def _tell(waiting: _Waiting[Asked, Answer], answer: Answer | Exception) -> None:
    if waiting.future.done():
        return
    if isinstance(answer, Exception):
        waiting.future.set_exception(answer)
    else:
        waiting.future.set_result(answer)
