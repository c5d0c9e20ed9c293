"""Documentation of errors: every error is answered as `application/problem+json` with the same schema."""

from __future__ import annotations

from typing import Any

PROBLEM = "application/problem+json"
_SCHEMA = {"$ref": "#/components/schemas/Problem"}

#: status → (code, meaning, an example of `detail`)
_MEANINGS: dict[int, tuple[str, str, str]] = {
    401: ("unauthenticated", "No valid key, cookie or node token", "This key is not known to the hub."),
    402: ("insufficient_credits", "Not enough credits", "16.00 credits must be put on hold; 4.00 are missing."),
    403: ("forbidden", "Not allowed", "This needs the role submitter; ask the hub's operator for it."),
    404: ("not_found", "There is no such object, or it is not yours", "There is no such job, or it is not yours."),
    409: ("conflict", "The object is not in the state the request assumes", "The job is not finished: it is queued."),
    413: ("too_large", "A size limit was exceeded", "A request body may have 8388608 bytes at most."),
    416: ("bad_request", "No such range", "The artifact has 10 bytes; the requested range is not among them."),
    422: ("bad_request", "The request cannot be honoured as written", "spec.needs.cores: Input should be less than …"),
    429: ("rate_limited", "Too many; try again later", "An account may have 1000000 unfinished jobs at once."),
    503: ("unavailable", "The hub cannot answer right now; see Retry-After", "The hub is stopping."),
    507: (
        "quota_exceeded",
        "The account's storage quota is used up (quota_exceeded), or the hub's disk is full (out_of_space)",
        "Your account stores 1.1 TB of files and job data and may store 1.1 TB. There is no room for another 3.2 GB.",
    ),
}


def refuses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route: the errors that are not common to all routes of its kind."""
    return {status: response(status) for status in statuses}


def response(status: int) -> dict[str, Any]:
    code, description, detail = _MEANINGS[status]
    title = code.replace("_", " ").capitalize()
    example = {"type": "about:blank", "title": title, "status": status, "code": code, "detail": detail}
    found: dict[str, Any] = {"description": description, "content": {PROBLEM: {"schema": _SCHEMA, "example": example}}}
    if status in (429, 503):
        retry = {"description": "Seconds to wait", "schema": {"type": "integer"}}
        found["headers"] = {"Retry-After": retry}
    return found
