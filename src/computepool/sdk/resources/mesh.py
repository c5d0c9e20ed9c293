"""`pool.mesh`: the pool as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from computepool.protocol.nodes.mesh import Activity, ActivityPage, MeshNodes, MeshView
from computepool.sdk.client.resource import Resource
from computepool.sdk.client.transport import WAIT_MS


class MeshApi(Resource):
    def __call__(self) -> MeshView:
        """Key figures of the pool."""
        return self._transport.get("/mesh", MeshView)

    def nodes(self) -> MeshNodes:
        """All online nodes with their location."""
        return self._transport.get("/mesh/nodes", MeshNodes)

    def activity(self, *, follow: bool = False, limit: int = 20) -> Iterator[Activity]:
        """Recent activity, oldest first; with `follow`, wait for more."""
        after, wait_ms = 0, 0
        while True:
            params = {"after": after, "limit": limit}
            page = self._transport.get("/mesh/activity", ActivityPage, params=params, wait_ms=wait_ms)
            yield from reversed(page.activity)
            after, wait_ms = page.cursor, WAIT_MS
            if not follow:
                return
