"""Iteration over the hub's lists, which come in pages with a cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from computepool.core.errors import ComputePoolError
from computepool.sdk.client.transport import PAGE_MAX, Params, Transport

Row = TypeVar("Row")


def iterate_pages(
    fetch_page: Callable[[Params], tuple[Sequence[Row], str | None]], *, limit: int, after: str | None = None
) -> Iterator[Row]:
    """At most `limit` rows. `fetch_page` returns the rows of one page, and the cursor of the next page."""
    while limit > 0:  # a page of search results may be empty without being the last one
        rows, after = fetch_page({"after": after, "limit": min(limit, PAGE_MAX)})
        yield from rows[:limit]
        limit -= len(rows)
        if after is None:
            return


def raw_rows(transport: Transport, path: str, name: str, *, limit: int, params: Params) -> list[dict[str, Any]]:
    """The rows as plain JSON, for display only: importing the models takes longer than the request."""

    def fetch_page(cursor: Params) -> tuple[list[dict[str, Any]], str | None]:
        page = transport.get_json(path, params={**params, **cursor})
        if not isinstance(page, dict) or name not in page:
            raise ComputePoolError(f"The hub's reply has no {name}; hub and client may have different versions.")
        return page[name], page.get("next")

    return list(iterate_pages(fetch_page, limit=limit))
