"""Errors of the SDK: the hub's errors, under the hub's own classes; and jobs that ended without a result.

ComputePoolError
├── BadRequest, Unauthenticated, Forbidden, NotFound, Conflict, Gone, TooLarge, RateLimited,
│   InsufficientCredits, OutOfSpace, QuotaExceeded, InvariantViolation     raised by the hub (core/errors.py)
├── Unavailable                        the hub answers, but cannot handle the request now
│   └── HubUnreachable                 the hub does not answer
├── ChecksumMismatch                   the transferred bytes do not match their SHA-256
└── JobError                           the job ended without a result; has job_id, reason, exit_code
    ├── JobFailed                      it failed; remote_error is the traceback of a function
    ├── JobCancelled                   also a concurrent.futures.CancelledError
    ├── JobExpired                     no node could run it before its time to live ended
    └── ResultUnreadable               it succeeded, but its result cannot be read here
"""

from __future__ import annotations

import builtins
import re
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING

from computepool.core.errors import ERRORS_BY_CODE, ComputePoolError, Unavailable
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.core.plaintext import printable

if TYPE_CHECKING:
    from computepool.protocol.accounts import Problem
    from computepool.protocol.jobs.views import JobResult


class HubUnreachable(Unavailable):
    """The hub cannot be reached."""

    code = "unreachable"


class ChecksumMismatch(ComputePoolError):
    """The received data does not match its SHA-256."""

    code = "checksum_mismatch"


class JobError(ComputePoolError):
    """The job ended without a result."""

    code = "job_error"

    def __init__(self, detail: str, *, job_id: str, reason: str = "", exit_code: int | None = None) -> None:
        super().__init__(detail)
        self.job_id = job_id
        self.reason = reason
        self.exit_code = exit_code
        #: The node's report: the traceback of a function, or the end of a script's error output.
        self.remote_error: str | None = None

    def __str__(self) -> str:
        return self.detail  # not that of the built-in exception that it may also be

    def __reduce__(self) -> tuple[object, ...]:
        """The default fails because of the keyword arguments, and errors are passed between processes."""
        return _rebuild, (getattr(self, "remote_type", None) or type(self), self.args, self.__dict__)


class JobFailed(JobError):
    """The job failed.

    If its function raised a built-in exception, the error is also of that type: `except ZeroDivisionError` catches it.
    """

    code = "job_failed"
    remote_type: type[Exception] | None = None  #: the built-in exception that the function raised


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
    """The hub's reply as an exception of the class that the hub raised."""
    error = ERRORS_BY_CODE.get(problem.code, ComputePoolError)
    return error(printable(problem.detail), field=problem.field, retry_after_s=problem.retry_after_s)


def job_error(result: JobResult) -> JobError | None:
    """Why there is no result, or None when there is one."""
    if result.state is JobState.SUCCEEDED:
        return dropped_result_error(result.job_id) if result.dropped else None
    kind = {JobState.CANCELLED: JobCancelled, JobState.EXPIRED: JobExpired}.get(result.state, JobFailed)
    if kind is JobFailed and result.reason is Reason.EXCEPTION:
        kind = _failure(_type_in(result.error or ""))
    sentence = f"Job {result.job_id} {result.state}: {result.reason.replace('_', ' ')}"
    if result.exit_code is not None:
        sentence += f" (exit code {result.exit_code})"
    if result.error:
        sentence += f"\n{printable(result.error)}{_hint(result.error)}"  # untrusted text, shown on a terminal
    error = kind(sentence, job_id=result.job_id, reason=result.reason, exit_code=result.exit_code)
    error.remote_error = result.error
    return error


def dropped_result_error(job_id: str) -> JobError:
    return ResultUnreadable(f"The result of job {job_id} is no longer kept at the hub.", job_id=job_id)


def raised_error(job_id: str, traceback: str) -> JobError:
    """The failure of one item in a bundle, as if the item had been a job of its own."""
    kind = _failure(_type_in(traceback))
    sentence = f"An item of job {job_id} failed: exception\n{printable(traceback)}{_hint(traceback)}"
    error = kind(sentence, job_id=job_id, reason=Reason.EXCEPTION)
    error.remote_error = traceback
    return error


def missing_package(error: str) -> str | None:
    """The package that the job imports and its node lacks. The text is untrusted."""
    lines = error.rstrip().splitlines()
    found = _MISSING.search(lines[-1]) if lines else None
    return None if found is None else found[1]


def missing_module_hint(name: str, *, send: str, install: str) -> str:
    """How to make the module available. A name is suggested as a package only if it is not a local module."""
    from computepool.sdk.code import dependencies

    own = dependencies.module_beside(name, Path.cwd())
    if own is not None:
        return f"{own} was not sent with the job; add it with {send.format(str(own))}."
    lacks = "The node has only the standard library and what a job lists; add the package with"
    package = dependencies.distribution_of(name)
    if package is not None:
        return f"{lacks} {install.format(package)}."
    return f"{lacks} {install.format(name)}, if that is what the package of the module is called."


def _hint(error: str) -> str:
    name = missing_package(error)
    if name is None:
        return ""
    return "\n" + missing_module_hint(name, send="inputs=[{!r}]", install="dependencies=[{!r}]")


def _type_in(traceback: str) -> type[Exception] | None:
    """The built-in exception that the last line of a traceback names, if any. The text is untrusted."""
    for line in reversed(traceback.splitlines()):
        found = _NAMED.match(line)
        if found:
            kind = getattr(builtins, found[1], None)
            return kind if isinstance(kind, type) and issubclass(kind, Exception) else None
    return None


def _failure(kind: type[Exception] | None) -> type[JobFailed]:
    """JobFailed as a subclass of `kind`, unless `kind` has a special meaning for the interpreter or for a caller."""
    if kind is None or kind.__module__ != "builtins" or issubclass(kind, _PLAIN_ONLY):
        return JobFailed
    if kind not in _failures:
        members = {"remote_type": kind, "__module__": JobFailed.__module__}
        made = type("JobFailed", (JobFailed, kind), members)
        try:
            made("probe", job_id="")
        except TypeError:  # its constructor takes other arguments
            made = JobFailed
        _failures[kind] = made
    return _failures[kind]


_failures: dict[type[Exception], type[JobFailed]] = {}
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([A-Za-z0-9_]{1,100})[.']")
_NAMED = re.compile(r"([A-Z][A-Za-z]+)(?::|$)")
_PLAIN_ONLY = (StopIteration, StopAsyncIteration, SyntaxError, MemoryError, BaseExceptionGroup, Warning)


def _rebuild(kind: type[Exception], args: tuple[object, ...], state: dict[str, object]) -> JobError:
    """`kind`: a JobError, or the built-in exception that a JobFailed also is."""
    error_type = kind if issubclass(kind, JobError) else _failure(kind)
    error = error_type.__new__(error_type, *args)
    error.args = args
    error.__dict__.update(state)
    return error
