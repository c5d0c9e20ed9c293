"""Errors as RFC 9457 problem details: a table from code to HTTP status, and a last resort for unexpected errors."""

from __future__ import annotations

import logging
import math

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from computepool.core.errors import ComputePoolError
from computepool.hub.http.policy import methods_at
from computepool.protocol.accounts import Problem

logger = logging.getLogger(__name__)

STATUS = {
    "bad_request": 422,
    "unauthenticated": 401,
    "insufficient_credits": 402,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "gone": 410,
    "too_large": 413,
    "rate_limited": 429,
    "unavailable": 503,
    "out_of_space": 507,
    "quota_exceeded": 507,
    "invariant_violation": 500,
}
_CODES_BY_STATUS = {404: "not_found", 413: "too_large"}
_ECHO_MAX = 200
_NO_ROUTE = "There is nothing at this path. Check the hub's address; its API is under /api/v1."
_TITLES = {code: code.replace("_", " ").capitalize() for code in STATUS}


def problem(
    code: str, detail: str, *, status: int | None = None, field: str | None = None, retry_after_s: float | None = None
) -> Response:
    status = status or STATUS.get(code, 500)
    body = Problem(
        title=_TITLES.get(code, "Error"),
        status=status,
        code=code,
        detail=detail,
        field=field,
        retry_after_s=retry_after_s,
    )
    headers = {} if retry_after_s is None else {"Retry-After": str(math.ceil(retry_after_s))}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(body.model_dump_json(exclude_none=True), status, headers, media_type="application/problem+json")


def error_response(path: str, error: Exception) -> Response:
    """The answer to a request whose handling ended with this error."""
    if isinstance(error, ComputePoolError):
        if error.code == "invariant_violation":
            logger.error("invariant.violated: %s", error.detail, exc_info=error)
        return problem(error.code, error.detail, field=error.field, retry_after_s=error.retry_after_s)
    if isinstance(error, RequestValidationError):
        return _validation_problem(error)
    # The traceback goes to the log; the caller learns only that something failed.
    logger.error("api.failed: %s", path, exc_info=error)
    return problem("error", "The hub failed to answer this request; its log has the details.", status=500)


def _validation_problem(error: RequestValidationError) -> Response:
    """The first error in words, with the path of its field."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        message = first.get("ctx", {}).get("error", "it cannot be read")
        return problem("bad_request", f"The body is not valid JSON: {_echo(str(message))}.")
    path = _echo(".".join(str(part) for part in first["loc"] if part not in _PLACES))
    if path == "after":
        return problem("bad_request", "The cursor is invalid; use the one from the previous page.", field=path)
    message = first["msg"].removeprefix("Value error, ")
    return problem("bad_request", f"{path or 'body'}: {_echo(message)}", field=path or None)


_PLACES = ("body", "query", "path", "header")


def _echo(text: str) -> str:
    """Text from the caller, shortened and without characters that cannot be encoded."""
    short = text if len(text) <= _ECHO_MAX else f"{text[:_ECHO_MAX]}…"
    return short.encode(errors="replace").decode()


def install(app: FastAPI) -> None:
    @app.exception_handler(ComputePoolError)
    @app.exception_handler(RequestValidationError)
    @app.exception_handler(Exception)
    async def on_error(request: Request, error: Exception) -> Response:
        return error_response(request.scope["path"], error)

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        # FastAPI answers 400 to a body that it could not read; here every invalid request is a 422.
        status = 422 if error.status_code == 400 else error.status_code
        detail = _NO_ROUTE if status == 404 else str(error.detail)
        answer = problem(_CODES_BY_STATUS.get(status, "bad_request"), detail, status=status)
        answer.headers.update(error.headers or {})
        if status == 405:
            path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
            answer.headers["Allow"] = ", ".join(methods_at(app.routes, path))
        return answer

    @app.exception_handler(ClientDisconnect)
    async def on_disconnect(_request: Request, _error: ClientDisconnect) -> Response:
        return Response(status_code=499)  # nobody reads it
