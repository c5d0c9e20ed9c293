"""`pool.groups`: jobs that belong together, and their results in the order they finished."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from computepool.protocol.groups import GroupPage, GroupRequest, GroupView, ResultPage
from computepool.protocol.jobs import JobResult
from computepool.sdk.options import validated
from computepool.sdk.paging import PAGE_MAX, pages
from computepool.sdk.transport import WAIT_MS, Transport

Groups: TypeAlias = list[GroupView]


class GroupApi:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, name: str, *, kind: str = "group") -> GroupView:
        request = validated(GroupRequest, name=name, kind=kind)
        return self._transport.post("/groups", GroupView, body=request)

    def list(self, *, kind: str | None = None, limit: int = 100) -> Groups:
        found = pages(self._transport, "/groups", GroupPage, limit=limit, params={"kind": kind})
        return [group for page in found for group in page.groups][:limit]

    def get(self, group_id: str) -> GroupView:
        return self._transport.get(f"/groups/{group_id}", GroupView)

    def results(self, group_id: str, *, follow: bool = False, after: int = 0) -> Iterator[JobResult]:
        """Finished jobs; with `follow` until none is open."""
        wait_ms = 0
        while True:
            page = self._transport.get(
                f"/groups/{group_id}/results",
                ResultPage,
                params={"after": after, "limit": PAGE_MAX},
                wait_ms=wait_ms,
            )
            yield from page.results
            after = page.cursor
            if not page.results and not (follow and page.open):
                return
            # How many are open is told with an empty page alone, so the one after a full page must come at once.
            wait_ms = 0 if page.results else WAIT_MS

    def cancel(self, group_id: str) -> GroupView:
        return self._transport.post(f"/groups/{group_id}/cancel", GroupView)
