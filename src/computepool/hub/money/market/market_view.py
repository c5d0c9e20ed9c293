"""Views of the market: current prices with floors and ceilings, and past prices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from computepool.core.errors import BadRequest, NotFound
from computepool.core.money.demand import ZoneCount, merge
from computepool.core.money.market import TARGET, next_spot
from computepool.core.money.pricing import PPM, Economy, PriceTable, Zone
from computepool.core.trust.tiers import region_of
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.money.market import rows as market_rows, spot_prices
from computepool.hub.money.market.rows import Count, SpotRow, SpotStep
from computepool.protocol.money.market import (
    CeilingLevel,
    FloorLevel,
    MarketChart,
    MarketHistory,
    MarketView,
    PricePoint,
    ZoneMarket,
    ZoneSeries,
)

#: Floors and ceilings shown for a zone; neighbours are merged.
LEVELS_MAX = 20
#: Six hours in quarters of an hour.
TREND_POINTS = 24
TREND_STEP_MS = 15 * 60 * 1000
_HOUR_STEPS = 4
POINTS_MAX = 1_000
POINTS_USUAL = 240
_DAY_MS = 24 * 3600 * 1000
SPANS_MS = {"1h": _DAY_MS // 24, "24h": _DAY_MS, "7d": 7 * _DAY_MS, "30d": 30 * _DAY_MS}
#: A month of ticks takes long to read, so requests within a minute share one chart.
_CHART_AGE_MS = 60_000
Span = Literal["1h", "24h", "7d", "30d"]
_ECONOMIES = {
    Economy.MARKET: "Each zone has one spot price per unit-hour (one core or one GPU), the same for everyone. Every {every} "
    "it is adjusted to supply and demand. Floors and ceilings decide who takes part; they do not set the price.",
    Economy.TIME_BANK: "A unit-hour (one core or one GPU) costs one credit everywhere. Prices do not move, and floors do not "
    "apply.",
    Economy.NONE: "This pool has no prices: jobs cost nothing, and lending earns nothing.",
}


async def show(hub: Hub) -> MarketView:
    others = await spot_prices.others_counts(hub)
    counting = await spot_prices.count(hub, {zone: found.capacity for zone, found in others.items()}, show=True)
    known = sorted({*counting.zones, *others}, key=lambda zone: (zone.tier, zone.region))
    now_ms = hub.now_ms()
    begin = now_ms - TREND_POINTS * TREND_STEP_MS
    trends = await hub.store.read(_trends, hub, known, begin=begin, until=now_ms)
    table = hub.money.market.table
    return MarketView(
        economy=table.economy.value,
        price_version=table.version,
        fee_ppm=table.fee_ppm,
        at_ms=now_ms,
        tick_ms=spot_prices.tick_ms(hub),
        trend_step_ms=TREND_STEP_MS,
        zones=[
            _zone(
                hub,
                zone,
                here=counting.zones.get(zone, ZoneCount()),
                there=others.get(zone, Count(0, 0)),
                trend=trends[zone],
            )
            for zone in known
        ],
        sentence=_ECONOMIES[table.economy].format(every=f"{spot_prices.tick_ms(hub) / 1000:g} s"),
    )


def _zone(hub: Hub, zone: Zone, *, here: ZoneCount, there: Count, trend: Sequence[int]) -> ZoneMarket:
    table, spot = hub.money.market.table, hub.money.market.spot(zone)
    low, high = hub.money.market.table.bounds(zone)
    capacity, demand = here.capacity + there.capacity, here.demand + there.demand
    return ZoneMarket(
        tier=zone.tier,
        region=zone.region,
        spot=spot,
        reference=table.reference(zone),
        low=low,
        high=high,
        hour_ago=trend[-1 - _HOUR_STEPS],
        capacity=capacity,
        demand=demand,
        utilisation_ppm=utilisation(demand, capacity),
        nodes=here.nodes,
        floors=[
            FloorLevel(floor=floor, price=price_for(table, floor), units=units)
            for floor, units in merge(sorted(here.floors.items()), LEVELS_MAX)
        ],
        ceilings=_ceilings(here.ceilings),
        trend=[*trend[:-1], spot],
        sentence=_forecast(spot, capacity=capacity, demand=demand, bounds=(low, high))
        if table.economy is Economy.MARKET
        else "",
    )


def _forecast(spot: int, *, capacity: int, demand: int, bounds: tuple[int, int]) -> str:
    """Where the price goes with the next tick, and why."""
    if not capacity and demand:
        return "Nothing is offered at this price while work waits: the price will rise."
    if not capacity:
        return "Nothing is offered at this price, and nothing waits for it: the price stays."
    target = PPM * TARGET[0] // TARGET[1]
    utilised = utilisation(demand, capacity)
    coming = next_spot(spot, capacity=capacity, demand=demand, bounds=bounds)
    side = "above" if utilised > target else "below" if utilised < target else "at"
    course = "will rise" if coming > spot else "will fall" if coming < spot else "stays"
    if course == "stays" and utilised != target:
        course = f"is already at its {'maximum' if utilised > target else 'minimum'}"
    found = f"Demand is {utilised * 100 // PPM} % of supply"
    return f"{found}, {side} the {target * 100 // PPM} % balance point; the price {course}."


def _ceilings(found: Mapping[int | None, int]) -> list[CeilingLevel]:
    """Highest first, after those without a ceiling."""
    stated = sorted(((price, units) for price, units in found.items() if price is not None), reverse=True)
    levels = [CeilingLevel(price=price, units=units) for price, units in merge(stated, LEVELS_MAX)]
    return [CeilingLevel(price=None, units=found[None]), *levels] if found.get(None) else levels


def utilisation(demand: int, capacity: int) -> int:
    """In millionths; without capacity, any demand counts as full utilisation."""
    return demand * PPM // capacity if capacity else PPM * (demand > 0)


def price_for(table: PriceTable, floor: int) -> int:
    """The lowest spot price that leaves the floor after the fee."""
    return -(-floor * PPM // (PPM - table.fee_ppm))


def _trends(
    connection: Connection, hub: Hub, zones: Iterable[Zone], *, begin: int, until: int
) -> dict[Zone, list[int]]:
    """The price at the end of each step; before the first record, the reference price."""
    rows: dict[Zone, list[SpotStep]] = defaultdict(list)
    for row in market_rows.history(connection, since=begin, until=until, step=TREND_STEP_MS):
        rows[Zone(row.tier, row.region)].append(row)
    trends = {}
    for zone in zones:
        before = market_rows.price_at(connection, zone, begin - 1)
        points = _points(before, rows[zone], since=begin, until=until, step=TREND_STEP_MS)
        blank = [hub.money.market.table.reference(zone)] * (TREND_POINTS - len(points))
        trends[zone] = blank + [point.price for point in points]
    return trends


async def history(hub: Hub, *, tier: str, region: str, since_ms: int | None, step_ms: int | None) -> MarketHistory:
    now_ms, zone = hub.now_ms(), Zone(tier, region_of(region))
    since = max(0, now_ms - _DAY_MS if since_ms is None else since_ms)
    if since >= now_ms:
        raise BadRequest("since_ms must be in the past.", field="since_ms")
    least = -(-(now_ms - since) // POINTS_MAX)
    step = max(spot_prices.tick_ms(hub), -(-(now_ms - since) // POINTS_USUAL)) if step_ms is None else step_ms
    step = max(step, least)

    def load(connection: Connection) -> tuple[SpotRow | None, list[SpotStep]]:
        before = market_rows.price_at(connection, zone, since - 1)
        return before, market_rows.history(connection, since=since, until=now_ms + 1, step=step, zone=zone)

    before, rows = await hub.store.read(load)
    if before is None and not rows:
        raise NotFound(f"No price has been recorded for {zone}. GET /market lists the zones.")
    return MarketHistory(
        tier=zone.tier,
        region=zone.region,
        step_ms=step,
        points=_points(before, rows, since=since, until=now_ms, step=step),
    )


def _points(before: SpotRow | None, rows: Sequence[SpotStep], *, since: int, until: int, step: int) -> list[PricePoint]:
    """One point a step; a step without a record repeats the last one."""
    by_step = {row.bucket: row for row in rows}
    points: list[PricePoint] = []
    held: SpotRow | SpotStep | None = before
    for number in range(-(-(until - since) // step)):
        row = by_step.get(number)
        held = row or held
        if held is None:
            continue
        points.append(
            PricePoint(
                at_ms=since + number * step,
                price=held.price,
                low=held.price if row is None else row.low,
                high=held.price if row is None else row.high,
                capacity=held.capacity,
                demand=held.demand,
            )
        )
    return points


async def chart(hub: Hub, span: Span) -> MarketChart:
    """Every zone that this hub knows."""
    now_ms, length = hub.now_ms(), SPANS_MS[span]
    step = max(spot_prices.tick_ms(hub), length // POINTS_USUAL)
    cached = hub.money.charts.get(span)
    if cached is not None and 0 <= now_ms - cached[0] < min(step, _CHART_AGE_MS):
        return cached[1]
    # Whole steps: points stay in place from one chart to the next.
    until = (now_ms // step + 1) * step
    since = until - -(-length // step) * step
    zones = sorted(hub.money.market.spots, key=lambda zone: (zone.tier, zone.region))

    def load(connection: Connection) -> list[ZoneSeries]:
        found = []
        for zone in zones:
            before = market_rows.price_at(connection, zone, since - 1)
            rows = market_rows.history(connection, since=since, until=until, step=step, zone=zone)
            if before is not None or rows:
                points = _points(before, rows, since=since, until=until, step=step)
                found.append(_columns(zone, points, steps=(until - since) // step))
        return found

    times = list(range(since, until, step))
    made = MarketChart(span=span, step_ms=step, at_ms=times, zones=await hub.store.read(load))
    if made.zones:  # else show the first price at once
        hub.money.charts[span] = now_ms, made
    return made


def _columns(zone: Zone, points: Sequence[PricePoint], *, steps: int) -> ZoneSeries:
    """Blank before the first record."""
    blank: list[int | None] = [None] * (steps - len(points))
    names = ("price", "low", "high", "capacity", "demand")
    columns = {name: blank + [getattr(point, name) for point in points] for name in names}
    utilised = blank + [utilisation(point.demand, point.capacity) for point in points]
    return ZoneSeries(tier=zone.tier, region=zone.region, utilisation_ppm=utilised, **columns)
