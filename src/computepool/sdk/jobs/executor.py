"""A concurrent.futures.Executor that runs calls on the pool."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, wait as wait_for
from typing import TYPE_CHECKING, Any, TypeVar

from computepool.core.jobs.lifecycle import JobState
from computepool.sdk.client.session import GroupSession
from computepool.sdk.errors import JobCancelled
from computepool.sdk.jobs.futures import JobFuture
from computepool.sdk.jobs.mapping import MapRun

if TYPE_CHECKING:
    from computepool.sdk.jobs.submitter import Submitter

T = TypeVar("T")


class PoolExecutor(Executor):
    """`with pool.executor() as executor: executor.map(fn, items)`. Its jobs are one group at the hub."""

    def __init__(self, submitter: Submitter, session: GroupSession) -> None:
        self._submitter = submitter
        self._session = session
        self._lock = threading.Lock()
        self._unfinished: set[Future[Any]] = set()
        self._maps: list[MapRun] = []
        self._shut = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """All keyword arguments go to the function; job options go to `pool.executor(...)`."""
        submission, item = self._submitter.call(fn, args, kwargs)
        with self._lock:
            self._check_open()
            future: Future[Any] = self._session.submit(submission, item)
            self._unfinished.add(future)
        future.add_done_callback(self._forget)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Like `Executor.map`: reads all items at once, or stays `buffersize` items ahead of the results taken.

        `chunksize`: items per job; by default chosen by their run time.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            self._check_open()
        # Without the lock: iterating over the items runs the caller's code, which may use this executor.
        run = self._submitter.map(
            fn, *iterables, progress=False, chunksize=chunksize, in_flight_max=buffersize or _ALL, session=self._session
        )
        with self._lock:
            self._maps = [other for other in self._maps if not other.done] + [run]
            shut = self._shut
        if shut:
            run.close()
            self._check_open()
        return _results(run, end)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            self._shut = True
            unfinished, maps = list(self._unfinished), list(self._maps)
        if cancel_futures:
            for run in maps:
                run.close()
            self._cancel_waiting(unfinished)
        if wait:
            wait_for(unfinished)
            for run in maps:
                run.wait_done()
            self._session.close()

    def _check_open(self) -> None:
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _cancel_waiting(self, unfinished: list[Future[Any]]) -> None:
        """As in the standard library: cancels what has not started; running jobs continue."""
        self._session.flush()
        group_id = self._session.group_id
        if group_id is None or not unfinished:
            return
        jobs = self._session.pool.jobs
        queued = {job.id for job in jobs.list(state=JobState.QUEUED, group_id=group_id, limit=len(unfinished))}
        for future in unfinished:
            if isinstance(future, JobFuture) and not future.done() and future.job_id in queued:
                future.cancel()

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._unfinished.discard(future)


#: Like the standard library, `map` reads all items at once; the results may be taken after the executor's shutdown.
_ALL = 2**62


def _results(run: MapRun, end: float | None) -> Iterator[Any]:
    """Leaving the iteration early cancels the rest."""
    try:
        while True:
            try:
                value = run.take(None if end is None else max(0.0, end - time.monotonic()))
            except StopIteration:
                if run.cut_short:
                    raise JobCancelled("The executor was shut down.", job_id="") from None
                return
            yield value
    finally:
        run.close_later()  # the garbage collector may be what closes this generator
