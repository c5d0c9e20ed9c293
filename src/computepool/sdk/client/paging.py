"""Cursor pages of the hub, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from computepool.sdk.client.transport import PAGE_MAX, Params, Transport
from computepool.sdk.errors import ComputePoolError

if TYPE_CHECKING:
    from computepool.protocol.base import Page

PageModel = TypeVar("PageModel", bound="Page")


def pages(
    transport: Transport, path: str, model: type[PageModel], *, limit: int, params: Params | None = None
) -> Iterator[PageModel]:
    """As many pages as `limit` rows may need; the caller counts the rows."""
    after: str | None = None
    for left in range(limit, 0, -PAGE_MAX):
        page = transport.get(
            path, model, params={**(params or {}), "after": after, "limit": min(left, PAGE_MAX)}
        )
        yield page
        after = page.next
        if after is None:
            return


def rows(transport: Transport, path: str, name: str, *, limit: int, params: Params) -> list[dict[str, Any]]:
    """A list as the hub sent it, for a program that only shows it: loading the models takes longer than asking the hub."""
    found: list[dict[str, Any]] = []
    after: str | None = None
    while len(found) < limit:  # a page of a search may be empty and not be the last
        request = {**params, "after": after, "limit": min(limit - len(found), PAGE_MAX)}
        page = transport.get_json(path, params=request)
        if not isinstance(page, dict) or name not in page:
            raise ComputePoolError(
                f"The hub's reply has no {name}; hub and client may have different versions."
            )
        found += page[name]
        after = page.get("next")
        if after is None:
            break
    return found
