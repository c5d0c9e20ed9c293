"""Batching: requests that arrive while others are being processed are processed together, so that a storm of nodes takes few
transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")
#: Returns one answer for each request, in their order. An exception among them is raised to its requester.
Call: TypeAlias = Callable[[list[Request]], Awaitable[Sequence[Answer | Exception]]]


@dataclass(slots=True)
class _Waiting(Generic[Request, Answer]):
    key: Hashable
    request: Request
    call: Call[Request, Answer]
    future: asyncio.Future[Answer]


class Batcher(Generic[Request, Answer]):
    """Processes the first request at once, and those that arrive meanwhile together afterwards."""

    def __init__(self, *, most: int = 200) -> None:
        self._most = most
        self._waiting: list[_Waiting[Request, Answer]] = []
        self._work: asyncio.Task[None] | None = None

    async def ask(self, key: Hashable, request: Request, call: Call[Request, Answer]) -> Answer:
        """Process a request. Two with the same key never share a batch; the second waits for the first."""
        loop = asyncio.get_running_loop()
        waiting: _Waiting[Request, Answer] = _Waiting(key, request, call, loop.create_future())
        self._waiting.append(waiting)
        if self._work is None:
            self._work = loop.create_task(self._answer_all())
        return await waiting.future

    async def _answer_all(self) -> None:
        try:
            while self._waiting:
                await self._answer_part(self._take())
        finally:
            self._work = None
            for waiting in self._waiting:  # the event loop is stopping
                waiting.future.cancel()

    def _take(self) -> list[_Waiting[Request, Answer]]:
        chosen: dict[Hashable, _Waiting[Request, Answer]] = {}
        rest = []
        for waiting in self._waiting:
            if waiting.future.done():
                continue  # its requester was cancelled
            if waiting.key in chosen or len(chosen) == self._most:
                rest.append(waiting)
            else:
                chosen[waiting.key] = waiting
        self._waiting = rest
        return list(chosen.values())

    async def _answer_part(self, part: list[_Waiting[Request, Answer]]) -> None:
        if not part:
            return
        try:
            answers = await part[0].call([waiting.request for waiting in part])
        except Exception as error:  # noqa: BLE001 - each requester gets its own error
            if len(part) == 1:
                _resolve(part[0], error)
                return
            for waiting in part:
                await self._answer_part([waiting])
        else:
            for waiting, answer in zip(part, answers, strict=True):
                _resolve(waiting, answer)


def _resolve(waiting: _Waiting[Request, Answer], answer: Answer | Exception) -> None:
    if waiting.future.done():
        return
    if isinstance(answer, Exception):
        waiting.future.set_exception(answer)
    else:
        waiting.future.set_result(answer)
