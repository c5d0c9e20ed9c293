"""Fleets of given nodes, and what is placed on them."""

from __future__ import annotations

from computepool.core.fleet.fleet import Fleet
from computepool.core.money.market import Market
from computepool.core.placement.allocator import place
from computepool.core.resources import NodeProfile, Shape


def fleet_of(*profiles: NodeProfile, market: Market | None = None) -> Fleet:
    fleet = Fleet()
    if market is not None:
        fleet.set_prices(market)
    for profile in profiles:
        fleet.upsert(profile)
    return fleet


def chosen(fleet: Fleet, wanted: Shape, count: int = 1) -> list[str]:
    return [placement.node_id for placement in place(fleet, wanted, count)]
