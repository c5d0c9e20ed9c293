"""The cost limits of a submission: its default ceiling, and the money set aside for it.

The submitter learns both before anything runs, and nothing that happens afterwards can make a job cost more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from computepool.core.errors import BadRequest
from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import cards_needed
from computepool.core.money.market import Market
from computepool.core.money.money import AMOUNT_MAX, format_credits
from computepool.core.money.pricing import PriceTable, Zone, charge_of, price_of, units_of
from computepool.core.placement.gates import could_run
from computepool.core.resources import CPU_TIER, CPU_TIERS, UNKNOWN_GPU_TIER, Requirements, Shape
from computepool.core.trust.verification import NO_CHECKS, VerificationPolicy

#: The default ceiling lets the price double before the job starts.
HEADROOM = 2
#: Shapes whose places are remembered.
PLACES_MAX = 4_096
#: From this many nodes on, evaluating all of them noticeably delays a submission, so the places may be a moment old.
LARGE_FLEET = 2_000
LARGE_FLEET_AGE_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a submission agrees to, in microcredits."""

    ceiling: int  #: per hour, for one job
    hold_each: int
    hold_total: int
    policy: VerificationPolicy = NO_CHECKS  #: the hold pays for all runs that it may require
    own_node: bool = False  #: one of the submitter's own nodes could run it for free


def agree(
    *, ceiling: int, timeout_ms: int, items: int, budget: int | None, policy: VerificationPolicy = NO_CHECKS
) -> Terms:
    """The most that each job can cost, or its equal share of the budget if that is less.

    Verification may require several runs of a job, each of which is paid for.
    """
    each = charge_of(ceiling, timeout_ms) * policy.runs
    if budget is not None and budget // items < each:
        each = budget // items
        if not each:
            raise BadRequest(
                f"A budget of {format_credits(budget)} credits leaves nothing for each of {items} jobs.", field="budget"
            )
    if each * items > AMOUNT_MAX:
        raise BadRequest(
            "This could cost more than one transfer may move; name a lower ceiling, a shorter timeout or a budget.",
            field="max_price",
        )
    return Terms(ceiling=ceiling, hold_each=each, hold_total=each * items, policy=policy)


def default_ceiling(market: Market, places: Iterable[tuple[Zone, int]]) -> int:
    """About twice the highest current price of the places, but no more than the price can ever reach there."""
    return max(
        (
            min(_round_up(HEADROOM * price_of(market.spot(zone), units)), price_of(market.table.bounds(zone)[1], units))
            for zone, units in places
        ),
        default=0,
    )


def _round_up(amount: int) -> int:
    """To two digits. So jobs of one kind keep one shape while the price drifts, and the number is readable."""
    step = int("1".ljust(len(str(amount)) - 1, "0"))
    return -(-amount // step) * step


def places_at(fleet: Fleet, needs: Requirements, rows: NDArray[np.intp]) -> dict[Zone, int]:
    """The zones of these nodes, each with the most units that the job would take there."""
    side = fleet.prices.side(cards=cards_needed(needs))
    zones, units = side.zones(), side.units(needs)
    places: dict[Zone, int] = {}
    for number in np.flatnonzero(np.bincount(side.classes[rows])).tolist():
        places[zones[number]] = max(units[number], places.get(zones[number], 0))
    return places


def likely_places(market: Market, needs: Requirements) -> dict[Zone, int]:
    """Zones for a job that no connected node could run: those with a price, or else those that it requires."""
    units = units_of(needs)
    cpu = not cards_needed(needs)
    tiers = {CPU_TIER} if cpu else needs.tiers
    priced = {
        zone: units
        for zone in market.spots
        if (zone.tier in tiers if tiers else zone.tier not in CPU_TIERS)
        and (not needs.regions or zone.region in needs.regions)
    }
    if priced:
        return priced
    zones = [Zone(tier, region) for tier in tiers or {UNKNOWN_GPU_TIER} for region in needs.regions or {""}]
    return dict.fromkeys(zones, units)


@dataclass(slots=True)
class _Known:
    version: int  #: of the fleet
    at_ms: int
    places: Mapping[Zone, int]  #: empty if no node could run it
    own: bool  #: one of the submitter's own nodes could run it
    table: PriceTable | None = None
    spots: list[int | None] = field(default_factory=list)  #: prices of the places when the ceiling was computed
    ceiling: int = 0


class Ceilings:
    """Default ceilings, cached per shape: the places until the fleet changes, the ceiling until prices change."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Requirements, str], _Known] = OrderedDict()

    def find(self, fleet: Fleet, market: Market, needs: Requirements, *, account: str, now_ms: int) -> int:
        known = self._places(fleet, needs, account, now_ms=now_ms)
        if not known.places:
            # Right after a start no node is connected yet, but the prices of the zones are known.
            return default_ceiling(market, likely_places(market, needs).items())
        spots = [market.spots.get(zone) for zone in known.places]
        if known.table is not market.table or known.spots != spots:
            known.ceiling = default_ceiling(market, known.places.items())
            known.table, known.spots = market.table, spots
        return known.ceiling

    def has_own(self, fleet: Fleet, needs: Requirements, *, account: str, now_ms: int) -> bool:
        """Whether one of the submitter's own connected nodes could run it for free."""
        return self._places(fleet, needs, account, now_ms=now_ms).own

    def is_possible(self, fleet: Fleet, needs: Requirements, *, account: str, now_ms: int) -> bool:
        """Whether a connected node could run it once it is idle."""
        return bool(self._places(fleet, needs, account, now_ms=now_ms).places)

    def _places(self, fleet: Fleet, needs: Requirements, account: str, *, now_ms: int) -> _Known:
        key = (needs, account)
        known = self._known.get(key)
        if known is not None:
            recent = len(fleet) >= LARGE_FLEET and 0 <= now_ms - known.at_ms < LARGE_FLEET_AGE_MS
            if known.version == fleet.version or recent:
                return known
        rows = np.flatnonzero(could_run(fleet, Shape(needs, account), slice(0, fleet.rows)))
        own = bool(fleet.owner_mask(account, rows).any())
        known = _Known(fleet.version, now_ms, places_at(fleet, needs, rows), own)
        self._known[key] = known
        self._known.move_to_end(key)
        if len(self._known) > PLACES_MAX:
            self._known.popitem(last=False)
        return known
