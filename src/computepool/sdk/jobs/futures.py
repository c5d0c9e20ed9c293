"""A job's result to come. Works with everything that takes a concurrent.futures.Future."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from computepool.core.jobs.lifecycle import JobState
from computepool.protocol.jobs.jobs import JobDetail, JobResult, WhyView
from computepool.sdk.client.background import closer
from computepool.sdk.client.waiting import job_reason, notice_s
from computepool.sdk.errors import ComputePoolError, JobCancelled, ResultUnreadable, job_error

if TYPE_CHECKING:
    from computepool.sdk.pool import Pool

#: Turns a finished job into what `result()` returns; raises ComputePoolError when it cannot.
Reader = Callable[[JobResult], Any]

_cancelling = threading.Lock()
_log = logging.getLogger("computepool.sdk")


class Source(Protocol):
    """Where a future's news come from."""

    pool: Pool

    def wait_for_id(self, future: JobFuture) -> None: ...

    def withdraw(self, future: JobFuture) -> bool: ...


class JobFuture(Future[Any]):
    """`result()`, `done()`, `cancel()` … as everywhere; `job_id` finds the job again from another process."""

    def __init__(self, source: Source, read: Reader) -> None:
        super().__init__()
        self._source = source
        self._read = read
        self._id: str | None = None
        self._notified = False
        self._unwanted = False
        self._seen: tuple[JobState, float] | None = None  #: at the hub, and when it was asked

    @property
    def assigned(self) -> bool:
        """The hub has acknowledged the job."""
        return self._id is not None

    @property
    def job_id(self) -> str:
        """The job's id; waits until the hub has acknowledged the job."""
        if self._id is None:
            self._source.wait_for_id(self)
        if self._id is None:
            error = self.exception()
            raise error if error is not None else JobCancelled("The job was never sent.", job_id="")
        return self._id

    def result(self, timeout: float | None = None) -> Any:
        """The value. Raises JobFailed, JobCancelled or JobExpired when there is none, or TimeoutError."""
        try:
            return super().result(timeout)
        except TimeoutError as error:
            if timeout is None or self.done():  # the function's own
                raise
            if self._id is None:
                raise TimeoutError(self._not_submitted(timeout)) from error
            raise TimeoutError(
                f"Job {self._id} is not finished after {timeout:g} s; it was not cancelled. {self._reason(timeout)}"
            ) from error
        except CancelledError as error:
            raise self._as_cancelled(error) from None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        try:
            return super().exception(timeout)
        except CancelledError as error:
            raise self._as_cancelled(error) from None

    def running(self) -> bool:
        """Whether a node runs it now. Asks the hub; False also when that does not answer."""
        if self._id is None or self.done():
            return False
        try:
            job = self._source.pool.transport.ask(JobDetail, "GET", f"/jobs/{self._id}", retry_for=0)
        except ComputePoolError:
            return False
        self._seen = job.state, time.monotonic()
        return job.state is JobState.RUNNING

    def __repr__(self) -> str:
        """With what is known here: the hub is not asked, so its last reply is shown with its age."""
        if self.cancelled():
            state = "cancelled"
        elif self.done():
            state = "succeeded" if super().exception() is None else "failed"
        else:
            state = "not submitted yet" if self._id is None else self._last_seen()
        return f"<JobFuture {self._id or '(no id)'} {state}>"

    def _last_seen(self) -> str:
        if self._seen is None:
            return "submitted"
        state, at = self._seen
        age_s = int(time.monotonic() - at)
        return f"{state.value} {age_s} s ago" if age_s else state.value

    def _not_submitted(self, timeout: float) -> str:
        hub = self._source.pool.transport.url
        return f"the job has not reached the hub at {hub} after {timeout:g} s; it is sent as soon as the hub answers"

    def cancel(self) -> bool:
        """Stop the job wherever it is, running or not. False when it was over before."""
        if self.done():
            return self.cancelled()
        if self._source.withdraw(self):
            return self._mark_cancelled()
        view = self._source.pool.jobs.cancel(self.job_id)
        return self._mark_cancelled() if view.state is JobState.CANCELLED else False

    def __await__(self) -> Generator[Any, None, Any]:
        """`await future` in any event loop. When the task that waits is cancelled, so is the job."""
        return self._wait_async().__await__()

    async def _wait_async(self) -> Any:
        import asyncio

        loop = asyncio.get_running_loop()
        over = loop.create_future()
        closer.start()

        def set_over() -> None:
            if not over.done():
                over.set_result(None)

        def notify(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(set_over)

        self.add_done_callback(notify)
        try:
            await over
        except asyncio.CancelledError:
            closer.put(
                self._cancel_quietly
            )  # asking the hub takes a moment, which the loop must not wait for
            raise
        return self.result(0)

    def _cancel_quietly(self) -> None:
        """Without waiting for a hub that is away: what is being sent is cancelled when it has an id."""
        self._unwanted = True
        with suppress(ComputePoolError):
            if self._id is not None:
                self.cancel()
            elif self._source.withdraw(self):
                self._mark_cancelled()

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        super().add_done_callback(partial(_call_back, fn))

    def _reason(self, waited_s: float) -> str:
        """Why it waits. Who looks every moment whether it is over does not ask the hub each time."""
        reason = ""
        if self._id is not None and waited_s >= notice_s():
            reason = job_reason(self._source.pool.transport, self._id).removeprefix(f"{self._id}: ")
        return reason or "future.why() explains its state."

    def logs(self) -> str:
        """What the job has printed so far."""
        return self._source.pool.jobs.log_text(self.job_id)

    def why(self) -> WhyView:
        """Why the job is where it is, and what would change that."""
        return self._source.pool.jobs.why(self.job_id)

    def assign(self, job_id: str) -> None:
        self._id = job_id
        if self._unwanted:
            closer.put(self._cancel_quietly)

    def finish(self, result: JobResult) -> None:
        """Called once, by the thread that receives results."""
        error = job_error(result)
        if isinstance(error, JobCancelled):
            self._mark_cancelled()
        elif error is not None:
            self.fail(error)
        else:
            self._read_result(result)

    def fail(self, error: ComputePoolError) -> None:
        with suppress(InvalidStateError):  # cancelled in the same moment: the first end holds
            self.set_exception(error)

    def drop(self) -> None:
        """It was never sent, and never will be."""
        self._mark_cancelled()

    def _read_result(self, result: JobResult) -> None:
        try:
            value = self._read(result)
        except ComputePoolError as unreadable:
            self.fail(unreadable)
            return
        except BaseException as error:  # noqa: BLE001 - somebody waits, whatever it is; a pickle may even exit
            words = f"The result of job {result.job_id} cannot be read: {type(error).__name__}: {error}"
            failure = ResultUnreadable(words, job_id=result.job_id)
            failure.__cause__ = error
            self.fail(failure)
            return
        with suppress(InvalidStateError):
            self.set_result(value)

    def _mark_cancelled(self) -> bool:
        """Both the caller of cancel() and the hub's news may come here; waiters are told once."""
        with _cancelling:
            if super().cancel() and not self._notified:
                self._notified = True
                self.set_running_or_notify_cancel()
        return self.cancelled()

    def _as_cancelled(self, error: CancelledError) -> BaseException:
        if isinstance(error, JobCancelled):
            return error
        name = "The job" if self._id is None else f"Job {self._id}"
        return JobCancelled(f"{name} was cancelled.", job_id=self._id or "", reason="cancelled_by_user")


def _call_back(fn: Callable[[Future[Any]], object], future: Future[Any]) -> None:
    """What a callback raises ends neither the thread that brings results nor the callbacks after it.

    Exceptions are logged by the standard library; SystemExit and KeyboardInterrupt only mean something in the main thread.
    """
    try:
        fn(future)
    except Exception:
        raise
    except BaseException:
        if threading.current_thread() is threading.main_thread():
            raise
        _log.exception("a callback of %r raised", future)
