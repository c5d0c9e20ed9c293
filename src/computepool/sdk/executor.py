"""A concurrent.futures.Executor over the pool, for code that already takes one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING, Any, TypeVar

from computepool.core.jobs import JobState
from computepool.sdk.futures import JobFuture
from computepool.sdk.session import Session

if TYPE_CHECKING:
    from computepool.sdk.submitter import Submitter

T = TypeVar("T")


class PoolExecutor(Executor):
    """`with pool.executor() as executor: executor.map(fn, items)`. Jobs are one group at the hub."""

    def __init__(self, submitter: Submitter, session: Session) -> None:
        self._submitter = submitter
        self._session = session
        self._lock = threading.Lock()
        self._unfinished: set[Future[Any]] = set()
        self._shut = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """All keywords are the function's own; requirements belong to `pool.options(...).executor()`."""
        submission = self._submitter.function(fn)
        item = self._submitter.item(args, kwargs)
        with self._lock:
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            future: Future[Any] = self._session.submit(submission, item)
            self._unfinished.add(future)
        future.add_done_callback(self._forget)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            self._shut = True
            unfinished = list(self._unfinished)
        if cancel_futures:
            self._cancel_waiting(unfinished)
        if wait:
            wait_for(unfinished)
            self._session.close()

    def _cancel_waiting(self, unfinished: list[Future[Any]]) -> None:
        """As the standard library has it: what has not started is cancelled, what runs may end."""
        self._session.flush()
        group_id = self._session.group_id
        if group_id is None:
            return
        jobs = self._session.pool.jobs
        queued = {
            job.id for job in jobs.list(state=JobState.QUEUED, group_id=group_id, limit=len(unfinished))
        }
        for future in unfinished:
            if isinstance(future, JobFuture) and not future.done() and future.job_id in queued:
                future.cancel()

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._unfinished.discard(future)
