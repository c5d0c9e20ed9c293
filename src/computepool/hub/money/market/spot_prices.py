"""Spot prices. Every tick each hub counts its nodes and its part of the queue, and the first to write a price decides.

The price follows from the sum of what the hubs counted. It is stored with these sums, so that every price can be
recomputed; then every hub, including the one that decided, adopts what is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from computepool.core.money.demand import MarketCount
from computepool.core.money.market import next_spot
from computepool.core.money.pricing import PriceTable, Zone
from computepool.core.resources import Shape
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.money.market import rows as market_rows
from computepool.hub.money.market.rows import Count

#: How many ticks a hub's count is valid; after that the hub is considered gone.
TICKS_FRESH = 2
#: Shapes of waiting jobs that are counted, those with the most jobs first.
SHAPES_COUNTED_MAX = 512
_SHAPES_AT_ONCE = 16


def tick_ms(hub: Hub) -> int:
    return max(1, round(hub.settings.tick_s * 1000))


def fresh_since(length: int, now_ms: int) -> int:
    """The oldest tick whose counts are valid; `length`: of a tick."""
    return now_ms // length * length - TICKS_FRESH * length


async def load(hub: Hub) -> None:
    """At the start of a hub: every zone continues from its last price."""

    def last_prices(connection: Connection) -> dict[Zone, int]:
        found = {zone: market_rows.price_at(connection, zone) for zone in market_rows.zones(connection)}
        return {zone: row.price for zone, row in found.items() if row is not None}

    _adopt(hub, await hub.store.read(last_prices))


async def tick(hub: Hub) -> None:
    """Count, decide the prices that no hub has decided yet, and adopt the stored ones."""
    others = await others_counts(hub)
    counting = await count(hub, {zone: found.capacity for zone, found in others.items()})
    if not counting.zones and not others:
        return
    counts = {zone: Count(found.capacity, found.demand) for zone, found in counting.zones.items()}
    table, hub_id = hub.money.market.table, hub.process.hub_id
    _adopt(hub, await hub.store.write(_decide, counts=counts, table=table, hub_id=hub_id, length=tick_ms(hub)))


async def others_counts(hub: Hub) -> dict[Zone, Count]:
    since = fresh_since(tick_ms(hub), hub.now_ms())
    return await hub.store.read(market_rows.sum_counts, since=since, but=hub.process.hub_id)


async def count(hub: Hub, others: Mapping[Zone, int], *, show: bool = False) -> MarketCount:
    """What this hub sees now, with `show` also floors and ceilings. Yields, so that polls do not wait for a long queue."""
    counting = MarketCount(hub.nodes.registry.fleet, hub.money.market, others)
    if show:
        counting.add_floors()
    waiting = await _waiting_shapes(hub) if others else hub.jobs.queue.backlog.shapes()
    shapes = sorted(waiting.items(), key=lambda item: -item[1])[:SHAPES_COUNTED_MAX]
    for number, (shape, jobs) in enumerate(shapes):
        if number % _SHAPES_AT_ONCE == _SHAPES_AT_ONCE - 1:
            await asyncio.sleep(0)
        counting.add(shape, jobs)
        if show:
            counting.add_ceilings(shape, jobs)
    return counting


async def _waiting_shapes(hub: Hub) -> dict[Shape, int]:
    """The queue as stored: a job that another hub took stays in this hub's backlog until it tries to place it."""
    now_ms, limit = hub.now_ms(), hub.settings.backlog_max
    rows = await hub.store.read(market_rows.waiting_jobs, now_ms=now_ms, limit=limit)
    specs = await hub.jobs.specs.load({row.spec_digest for row in rows})
    found: dict[Shape, int] = {}
    for row in rows:
        shape = shape_of(specs[row.spec_digest].requirements, row.account_id, ceiling=row.ceiling)
        found[shape] = found.get(shape, 0) + row.jobs
    return found


def _adopt(hub: Hub, prices: Mapping[Zone, int]) -> None:
    """Running jobs keep the price they were leased at."""
    hub.money.market.spots.update(prices)
    hub.nodes.registry.fleet.set_prices(hub.money.market)


def _decide(tx: Tx, *, counts: Mapping[Zone, Count], table: PriceTable, hub_id: str, length: int) -> dict[Zone, int]:
    """`length`: of a tick."""
    current_tick = tx.now_ms // length * length
    market_rows.put_counts(tx, hub_id=hub_id, tick=current_tick, counts=counts)
    prices: dict[Zone, int] = {}
    for zone, total in market_rows.sum_counts(tx.connection, since=fresh_since(length, tx.now_ms)).items():
        _decide_zone(tx, zone, total=total, tick=current_tick, table=table)
        row = market_rows.price_at(tx.connection, zone)
        if row is not None:
            prices[zone] = row.price
    return prices


def _decide_zone(tx: Tx, zone: Zone, *, total: Count, tick: int, table: PriceTable) -> None:
    last = market_rows.price_at(tx.connection, zone)
    if last is not None and last.tick >= tick:
        return  # another hub was first
    before = table.reference(zone) if last is None else last.price
    price = next_spot(before, capacity=total.capacity, demand=total.demand, bounds=table.bounds(zone))
    written = None if last is None else (last.price, last.capacity, last.demand, last.price_version)
    if written != (price, total.capacity, total.demand, table.version):
        market_rows.insert_price(tx, zone, tick=tick, price=price, count=total, price_version=table.version)


async def prune(hub: Hub) -> None:
    before = hub.now_ms() - round(hub.settings.spots_keep_s * 1000)
    await hub.store.write(market_rows.prune, before=before)
