"""The market: one posted price for each zone, moved by demand. Floors and ceilings decide who takes part, never the price."""

from __future__ import annotations

from dataclasses import dataclass

from computepool.core.pricing import PriceTable, Zone, price_of, units_of, zone_of
from computepool.core.resources import NodeProfile, Shape


@dataclass(frozen=True, slots=True)
class Offer:
    """What one job would cost on one node now, and how that comes about."""

    zone: Zone
    spot: int  #: per unit-hour
    units: int  #: thousandths
    price: int  #: per hour for the job; 0 on the submitter's own node


class Market:
    """The prices in force. Soft state: the store keeps them, this is what the hub computes with."""

    def __init__(self, table: PriceTable) -> None:
        self.table = table
        self.spots: dict[Zone, int] = {}

    def spot(self, zone: Zone) -> int:
        """Per unit-hour; the reference until the zone's first tick."""
        low, high = self.table.bounds(zone)
        return max(low, min(high, self.spots.get(zone, self.table.reference(zone))))

    def offer(self, shape: Shape, node: NodeProfile) -> Offer:
        wanted, capacity = shape.requirements, node.capacity
        zone = zone_of(wanted, node_tier=capacity.tier, node_region=node.region)
        units = units_of(wanted, card_mb=max((gpu.vram_mb for gpu in capacity.gpus), default=0))
        spot = self.spot(zone)
        price = 0 if node.owner == shape.account else price_of(spot, units)
        return Offer(zone, spot, units, price)
