"""The market: one posted price per zone, moved by demand. Floors and ceilings decide who takes part, never the price."""

from __future__ import annotations

from dataclasses import dataclass

from computepool.core.money.money import AMOUNT_MAX
from computepool.core.money.pricing import PPM, PriceTable, Zone, price_of, units_of, zone_of
from computepool.core.resources import CPU_TIERS, Capacity, NodeProfile, Shape

#: A zone is in balance at a demand of three quarters of its units, so that some are always free for the next job.
TARGET = (3, 4)
#: The most that one tick moves a price, which is proportional to the distance from the target. Larger steps oscillate
#: (above a half they never settle), and so does a smoothed signal, because it lags.
STEP_PPM_MAX = 50_000
#: Larger claims of card memory are clipped, so that a column can hold them.
_CARD_MB_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Offer:
    """The current price of one job on one node, with its factors."""

    zone: Zone
    spot: int  #: per unit-hour
    units: int  #: thousandths
    price: int  #: per hour for the job; 0 on the submitter's own node
    version: int  #: of the price table


def next_spot(spot: int, *, capacity: int, demand: int, bounds: tuple[int, int]) -> int:
    """The price after the next tick. Individual floors and ceilings only affect capacity and demand.

    `demand` must not include jobs that do not pay `spot`, or else the price would rise without bound.
    """
    part, whole = TARGET
    if capacity > 0:
        off_by = STEP_PPM_MAX * (whole * demand - part * capacity) // (part * capacity)
        ppm = max(-STEP_PPM_MAX, min(STEP_PPM_MAX, off_by))
    else:
        ppm = STEP_PPM_MAX if demand > 0 else 0
    moved = spot + spot * ppm // PPM
    low, high = bounds
    return max(low, min(high, max(moved, spot + 1) if ppm > 0 else moved))


class Market:
    """The current prices, in memory. The database has them, too."""

    def __init__(self, table: PriceTable) -> None:
        self.table = table
        self.spots: dict[Zone, int] = {}

    def spot(self, zone: Zone) -> int:
        """Per unit-hour. The reference price until the zone's first tick."""
        low, high = self.table.bounds(zone)
        return max(low, min(high, self.spots.get(zone, self.table.reference(zone))))

    def offer(self, shape: Shape, node: NodeProfile) -> Offer:
        needs, capacity = shape.requirements, node.capacity
        zone = zone_of(needs, capacity, region=node.region)
        units = units_of(needs, card_mb=largest_card_mb(capacity))
        spot = self.spot(zone)
        price = 0 if node.owner == shape.account else price_of(spot, units)
        return Offer(zone, spot, units, price, self.table.version)

    def floor_in(self, tier: str, *, node_tier: str, floor: int) -> int:
        """A node's floor, which is stated for its own tier, converted for jobs that pay the price of `tier`.

        Rounded up, so that an owner never gets less than the floor.
        """
        if tier == node_tier or tier not in CPU_TIERS:
            return floor
        scaled = -(-floor * self.table.tier_rate(tier) // self.table.tier_rate(node_tier))
        return min(scaled, AMOUNT_MAX)


def largest_card_mb(capacity: Capacity) -> int:
    return min(_CARD_MB_MAX, max((gpu.vram_mb for gpu in capacity.gpus), default=0))
