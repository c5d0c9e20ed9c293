"""The error classes. `code` is stable and part of the wire format: the hub maps it to an HTTP status, the SDK maps it back.

A class's docstring is the message that people read if none is given.
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
    """This is no longer available."""

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
    """Your account has used up its storage quota at the hub."""

    code = "quota_exceeded"


class InvariantViolation(ComputePoolError):
    """A rule that must always hold is broken. The transaction is rolled back."""  # never caught

    code = "invariant_violation"


ERRORS_BY_CODE = {error.code: error for error in ComputePoolError.__subclasses__()}
