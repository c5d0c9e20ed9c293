"""The future of a job. Works with everything that takes a concurrent.futures.Future."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from computepool.core.errors import ComputePoolError
from computepool.core.jobs.lifecycle import JobState
from computepool.protocol.jobs.explanations import WhyView
from computepool.protocol.jobs.views import JobDetail, JobResult
from computepool.sdk.client.background import closer
from computepool.sdk.client.waiting import job_reason, notice_s
from computepool.sdk.errors import JobCancelled, ResultUnreadable, job_error

if TYPE_CHECKING:
    from computepool.sdk.client.session import GroupSession
    from computepool.sdk.pool import Pool

#: Turns a finished job into the value of `result()`, or raises ComputePoolError.
Reader = Callable[[JobResult], Any]

_cancelling = threading.Lock()
_log = logging.getLogger("computepool.sdk")


class JobFuture(Future[Any]):
    """A concurrent.futures.Future with the ID of its job, by which other processes can attach to it."""

    def __init__(self, source: GroupSession | _SingleJob, read: Reader) -> None:
        """`source` provides the job's ID and result."""
        super().__init__()
        self._source = source
        self._read = read
        self._id: str | None = None
        self._notified = False
        self._to_cancel = False
        self._cancelled_as: JobCancelled | None = None  #: what the hub said of a cancelled job
        self.examined = False  #: the program has asked for its outcome
        self._seen: tuple[JobState, float] | None = None  #: the hub's last reply, and when it came

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
        """The job's value. Raises JobFailed, JobCancelled or JobExpired if there is none, or TimeoutError."""
        self.examined = True
        try:
            return super().result(timeout)
        except TimeoutError as error:
            if timeout is None or self.done():  # raised by the function itself
                raise
            if self._id is None:
                hub = self._source.pool.transport.url
                raise TimeoutError(
                    f"the job has not reached the hub at {hub} after {timeout:g} s; it is sent as soon as the hub answers"
                ) from error
            raise TimeoutError(
                f"Job {self._id} is not finished after {timeout:g} s; it was not cancelled. {self._reason(timeout)}"
            ) from error
        except CancelledError as error:
            raise self._as_cancelled(error) from None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.examined = True
        try:
            return super().exception(timeout)
        except CancelledError as error:
            raise self._as_cancelled(error) from None

    def running(self) -> bool:
        """Whether a node is running the job now. Asks the hub; False if it does not answer."""
        if self._id is None or self.done():
            return False
        try:
            job = self._source.pool.transport.request(JobDetail, "GET", f"/jobs/{self._id}", retry_for=0)
        except ComputePoolError:
            return False
        self._seen = job.state, time.monotonic()
        return job.state is JobState.RUNNING

    def __repr__(self) -> str:
        """Shows the last known state with its age; does not ask the hub."""
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

    def cancel(self) -> bool:
        """Cancel the job, even if it is running. False if it had already finished."""
        if self.done():
            return self.cancelled()
        if self._source.withdraw(self):
            return self._mark_cancelled()
        view = self._source.pool.jobs.cancel(self.job_id)
        return self._mark_cancelled() if view.state is JobState.CANCELLED else False

    def __await__(self) -> Generator[Any, None, Any]:
        """`await future` in any event loop. Cancelling the waiting task cancels the job."""
        return self._wait_async().__await__()

    async def _wait_async(self) -> Any:
        import asyncio

        loop = asyncio.get_running_loop()
        finished = asyncio.Event()
        closer.start()

        def notify(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed, so nothing waits
                loop.call_soon_threadsafe(finished.set)

        self.add_done_callback(notify)
        try:
            await finished.wait()
        except asyncio.CancelledError:
            closer.put(self._cancel_quietly)  # in another thread: the request must not block the loop
            raise
        return self.result(0)

    def _cancel_quietly(self) -> None:
        """Cancel without waiting for the hub: a job that is being sent is cancelled once it has an ID."""
        self._to_cancel = True
        with suppress(ComputePoolError):
            if self._id is not None:
                self.cancel()
            elif self._source.withdraw(self):
                self._mark_cancelled()

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        self.examined = True
        super().add_done_callback(partial(_call_back, fn))

    def _reason(self, waited_s: float) -> str:
        """Why the job waits. Asks the hub only after a long wait, since a caller may poll with short timeouts."""
        reason = ""
        if self._id is not None and waited_s >= notice_s():
            reason = job_reason(self._source.pool.transport, self._id).removeprefix(f"{self._id}: ")
        return reason or "future.why() explains its state."

    def logs(self) -> str:
        """The job's output so far."""
        return self._source.pool.jobs.log_text(self.job_id)

    def why(self) -> WhyView:
        """Explain the state of the job, and what would change it."""
        return self._source.pool.jobs.why(self.job_id)

    def assign(self, job_id: str) -> None:
        self._id = job_id
        if self._to_cancel:
            closer.put(self._cancel_quietly)

    def finish(self, result: JobResult) -> None:
        """Called once, by the receiving thread."""
        error = job_error(result)
        if isinstance(error, JobCancelled):
            self._cancelled_as = error
            self._mark_cancelled()
        elif error is not None:
            self.fail(error)
        else:
            self._read_result(result)

    def fail(self, error: ComputePoolError) -> None:
        with suppress(InvalidStateError):  # cancelled concurrently
            self.set_exception(error)

    def drop(self) -> None:
        """The job was never sent."""
        self._mark_cancelled()

    def _read_result(self, result: JobResult) -> None:
        try:
            value = self._read(result)
        except ComputePoolError as unreadable:
            self.fail(unreadable)
            return
        except BaseException as error:  # noqa: BLE001 - a waiter must be released; a pickle may even raise SystemExit
            detail = f"The result of job {result.job_id} cannot be read: {type(error).__name__}: {error}"
            failure = ResultUnreadable(detail, job_id=result.job_id)
            failure.__cause__ = error
            self.fail(failure)
            return
        with suppress(InvalidStateError):
            self.set_result(value)

    def _mark_cancelled(self) -> bool:
        """Called by cancel() and when the hub reports the cancellation; notifies waiters once."""
        with _cancelling:
            if super().cancel() and not self._notified:
                self._notified = True
                self.set_running_or_notify_cancel()
        return self.cancelled()

    def _as_cancelled(self, error: CancelledError) -> BaseException:
        if isinstance(error, JobCancelled):
            return error
        if self._cancelled_as is not None:
            return self._cancelled_as
        name = "The job" if self._id is None else f"Job {self._id}"
        return JobCancelled(f"{name} was cancelled.", job_id=self._id or "", reason="cancelled_by_user")


def _call_back(fn: Callable[[Future[Any]], object], future: Future[Any]) -> None:
    """Call `fn` so that whatever it raises neither ends the receiving thread nor skips the next callbacks.

    The standard library logs exceptions. SystemExit and KeyboardInterrupt are only meaningful in the main thread.
    """
    try:
        fn(future)
    except Exception:
        raise
    except BaseException:
        if threading.current_thread() is threading.main_thread():
            raise
        _log.exception("a callback of %r raised", future)


class _SingleJob:
    """The source of a job without a group."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def wait_for_id(self, future: JobFuture) -> None:
        return None

    def withdraw(self, future: JobFuture) -> bool:
        return False


def follow_single_job(pool: Pool, job_id: str, read: Reader) -> JobFuture:
    """The future of a job that belongs to no group; a thread of its own waits for the result."""
    future = JobFuture(_SingleJob(pool), read)
    future.assign(job_id)

    def wait() -> None:
        try:
            result = pool.jobs.result(job_id)
        except ComputePoolError as error:
            future.fail(error)
        else:
            future.finish(result)

    threading.Thread(target=wait, name="computepool-single-job", daemon=True).start()
    return future
