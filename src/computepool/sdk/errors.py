"""What the SDK raises: the hub's errors under the same classes as in the hub, and the ends of jobs.

ComputePoolError
├── BadRequest, Unauthenticated, Forbidden, NotFound, Conflict, Gone, TooLarge, RateLimited,
│   InsufficientCredits, OutOfSpace, InvariantViolation     as the hub said (core/errors.py)
├── Unavailable                        the hub answers, but cannot do it now
│   └── HubUnreachable                 no answer from the hub at all
├── ChecksumMismatch                   a transfer's bytes are not what their SHA-256 says
└── JobError                           the job ended without a result; carries job_id, reason, exit_code
    ├── JobFailed                      it failed; carries the remote traceback when it was a function
    ├── JobCancelled                   also a concurrent.futures.CancelledError
    ├── JobExpired                     no node could run it before its time to live ended
    └── ResultUnreadable               it succeeded, but its result cannot be read here
"""

from __future__ import annotations

from concurrent.futures import CancelledError

from computepool.core.errors import (
    ERRORS_BY_CODE,
    BadRequest,
    ComputePoolError,
    Conflict,
    Forbidden,
    Gone,
    InsufficientCredits,
    InvariantViolation,
    NotFound,
    OutOfSpace,
    RateLimited,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from computepool.core.jobs import JobState
from computepool.protocol.accounts import Problem
from computepool.protocol.jobs import JobResult

__all__ = [
    "BadRequest",
    "ChecksumMismatch",
    "ComputePoolError",
    "Conflict",
    "Forbidden",
    "Gone",
    "HubUnreachable",
    "InsufficientCredits",
    "InvariantViolation",
    "JobCancelled",
    "JobError",
    "JobExpired",
    "JobFailed",
    "NotFound",
    "OutOfSpace",
    "RateLimited",
    "ResultUnreadable",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
]


class HubUnreachable(Unavailable):
    """The hub does not answer."""

    code = "unreachable"


class ChecksumMismatch(ComputePoolError):
    """The bytes that arrived are not the bytes that were asked for."""

    code = "checksum_mismatch"


class JobError(ComputePoolError):
    """The job ended without a result."""

    code = "job_error"

    def __init__(self, detail: str, *, job_id: str, reason: str = "", exit_code: int | None = None) -> None:
        super().__init__(detail)
        self.job_id = job_id
        self.reason = reason
        self.exit_code = exit_code
        #: What the node said: the remote traceback of a function, or the end of a script's complaint.
        self.remote_error: str | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Keyword arguments make the default pickling fail; futures are passed between processes."""
        return _rebuilt, (type(self), self.args, self.__dict__)


class JobFailed(JobError):
    """The job failed."""

    code = "job_failed"


class JobCancelled(JobError, CancelledError):
    """The job was cancelled."""

    code = "job_cancelled"


class JobExpired(JobError):
    """No node could run the job before its time to live ended."""

    code = "job_expired"


class ResultUnreadable(JobError):
    """The job succeeded, but its result cannot be read here."""

    code = "result_unreadable"


def hub_error(problem: Problem) -> ComputePoolError:
    """The hub's answer as the class it was there."""
    error = ERRORS_BY_CODE.get(problem.code, ComputePoolError)
    return error(problem.detail, field=problem.field, retry_after_s=problem.retry_after_s)


def job_error(result: JobResult) -> JobError | None:
    """Why there is no result, or None when there is one."""
    if result.state is JobState.SUCCEEDED:
        return None
    kind = {JobState.CANCELLED: JobCancelled, JobState.EXPIRED: JobExpired}.get(result.state, JobFailed)
    sentence = f"Job {result.job_id} {result.state}: {result.reason.replace('_', ' ')}"
    if result.exit_code is not None:
        sentence += f" (exit code {result.exit_code})"
    if result.error:
        sentence += f"\n{result.error}"
    error = kind(sentence, job_id=result.job_id, reason=result.reason, exit_code=result.exit_code)
    error.remote_error = result.error
    return error


def _rebuilt(kind: type[JobError], args: tuple[object, ...], state: dict[str, object]) -> JobError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error
