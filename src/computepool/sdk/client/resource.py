"""Base class of `pool.nodes`, `pool.jobs` and the like; validation of requests; and the lookup of names and ID prefixes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from computepool.core.errors import BadRequest
from computepool.core.ids import is_id
from computepool.protocol.base import Page
from computepool.protocol.references import Reference, ReferenceKind
from computepool.sdk.client.paging import iterate_pages
from computepool.sdk.client.sizes import SIZES
from computepool.sdk.client.transport import Params, Transport

Model = TypeVar("Model", bound=BaseModel)
PageModel = TypeVar("PageModel", bound=Page)
Row = TypeVar("Row")
#: Prefixes of IDs that are not the whole word.
_PREFIXES = {ReferenceKind.GROUP: "grp", ReferenceKind.ACCOUNT: "acc"}
#: Options by the field that they set, where removing the suffix "_s" is not enough.
_AS_WRITTEN = {field: option for option, field in SIZES.items()}
#: Pydantic's errors about numbers, in the words of this SDK.
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def validate(model: type[Model], **fields: Any) -> Model:
    """The model, or a BadRequest that names the field as the user wrote it."""
    try:
        return model(**{name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        *parents, last = first["loc"] or ("",)
        field, message = ".".join(map(str, first["loc"])), _in_words(first)
        if last == "[key]":
            field, message = ".".join(map(str, parents[:-1])), f"{parents[-1]!r} is not a valid name"
        elif field.endswith("_mb") and first["type"] in _BOUNDS:
            message += " MB"
        if not field:  # the message concerns several fields and names them
            raise BadRequest(f"{message[:1].upper()}{message[1:]}.") from error
        raise BadRequest(f"{_AS_WRITTEN.get(field) or field.removesuffix('_s')}: {message}", field=field) from error


def _in_words(error: ErrorDetails) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        bound = context[name]
        return f"must be {words} {int(bound) if bound == int(bound) else bound}"
    if kind == "literal_error":
        return f"must be {context['expected']}"
    return error["msg"].removeprefix("Value error, ")


class Resource:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _each(
        self,
        path: str,
        model: type[PageModel],
        rows: Callable[[PageModel], Sequence[Row]],
        *,
        limit: int,
        params: Params | None = None,
        after: str | None = None,
    ) -> Iterator[Row]:
        def fetch_page(cursor: Params) -> tuple[Sequence[Row], str | None]:
            page = self._transport.get(path, model, params={**(params or {}), **cursor})
            return rows(page), page.next

        return iterate_pages(fetch_page, limit=limit, after=after)

    def _post(self, path: str, reply: type[Model], request: type[BaseModel], /, **fields: Any) -> Model:
        return self._transport.post(path, reply, body=validate(request, **fields))

    def _put(self, path: str, reply: type[Model], request: type[BaseModel], /, **fields: Any) -> Model:
        return self._transport.put(path, reply, body=validate(request, **fields))


def find_id(transport: Transport, kind: ReferenceKind, word: str) -> str:
    """Resolve an ID, ID prefix, name, or `last`. A complete ID is not checked: the first call with it does that."""
    if is_id(_PREFIXES.get(kind, kind), word):
        return word
    return transport.get("/find", Reference, params={"kind": kind.value, "word": word}).id


def milliseconds(seconds: float) -> int:
    """Times are in seconds in Python and in milliseconds on the wire."""
    return round(seconds * 1000)
