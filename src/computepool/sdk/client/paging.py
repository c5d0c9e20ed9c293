"""Cursor pages of the hub, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from computepool.protocol.base import Page
from computepool.sdk.client.transport import Params, Transport

#: What the hub gives at most in one page.
PAGE_MAX = 500

PageModel = TypeVar("PageModel", bound=Page)


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
