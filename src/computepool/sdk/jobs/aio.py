"""The pool for asyncio.

    async with connect_async() as pool:
        print(await pool.submit(pow, 2, 10))
        async for picture in pool.map(render, range(1000)):
            ...

Nothing blocks the event loop, except that arguments are pickled and large ones uploaded in its thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Unpack

from computepool.sdk.client.transport import RETRY_FOR_S
from computepool.sdk.jobs.futures import JobFuture
from computepool.sdk.jobs.mapping import MapRun
from computepool.sdk.jobs.options import JobOptions, PathLike
from computepool.sdk.jobs.outcome import JobOutcome
from computepool.sdk.pool import Pool, connect


def connect_async(
    url: str | None = None,
    key: str | None = None,
    *,
    retry_for: float = RETRY_FOR_S,
    max_result_bytes: int | None = None,
) -> AsyncPool:
    """Like `connect`, for asyncio: `async with connect_async() as pool: …`."""
    return AsyncPool(connect(url, key, retry_for=retry_for, max_result_bytes=max_result_bytes))


class AsyncPool:
    """`sync` is the underlying Pool, for all other calls: `await asyncio.to_thread(pool.sync.jobs.list)`."""

    def __init__(self, pool: Pool) -> None:
        self.sync = pool

    def submit(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[JobOptions],
    ) -> JobFuture:
        """Run `fn(*args, **kwargs)`; await the future for the result."""
        return self.sync.submit(fn, *args, kwargs=kwargs, **options)

    def map(
        self,
        fn: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        progress: bool | None = None,
        ordered: bool = True,
        return_exceptions: bool = False,
        in_flight_max: int | None = None,
        chunksize: int | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncMapRun:
        """`async for result in pool.map(fn, items)`; otherwise like `Pool.map`."""
        run = self.sync.map(
            fn,
            *iterables,
            progress=progress,
            ordered=ordered,
            return_exceptions=return_exceptions,
            in_flight_max=in_flight_max,
            chunksize=chunksize,
            **options,
        )
        return AsyncMapRun(run)

    async def run(self, path: PathLike, args: Sequence[object] = (), **options: Unpack[JobOptions]) -> JobOutcome:
        """Run a script file and wait for it."""
        future = await asyncio.to_thread(lambda: self.sync.run(path, args, wait=False, **options))
        outcome: JobOutcome = await future
        return outcome

    async def command(self, argv: Sequence[object], **options: Unpack[JobOptions]) -> JobOutcome:
        """Run a program with arguments and wait for it."""
        future = await asyncio.to_thread(lambda: self.sync.command(argv, wait=False, **options))
        outcome: JobOutcome = await future
        return outcome

    async def close(self) -> None:
        await asyncio.to_thread(self.sync.close)

    async def __aenter__(self) -> AsyncPool:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class AsyncMapRun(AsyncIterator[Any]):
    """Leaving the loop early, a failed item, or cancelling the waiting task cancels the unfinished jobs."""

    def __init__(self, run: MapRun) -> None:
        self._run = run

    @property
    def group_id(self) -> str | None:
        return self._run.group_id

    @property
    def key_prefix(self) -> str:
        return self._run.key_prefix

    async def __anext__(self) -> Any:
        try:
            outcome = self._run.poll() or await self._wait()
            return self._run.value(outcome)
        except StopIteration:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await asyncio.to_thread(self._run.close)

    async def __aenter__(self) -> AsyncMapRun:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def _wait(self) -> Any:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()

        def notify() -> None:
            with suppress(RuntimeError):  # the loop is closed, so nothing waits
                loop.call_soon_threadsafe(arrived.set)

        self._run.set_listener(notify)
        try:
            # Polled again after registering: a result may have come in between.
            while (outcome := self._run.poll()) is None:
                await arrived.wait()
                arrived.clear()
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.to_thread(self._run.close))
            raise
        finally:
            self._run.set_listener(None)
        return outcome
