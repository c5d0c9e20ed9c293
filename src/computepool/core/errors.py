"""The error tree. `code` is stable and crosses the wire; the hub maps it to an HTTP status, the SDK maps it back.

ComputePoolError
├── BadRequest            bad_request          the request cannot be honoured as written
├── Unauthenticated       unauthenticated      no valid key, cookie or node token
├── Forbidden             forbidden            signed in, but not allowed to do this
├── NotFound              not_found            no such object, or not visible to you
├── Conflict              conflict             the object is no longer in the state the request assumed
├── Gone                  gone                 it was there, and was cancelled or withdrawn
├── TooLarge              too_large            a named limit was exceeded
├── RateLimited           rate_limited         too many requests; carries retry_after_s
├── Unavailable           unavailable          the hub cannot answer right now; carries retry_after_s
├── InsufficientCredits   insufficient_credits not enough credits for this; says how many are missing
├── OutOfSpace            out_of_space         the hub's disk is full
├── QuotaExceeded         quota_exceeded       the account keeps as much as it may; says how much that is
└── InvariantViolation    invariant_violation  a rule that must always hold does not: never caught, rolls back
"""

from __future__ import annotations

from typing import ClassVar


class ComputePoolError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"

    def __init__(
        self, detail: str | None = None, *, field: str | None = None, retry_after_s: float | None = None
    ) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip()
        self.field = field
        self.retry_after_s = retry_after_s
        super().__init__(self.detail)


class BadRequest(ComputePoolError):
    """The request cannot be honoured as written."""

    code = "bad_request"


class Unauthenticated(ComputePoolError):
    """Sign in first: `pool login`, or send a valid API key."""

    code = "unauthenticated"


class Forbidden(ComputePoolError):
    """Your account may not do this."""

    code = "forbidden"


class NotFound(ComputePoolError):
    """There is no such object, or it is not visible to you."""

    code = "not_found"


class Conflict(ComputePoolError):
    """The object is no longer in the state this request assumed."""

    code = "conflict"


class Gone(ComputePoolError):
    """It was withdrawn."""

    code = "gone"


class TooLarge(ComputePoolError):
    """A size limit was exceeded."""

    code = "too_large"


class RateLimited(ComputePoolError):
    """Too many requests; try again later."""

    code = "rate_limited"


class Unavailable(ComputePoolError):
    """The hub cannot answer right now; try again later."""

    code = "unavailable"


class InsufficientCredits(ComputePoolError):
    """You do not have enough credits for this."""

    code = "insufficient_credits"


class OutOfSpace(ComputePoolError):
    """The hub has no disk space left for this."""

    code = "out_of_space"


class QuotaExceeded(ComputePoolError):
    """Your account keeps as many bytes at the hub as it may."""

    code = "quota_exceeded"


class InvariantViolation(ComputePoolError):
    """A rule that must always hold does not. The transaction is rolled back."""

    code = "invariant_violation"


ERRORS_BY_CODE: dict[str, type[ComputePoolError]] = {
    error.code: error
    for error in (
        BadRequest,
        Unauthenticated,
        Forbidden,
        NotFound,
        Conflict,
        Gone,
        TooLarge,
        RateLimited,
        Unavailable,
        InsufficientCredits,
        OutOfSpace,
        QuotaExceeded,
        InvariantViolation,
    )
}
