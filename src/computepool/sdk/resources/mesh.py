"""`pool.mesh`: the pool as a whole, for those who watch it."""

from __future__ import annotations

from collections.abc import Iterator

from computepool.protocol.nodes.mesh import Activity, ActivityPage, MeshNodes, MeshView
from computepool.sdk.client.transport import WAIT_MS, Transport


class MeshApi:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def __call__(self) -> MeshView:
        """The pool in a few numbers."""
        return self._transport.get("/mesh", MeshView)

    def nodes(self) -> MeshNodes:
        """Every node that is online, with its place on the map."""
        return self._transport.get("/mesh/nodes", MeshNodes)

    def activity(self, *, follow: bool = False, limit: int = 20) -> Iterator[Activity]:
        """What happened lately, the oldest first; with `follow` as it happens."""
        after, wait_ms = 0, 0
        while True:
            params = {"after": after, "limit": limit}
            page = self._transport.get("/mesh/activity", ActivityPage, params=params, wait_ms=wait_ms)
            yield from reversed(page.activity)
            after, wait_ms = page.cursor, WAIT_MS
            if not follow:
                return
