"""Wire models of the market: prices by zone, floors, and earnings of nodes. Amounts in microcredits, units in thousandths."""

from __future__ import annotations

from pydantic import Field

from computepool.protocol.base import Count, Micro, Reply, Request


class FloorLevel(Reply):
    """Units that are offered from one price upwards."""

    floor: Micro = Field(description="The least that the owner accepts for a unit-hour, after the fee")
    price: Micro = Field(description="The spot price at which that is met")
    units: Count


class CeilingLevel(Reply):
    """Units required by waiting jobs that pay at most this price."""

    price: Micro | None = Field(description="For a unit-hour; null: any price")
    units: Count


class ZoneMarket(Reply):
    """One zone. Capacity and demand are those of all hubs; nodes, floors and ceilings are those of this hub."""

    tier: str
    region: str
    spot: Micro = Field(description="For a unit-hour (of a core, or a GPU), including the fee")
    reference: Micro
    low: Micro = Field(description="The spot price never falls below this")
    high: Micro
    hour_ago: Micro
    capacity: Count = Field(description="Units that are busy, or free at a floor that is met")
    demand: Count = Field(description="Units that are busy, or required by waiting jobs whose ceiling pays the price")
    utilisation_ppm: Count = Field(
        description="Demand divided by capacity, in millionths; the price is stable at 750000"
    )
    nodes: Count
    floors: list[FloorLevel]
    ceilings: list[CeilingLevel]
    trend: list[Micro] = Field(description="The spot price in steps of `trend_step_ms`; the last is now")
    sentence: str = Field(default="", description="How the price is moving, and why; empty without a market")


class MarketView(Reply):
    economy: str
    price_version: int
    fee_ppm: int
    at_ms: int
    tick_ms: int
    trend_step_ms: int
    zones: list[ZoneMarket]
    sentence: str = Field(default="", description="The meaning of prices in this economy")


class PricePoint(Reply):
    """The time from `at_ms` until the next point."""

    at_ms: int
    price: Micro = Field(description="The last price")
    low: Micro
    high: Micro
    capacity: Count
    demand: Count


class MarketHistory(Reply):
    tier: str
    region: str
    step_ms: int
    points: list[PricePoint] = Field(description="The oldest first, from the first record on")


class ZoneSeries(Reply):
    """One zone over time. The columns are as long as `at_ms` of the chart; null before the first record."""

    tier: str
    region: str
    price: list[Micro | None] = Field(description="The last price of each step")
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
        description="Microcredits for a unit-hour of the node's own tier, after the fee; null: any price"
    )


class FloorView(Reply):
    """A floor, and its effect at current prices."""

    node_id: str | None = Field(description="null: the default for all your nodes")
    floor: Micro | None
    default: Micro | None = Field(description="The floor of nodes that have none of their own")
    nodes: Count = Field(description="Nodes with this floor")
    sentence: str


class Sale(Reply):
    """The earnings of one kind of unit of a node."""

    tier: str
    region: str
    units: Count
    spot: Micro
    floor: Micro = Field(description="For a unit-hour of this kind, after the fee; 0: none")
    in_money: bool
    per_hour: Micro = Field(description="After the fee, if all of it is busy")
    utilisation_ppm: Count = Field(description="The share of the zone's capacity that is busy now, in millionths")
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
    sales: list[Sale] = Field(description="Its GPUs first, then its cores")
    past: list[Earned]


class OwnNodeView(Reply):
    """What a node may read about itself, with its own key."""

    owner_name: str
    earnings: NodeEarnings
