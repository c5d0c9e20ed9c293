"""Routes of the market: prices by zone, past prices, floors, and a node's earnings."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from computepool.hub.http.dependencies import HubDep, IdPath, MayProvide, Provider, SignedIn
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.money.market import market_view
from computepool.hub.nodes.owner import earnings, price_floors
from computepool.protocol.money.market import (
    FloorRequest,
    FloorView,
    MarketChart,
    MarketHistory,
    MarketView,
    NodeEarnings,
)

router = guarded_router(tags=["market"])

_TIME_MAX_MS = 2**53
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


@router.get("/market")
async def get_market(_principal: SignedIn, hub: HubDep) -> MarketView:
    """Get spot prices by zone, with capacity, demand, floors and ceilings."""
    return await market_view.show(hub)


@router.get("/market/history", responses=refuses(404))
async def get_market_history(
    _principal: SignedIn,
    hub: HubDep,
    *,
    tier: Annotated[str, Query(max_length=64, pattern=_NAME, description="cpu, or a tier of GPUs")] = "cpu",
    region: Annotated[str, Query(max_length=32, pattern="^[A-Za-z-]*$")] = "",
    since_ms: Annotated[
        int | None, Query(ge=0, le=_TIME_MAX_MS, description="Start of the range; one day ago by default")
    ] = None,
    step_ms: Annotated[
        int | None, Query(ge=1, le=_TIME_MAX_MS, description="Distance of the points; widened to at most 1000 points")
    ] = None,
) -> MarketHistory:
    """Get the spot price of one zone over time."""
    return await market_view.history(hub, tier=tier, region=region, since_ms=since_ms, step_ms=step_ms)


@router.get("/market/chart")
async def get_market_chart(
    _principal: SignedIn, hub: HubDep, span: Annotated[market_view.Span, Query(description="How far back")] = "24h"
) -> MarketChart:
    """Get the price history of every zone in one reply."""
    return await market_view.chart(hub, span)


@router.get("/market/floor")
async def get_default_floor(principal: Provider, hub: HubDep) -> FloorView:
    """Get the default floor of your nodes."""
    return await price_floors.get_default(hub, principal)


@router.put("/market/floor", responses=refuses(409))
async def set_default_floor(body: FloorRequest, principal: Provider, hub: HubDep) -> FloorView:
    """Set the default floor of your nodes."""
    return await price_floors.set_default(hub, principal, body.floor)


@router.put("/nodes/{node_id}/floor", responses=refuses(404, 409))
async def set_node_floor(node_id: IdPath, body: FloorRequest, principal: MayProvide, hub: HubDep) -> FloorView:
    """Set the lowest price at which your node takes other people's jobs."""
    return await price_floors.set_node(hub, principal, node_id, floor=body.floor)


@router.get("/nodes/{node_id}/earnings", responses=refuses(404))
async def get_node_earnings(node_id: IdPath, principal: SignedIn, hub: HubDep) -> NodeEarnings:
    """Get what your node would earn now, and what it earned."""
    return await earnings.of_node(hub, principal, node_id)
