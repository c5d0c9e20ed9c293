"""The market's rules a second time, as fleet_oracle.py uses them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

from computepool.core.money.money import AMOUNT_MAX
from computepool.core.money.pricing import PriceTable
from computepool.core.resources import Gpu, Requirements, Shape

if TYPE_CHECKING:
    from tests.core.fleet_oracle import PlainNode

REGIONS = {"in": "in", "india": "in", "DE": "eu", "fr": "eu", "eu": "eu", "us": "us", "": ""}


@dataclass
class PlainPrices:
    """A market as the oracle keeps it."""

    table: PriceTable
    spots: dict[tuple[str, str], int]

    def spot(self, tier: str, region: str) -> int:
        table = self.table
        rates = table.tiers.get(tier, table.tiers["gpu"]) * table.regions.get(region, 100)
        reference = table.base * rates // 10_000
        wanted = self.spots.get((tier, region), reference)
        return min(AMOUNT_MAX, max(reference // table.spot_range, min(reference * table.spot_range, wanted)))

    def accepts(self, node: PlainNode, shape: Shape) -> bool:
        """Floor and ceiling meet at the spot price. In fractions, so that nothing is rounded by accident."""
        profile, wanted = node.profile, shape.requirements
        if profile.owner == shape.account:
            return True
        cards = wanted.gpus if wanted.gpus else (1 if wanted.vram_mb else 0)
        best = max(profile.capacity.gpus, key=lambda gpu: gpu.vram_mb, default=None)
        own_tier = best.tier if best else "cpu"
        floor = Fraction(node.floor or 0)
        if not cards:
            rates = self.table.tiers
            floor *= Fraction(rates["cpu"], rates.get(own_tier, rates["gpu"]))
        spot = self.spot(own_tier if cards else "cpu", REGIONS[profile.region])
        if floor > spot * (1_000_000 - self.table.fee_ppm) // 1_000_000:
            return False
        return shape.ceiling is None or self.price(spot, wanted, best) <= shape.ceiling

    @staticmethod
    def price(spot: int, wanted: Requirements, best: Gpu | None) -> int:
        if not wanted.gpus and not wanted.vram_mb:
            thousandths = wanted.cpu_milli
        elif not wanted.vram_mb or best is None:
            thousandths = 1_000 * max(1, wanted.gpus)
        else:
            share = min(1_000, ceil(Fraction(1_000 * wanted.vram_mb, best.vram_mb)))
            thousandths = max(1, wanted.gpus) * share
        return min(AMOUNT_MAX, spot * thousandths // 1_000)
