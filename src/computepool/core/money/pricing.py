"""The price of a job: the versioned price table, and the whole-number arithmetic from an hourly price to a charge.

A *unit* is what a price refers to: a core for jobs without a GPU, a GPU for jobs with one. Units are counted in
thousandths, so that half a core, or a share of a GPU's memory, is a whole number, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from computepool.core.errors import BadRequest
from computepool.core.fleet.node_record import cards_needed
from computepool.core.money.money import AMOUNT_MAX, CREDIT
from computepool.core.resources import CPU_TIER, CPU_TIERS, UNKNOWN_GPU_TIER, Capacity, Requirements
from computepool.core.trust.tiers import TIER_SPEED, region_of

HOUR_MS = 3_600_000
MILLI = 1_000
PPM = 1_000_000
#: Multipliers and regional rates are stored times 100.
PERCENT = 100
#: Upper bounds for the numbers of a table, so that no product exceeds 64 bits.
PERCENT_MAX = 100_000
BASE_MAX = 1_000_000 * CREDIT

REGION_RATES: dict[str, int] = {"in": 70, "eu": 95, "us": 100, "uk": 100}
OTHER_REGIONS = 100


class Economy(StrEnum):
    """What credits mean in this pool."""

    MARKET = "market"  #: rupees, with a spot price and payouts
    TIME_BANK = "time-bank"  #: hours lent and borrowed
    NONE = "none"  #: everything is free


@dataclass(frozen=True, slots=True)
class Zone:
    """A tier in a region, which has one price."""

    tier: str
    region: str

    def __str__(self) -> str:
        return f"{self.tier}/{self.region}" if self.region else f"{self.tier} (no region)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """All factors of a price. Immutable: a change is a new version, and old bills keep theirs."""

    version: int = 1
    economy: Economy = Economy.MARKET
    base: int = 10 * CREDIT  #: microcredits for one unit-hour at 1.00 × 1.00
    tiers: Mapping[str, int] = field(default_factory=lambda: dict(TIER_SPEED))  #: multiplier × 100
    regions: Mapping[str, int] = field(default_factory=lambda: dict(REGION_RATES))  #: rate × 100
    fee_ppm: int = 200_000
    spot_range: int = 4  #: the spot price stays between reference ÷ this and reference × this
    payout_min: int = 500 * CREDIT

    def __post_init__(self) -> None:
        if not 0 <= self.base <= BASE_MAX:
            raise BadRequest(f"The base price must be between 0 and {BASE_MAX // CREDIT} credits.", field="base")
        for name, rates in (("tiers", self.tiers), ("regions", self.regions)):
            bad = next((key for key, value in rates.items() if not 0 < value <= PERCENT_MAX), None)
            if bad is not None:
                raise BadRequest(f"{name}: {bad} must be between 1 and {PERCENT_MAX} (hundredths).", field=name)
        if not 0 <= self.fee_ppm < PPM:
            raise BadRequest("The fee must be at least 0 and less than the whole.", field="fee_ppm")
        if not 1 <= self.spot_range <= 100:
            raise BadRequest("The spot range must be between 1 and 100.", field="spot_range")

    def tier_rate(self, tier: str) -> int:
        rate = self.tiers.get(tier)
        if rate is None and tier in CPU_TIERS and CPU_TIER in self.tiers:
            # The table does not contain this class of cores: scale the rate of a core by speed.
            return max(1, self.tiers[CPU_TIER] * TIER_SPEED[tier] // TIER_SPEED[CPU_TIER])
        return self.tiers.get(UNKNOWN_GPU_TIER, PERCENT) if rate is None else rate

    def region_rate(self, region: str) -> int:
        return self.regions.get(region_of(region), OTHER_REGIONS)

    def reference(self, zone: Zone) -> int:
        """Per unit-hour. The region's rate is applied here, and nowhere else."""
        return self.base * self.tier_rate(zone.tier) * self.region_rate(zone.region) // (PERCENT * PERCENT)

    def bounds(self, zone: Zone) -> tuple[int, int]:
        """The range of the spot price, clipped to amounts that fit 64 bits."""
        reference = self.reference(zone)
        return min(reference // self.spot_range, AMOUNT_MAX), min(reference * self.spot_range, AMOUNT_MAX)

    def fee_of(self, gross: int) -> int:
        """The platform's part. Rounded up, so that the owner's part and the fee add up to `gross`."""
        return gross - gross * (PPM - self.fee_ppm) // PPM

    def net_of(self, gross: int) -> int:
        return gross - self.fee_of(gross)

    @property
    def digest(self) -> str:
        """Identifies the content of the table."""
        return hashlib.sha256(to_json(self).encode()).hexdigest()


def first_table(economy: Economy) -> PriceTable:
    """The table until the operator sets another one."""
    if economy is Economy.NONE:
        return PriceTable(economy=economy, base=0, fee_ppm=0)
    if economy is Economy.TIME_BANK:
        # Every unit-hour is one credit, whatever the hardware and the region, without a fee.
        flat = dict.fromkeys(TIER_SPEED, PERCENT)
        return PriceTable(economy=economy, base=CREDIT, tiers=flat, regions={}, fee_ppm=0, spot_range=1)
    return PriceTable()


def to_json(table: PriceTable) -> str:
    return json.dumps(asdict(table), sort_keys=True)


def from_json(body: str) -> PriceTable:
    values = json.loads(body)
    return PriceTable(**(values | {"economy": Economy(values["economy"])}))


def zone_of(needs: Requirements, node: Capacity, *, region: str) -> Zone:
    """The zone whose price the job pays. A job without a GPU pays for cores, even on a node with cards."""
    return Zone(node.tier if cards_needed(needs) else node.cpu_tier, region_of(region))


def units_of(needs: Requirements, *, card_mb: int = 0) -> int:
    """Thousandths of units that the job takes. `card_mb`: size of the node's largest card; 0 counts whole cards, the maximum."""
    cards = cards_needed(needs)
    if not cards:
        return needs.cpu_milli
    if not needs.vram_mb or card_mb <= 0:
        return cards * MILLI
    share = -(-needs.vram_mb * MILLI // card_mb)
    return cards * min(MILLI, share)


def price_of(unit_price: int, units: int) -> int:
    """Per hour, for the whole job."""
    return min(AMOUNT_MAX, unit_price * units // MILLI)


def charge_of(price: int, ms: int) -> int:
    """The charge for a run, rounded down in the submitter's favour."""
    return min(AMOUNT_MAX, price * ms // HOUR_MS)


def billed_ms(*, reported_ms: int, leased_at_ms: int, accepted_at_ms: int, longest_ms: int) -> int:
    """The run time reported by the node, but no more than the hub's clock and the job's limit allow."""
    return max(0, min(reported_ms, accepted_at_ms - leased_at_ms, longest_ms))


def affordable_ms(price: int, amount: int) -> int | None:
    """How long the money lasts: the longest run whose charge does not exceed `amount`. None: without limit."""
    if price <= 0:
        return None
    return ((amount + 1) * HOUR_MS - 1) // price
