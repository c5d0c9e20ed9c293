"""The spot prices: every tick each hub counts its nodes and its part of the queue, and the first to say so decides.

The price comes from the sum of what the hubs counted. It is written with these sums, so that every price can be
computed again; then every hub, also the one that decided, takes over what is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from computepool.core.money.demand import Counting
from computepool.core.money.market import next_spot, spot_bounds
from computepool.core.money.pricing import PriceTable, Zone
from computepool.core.resources import Shape
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.money.market import rows as market_rows
from computepool.hub.money.market.rows import Count

#: What a hub counted is worth something for so many ticks; then it is taken to be gone.
TICKS_FRESH = 2
#: Waiting shapes that are counted, those with the most jobs first.
SHAPES_COUNTED_MAX = 512
_SHAPES_AT_ONCE = 16


def tick_ms(hub: Hub) -> int:
    return max(1, round(hub.settings.tick_s * 1000))


def fresh_since(length: int, now_ms: int) -> int:
    """The oldest tick whose counts are still taken; `length`: of a tick."""
    return now_ms // length * length - TICKS_FRESH * length


async def load(hub: Hub) -> None:
    """After a start: every zone goes on where it stopped."""

    def last_prices(connection: Connection) -> dict[Zone, int]:
        found = {zone: market_rows.price_at(connection, zone) for zone in market_rows.zones(connection)}
        return {zone: row.price for zone, row in found.items() if row is not None}

    take_over(hub, await hub.store.read(last_prices))


async def tick(hub: Hub) -> None:
    """Count, decide what nobody decided yet, and take over what holds."""
    others = await others_counts(hub)
    counting = await count(hub, {zone: found.capacity for zone, found in others.items()})
    if not counting.zones and not others:
        return
    counts = {zone: Count(found.capacity, found.demand) for zone, found in counting.zones.items()}
    table = hub.money.market.table
    unit = partial(_decide, counts=counts, table=table, hub_id=hub.process.hub_id, length=tick_ms(hub))
    take_over(hub, await hub.store.write(unit))


async def others_counts(hub: Hub) -> dict[Zone, Count]:
    since = fresh_since(tick_ms(hub), hub.now_ms())
    return await hub.store.read(
        lambda connection: market_rows.sum_counts(connection, since=since, but=hub.process.hub_id)
    )


async def count(hub: Hub, others: Mapping[Zone, int], *, show: bool = False) -> Counting:
    """What this hub sees now; with `show` also floors and ceilings. Polls must not wait for a long queue."""
    counting = Counting(hub.nodes.registry.fleet, hub.money.market, others)
    if show:
        counting.show_floors()
    waiting = await _waiting(hub) if others else hub.jobs.queue.backlog.shapes()
    shapes = sorted(waiting.items(), key=lambda item: -item[1])[:SHAPES_COUNTED_MAX]
    for number, (shape, jobs) in enumerate(shapes):
        if number % _SHAPES_AT_ONCE == _SHAPES_AT_ONCE - 1:
            await asyncio.sleep(0)
        counting.add(shape, jobs)
        if show:
            counting.show(shape, jobs)
    return counting


async def _waiting(hub: Hub) -> dict[Shape, int]:
    """The queue by the store's word: what another hub took stays in our backlog until we try to place it."""
    now_ms, limit = hub.now_ms(), hub.settings.backlog_max
    rows = await hub.store.read(
        lambda connection: market_rows.waiting(connection, now_ms=now_ms, limit=limit)
    )
    specs = await hub.jobs.specs.load({row.spec_digest for row in rows})
    found: dict[Shape, int] = {}
    for row in rows:
        shape = shape_of(specs[row.spec_digest].requirements, row.account_id, ceiling=row.ceiling)
        found[shape] = found.get(shape, 0) + row.jobs
    return found


def take_over(hub: Hub, prices: Mapping[Zone, int]) -> None:
    """Jobs that run keep the price they were leased at."""
    hub.money.market.spots.update(prices)
    hub.nodes.registry.fleet.set_prices(hub.money.market)


def _decide(
    tx: Tx, *, counts: Mapping[Zone, Count], table: PriceTable, hub_id: str, length: int
) -> dict[Zone, int]:
    """`length`: of a tick."""
    now = tx.now_ms // length * length
    market_rows.put_counts(tx, hub_id=hub_id, tick=now, counts=counts)
    prices: dict[Zone, int] = {}
    for zone, total in market_rows.sum_counts(tx.connection, since=fresh_since(length, tx.now_ms)).items():
        _decide_zone(tx, zone, total=total, now=now, table=table)
        row = market_rows.price_at(tx.connection, zone)
        if row is not None:
            prices[zone] = row.price
    return prices


def _decide_zone(tx: Tx, zone: Zone, *, total: Count, now: int, table: PriceTable) -> None:
    last = market_rows.price_at(tx.connection, zone)
    if last is not None and last.tick >= now:
        return  # another hub was first
    before = table.reference(zone) if last is None else last.price
    price = next_spot(before, capacity=total.capacity, demand=total.demand, bounds=spot_bounds(table, zone))
    written = None if last is None else (last.price, last.capacity, last.demand, last.price_version)
    if written != (price, total.capacity, total.demand, table.version):
        market_rows.insert_price(tx, zone, tick=now, price=price, count=total, price_version=table.version)


async def prune(hub: Hub) -> None:
    before = hub.now_ms() - round(hub.settings.spots_keep_s * 1000)
    await hub.store.write(lambda tx: market_rows.prune(tx, before=before))
