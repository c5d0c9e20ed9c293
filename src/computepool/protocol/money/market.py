"""The market on the wire: prices by zone, floors, and what a node earns. Amounts are microcredits, units thousandths."""

from __future__ import annotations

from pydantic import Field

from computepool.protocol.base import Count, Micro, Reply, Request


class FloorLevel(Reply):
    """Units that are offered from one price on."""

    floor: Micro = Field(description="What the owner wants for a unit-hour, after the fee")
    price: Micro = Field(description="The spot price from which on that is paid")
    units: Count


class CeilingLevel(Reply):
    """Units that wait and pay at most this."""

    price: Micro | None = Field(description="For a unit-hour; null: whatever it costs")
    units: Count


class ZoneMarket(Reply):
    """One zone. Capacity and demand are of all hubs; nodes, floors and ceilings are what this hub sees."""

    tier: str
    region: str
    spot: Micro = Field(description="For a unit-hour (a core, or a card), the fee included")
    reference: Micro
    low: Micro = Field(description="The spot price never falls below this")
    high: Micro
    hour_ago: Micro
    capacity: Count = Field(description="Free at a floor that is met, and busy")
    demand: Count = Field(description="Busy, and waiting at a ceiling that pays")
    utilisation_ppm: Count = Field(
        description="Demand by capacity, in millionths; the price is at rest at 750000"
    )
    nodes: Count
    floors: list[FloorLevel]
    ceilings: list[CeilingLevel]
    trend: list[Micro] = Field(description="The spot price in steps of `trend_step_ms`; the last is now")
    sentence: str = Field(default="", description="What the price does now, and why; empty without a market")


class MarketView(Reply):
    economy: str
    price_version: int
    fee_ppm: int
    at_ms: int
    tick_ms: int
    trend_step_ms: int
    zones: list[ZoneMarket]
    sentence: str = Field(default="", description="What prices mean in this economy")


class PricePoint(Reply):
    """What happened from `at_ms` until the next point."""

    at_ms: int
    price: Micro = Field(description="The last")
    low: Micro
    high: Micro
    capacity: Count
    demand: Count


class MarketHistory(Reply):
    tier: str
    region: str
    step_ms: int
    points: list[PricePoint] = Field(description="The oldest first; before the first record there is none")


class ZoneSeries(Reply):
    """One zone over time: columns as long as `at_ms` of the chart; null before the first record."""

    tier: str
    region: str
    price: list[Micro | None] = Field(description="The last of each step")
    low: list[Micro | None]
    high: list[Micro | None]
    capacity: list[Count | None]
    demand: list[Count | None]
    utilisation_ppm: list[Count | None]


class MarketChart(Reply):
    span: str
    step_ms: int
    at_ms: list[int] = Field(description="When each step begins, the oldest first")
    zones: list[ZoneSeries]


class FloorRequest(Request):
    floor: Micro | None = Field(
        description="Microcredits for a unit-hour of the node's own tier, after the fee; null: any price will do"
    )


class FloorView(Reply):
    """What was set, and what it means at today's prices."""

    node_id: str | None = Field(description="null: the default for all your nodes")
    floor: Micro | None
    default: Micro | None = Field(description="What holds where a node has no floor of its own")
    nodes: Count = Field(description="Nodes for which this floor holds")
    sentence: str


class Sale(Reply):
    """What one kind of unit of a node brings."""

    tier: str
    region: str
    units: Count
    spot: Micro
    floor: Micro = Field(description="For a unit-hour of this kind, after the fee; 0: none")
    in_money: bool
    per_hour: Micro = Field(description="After the fee, if all of it is busy")
    utilisation_ppm: Count = Field(description="How much of the zone's capacity is busy now, in millionths")
    per_day: Micro = Field(description="After the fee, if it is as busy as its zone")


class Earned(Reply):
    days: int
    amount: Micro
    jobs: Count


class NodeEarnings(Reply):
    node_id: str
    name: str
    floor: Micro | None = Field(description="For a unit-hour of the node's tier, after the fee; null: none")
    floor_is_default: bool
    in_money: bool
    sentence: str
    sales: list[Sale] = Field(description="Its cards first, then its cores")
    past: list[Earned]


class OwnNodeView(Reply):
    """What a node may know of itself, by its own key."""

    owner_name: str
    earnings: NodeEarnings
