"""`pool.market`: spot prices by zone, price floors of your nodes, and their earnings."""

from __future__ import annotations

from computepool.protocol.money import market as wire
from computepool.sdk.client.amounts import Credits, microcredits
from computepool.sdk.client.resource import Resource, milliseconds


class MarketApi(Resource):
    """Parameters are in credits, replies in microcredits. Units in replies are thousandths."""

    def __call__(self) -> wire.MarketView:
        """All zones with price, capacity, demand, floors and ceilings."""
        return self._transport.get("/market", wire.MarketView)

    def history(
        self, tier: str = "cpu", region: str = "", *, since: float | None = None, step: float | None = None
    ) -> wire.MarketHistory:
        """The price of one zone over time, in at most 1000 steps. Default: the last 24 hours.

        `since`: a Unix time, such as `time.time() - 7 * 86_400`; `step`: seconds between points.
        """
        params = {
            "tier": tier,
            "region": region,
            "since_ms": None if since is None else milliseconds(since),
            "step_ms": None if step is None else milliseconds(step),
        }
        return self._transport.get("/market/history", wire.MarketHistory, params=params)

    def chart(self, span: str = "24h") -> wire.MarketChart:
        """All zones over time; `span`: 1h, 24h, 7d or 30d."""
        return self._transport.get("/market/chart", wire.MarketChart, params={"span": span})

    def set_floor(self, node_id: str, floor: Credits | None) -> wire.FloorView:
        """Set the lowest price per unit-hour, after the fee, at which a node takes jobs. None: your default floor.

        >>> pool.market.set_floor("node_01h…", "6.50")
        """
        return self._transport.put(f"/nodes/{node_id}/floor", wire.FloorView, body=_request(floor))

    def default_floor(self) -> wire.FloorView:
        """The default floor, for nodes without a floor of their own."""
        return self._transport.get("/market/floor", wire.FloorView)

    def set_default_floor(self, floor: Credits | None) -> wire.FloorView:
        """Set the default floor. None: accept any price."""
        return self._transport.put("/market/floor", wire.FloorView, body=_request(floor))

    def earnings(self, node_id: str) -> wire.NodeEarnings:
        """What one of your nodes would earn at current prices, and what it has earned."""
        return self._transport.get(f"/nodes/{node_id}/earnings", wire.NodeEarnings)


def _request(floor: Credits | None) -> wire.FloorRequest:
    return wire.FloorRequest(floor=None if floor is None else microcredits(floor, what="floor"))
