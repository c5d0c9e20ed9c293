"""Routes of the price table: what holds, what held, and a new version by the operator."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Path

from computepool.hub.http.dependencies import Admin, HubDep, SignedIn
from computepool.hub.http.guard import guarded
from computepool.hub.http.openapi import examples
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.money import prices
from computepool.protocol.money.credits import PricesRequest, PriceTableView, PriceVersions

router = guarded()


@router.get("/prices", tags=["prices"], summary="The price table in force")
async def get_prices(_caller: SignedIn, hub: HubDep) -> PriceTableView:
    return await prices.show(hub)


@router.get("/prices/versions", tags=["prices"], summary="Every version there was, newest first")
async def list_price_versions(_caller: SignedIn, hub: HubDep) -> PriceVersions:
    return await prices.history(hub)


@router.get(
    "/prices/{version}", tags=["prices"], summary="One version of the price table", responses=refuses(404)
)
async def get_price_version(
    version: Annotated[int, Path(ge=1, le=2**31 - 1)], _caller: SignedIn, hub: HubDep
) -> PriceTableView:
    return await prices.show(hub, version)


@router.put(
    "/prices", tags=["prices"], summary="Put a new version of the prices in force", responses=refuses(409)
)
async def change_prices(
    body: Annotated[PricesRequest, Body(openapi_examples=examples.PRICES)], admin: Admin, hub: HubDep
) -> PriceTableView:
    return await prices.change(hub, admin, body)
