"""Base class of `pool.nodes`, `pool.jobs` and the like; and the lookup of names and ID prefixes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from computepool.core.ids import is_id
from computepool.protocol.base import Page
from computepool.protocol.references import Reference, ReferenceKind
from computepool.sdk.client.paging import iterate_pages
from computepool.sdk.client.transport import Params, Transport

PageModel = TypeVar("PageModel", bound=Page)
Row = TypeVar("Row")
_PREFIXES = {
    ReferenceKind.JOB: "job",
    ReferenceKind.NODE: "node",
    ReferenceKind.GROUP: "grp",
    ReferenceKind.ACCOUNT: "acc",
}


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


def find_id(transport: Transport, kind: ReferenceKind, word: str) -> str:
    """Resolve an ID, ID prefix, name, or `last`. A complete ID is not checked: the first call with it does that."""
    if is_id(_PREFIXES[kind], word):
        return word
    return transport.get("/find", Reference, params={"kind": kind.value, "word": word}).id
