"""The cost limit of a submission: the ceiling it gets when it names none, and the money set aside for it.

The submitter learns both before anything runs; nothing that happens afterwards can make a job cost more.
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

#: Who names no ceiling accepts the price to double before the job starts.
HEADROOM = 2
#: Shapes whose places are remembered.
PLACES_MAX = 4_096
#: From so many nodes on, looking at all of them for a submission is felt; then the places may be a moment old.
LARGE_FLEET = 2_000
LARGE_FLEET_AGE_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a submission agrees to. Microcredits."""

    ceiling: int  #: per hour, for one job
    hold_each: int
    hold_total: int
    policy: VerificationPolicy = NO_CHECKS  #: the hold pays for all the runs that it may take
    own_node: bool = False  #: a node of the submitter's could run it, for nothing


def agree(
    *, ceiling: int, timeout_ms: int, items: int, budget: int | None, policy: VerificationPolicy = NO_CHECKS
) -> Terms:
    """The most each job can cost, or its equal share of the budget if that is less.

    It may have to be run, and paid for, several times until its result is believed.
    """
    each = charge_of(ceiling, timeout_ms) * policy.runs
    if budget is not None and budget // items < each:
        each = budget // items
        if not each:
            raise BadRequest(
                f"A budget of {format_credits(budget)} credits leaves nothing for each of {items} jobs.",
                field="budget",
            )
    if each * items > AMOUNT_MAX:
        raise BadRequest(
            "This could cost more than one transfer may move; name a lower ceiling, a shorter timeout or a budget.",
            field="max_price",
        )
    return Terms(ceiling=ceiling, hold_each=each, hold_total=each * items, policy=policy)


def default_ceiling(market: Market, places: Iterable[tuple[Zone, int]]) -> int:
    """About twice the highest price in one of the places now, and no more than a price can ever become there."""
    return max(
        (
            min(
                _rounded_up(HEADROOM * price_of(market.spot(zone), units)),
                price_of(market.table.bounds(zone)[1], units),
            )
            for zone, units in places
        ),
        default=0,
    )


def _rounded_up(amount: int) -> int:
    """To two digits: jobs of one kind stay one shape while the price drifts, and people can read it."""
    step = int("1".ljust(len(str(amount)) - 1, "0"))
    return -(-amount // step) * step


def places_of(fleet: Fleet, needs: Requirements, account: str) -> dict[Zone, int]:
    """Zones of the nodes that could ever run it, each with the most units that it would take there."""
    return _places_at(fleet, needs, _able_rows(fleet, needs, account))


def _able_rows(fleet: Fleet, needs: Requirements, account: str) -> NDArray[np.intp]:
    return np.flatnonzero(could_run(fleet, Shape(needs, account), slice(0, fleet.rows)))


def _places_at(fleet: Fleet, needs: Requirements, rows: NDArray[np.intp]) -> dict[Zone, int]:
    table = fleet.table
    if not rows.size:
        return {}
    if not cards_needed(needs):
        classes = np.flatnonzero(np.bincount(table.cpu_class[rows])).tolist()  # small numbers
        zones_by_class = fleet.prices.cpu.zones()
        return {zones_by_class[number]: units_of(needs) for number in classes}
    pairs = table.tier[rows].astype(np.int64) << 32 | table.region[rows]
    zones, group = np.unique(pairs, return_inverse=True)
    # The smallest of the nodes' largest cards: there a given amount of memory is the greatest share.
    cards = np.full(zones.size, np.iinfo(np.int32).max, np.int32)
    np.minimum.at(cards, group, table.vram_total[0][rows])
    return {
        Zone(fleet.words.word(pair >> 32), fleet.words.word(pair & 0xFFFFFFFF)): units_of(needs, card_mb=card)
        for pair, card in zip(zones.tolist(), cards.tolist(), strict=True)
    }


def likely_places(market: Market, needs: Requirements) -> dict[Zone, int]:
    """Where it might run when no node that could is connected: the zones that have a price, else those it asks for."""
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
    places: Mapping[Zone, int]  #: none: no node could run it
    own: bool  #: a node of the submitter's could
    able: bool  #: any node could
    table: PriceTable | None = None
    spots: list[int | None] = field(default_factory=list)  #: of the places, when the ceiling was computed
    ceiling: int = 0


class Ceilings:
    """Default ceilings, remembered per shape: places while the fleet stays the same, prices while they do."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Requirements, str], _Known] = OrderedDict()

    def find(self, fleet: Fleet, market: Market, needs: Requirements, *, account: str, now_ms: int) -> int:
        known = self._places(fleet, needs, account, now_ms=now_ms)
        if not known.places:
            # Right after a start nobody is connected yet; the prices of the zones are known.
            return default_ceiling(market, likely_places(market, needs).items())
        spots = [market.spots.get(zone) for zone in known.places]
        if known.table is not market.table or known.spots != spots:
            known.ceiling = default_ceiling(market, known.places.items())
            known.table, known.spots = market.table, spots
        return known.ceiling

    def has_own(self, fleet: Fleet, needs: Requirements, *, account: str, now_ms: int) -> bool:
        """Whether a connected node of the submitter's could run it, for nothing."""
        return self._places(fleet, needs, account, now_ms=now_ms).own

    def is_possible(self, fleet: Fleet, needs: Requirements, *, account: str, now_ms: int) -> bool:
        """Whether a connected node could run it once it is idle."""
        return self._places(fleet, needs, account, now_ms=now_ms).able

    def _places(self, fleet: Fleet, needs: Requirements, account: str, *, now_ms: int) -> _Known:
        key = (needs, account)
        known = self._known.get(key)
        if known is not None:
            slightly_old = len(fleet) >= LARGE_FLEET and 0 <= now_ms - known.at_ms < LARGE_FLEET_AGE_MS
            if known.version == fleet.version or slightly_old:
                return known
        rows = _able_rows(fleet, needs, account)
        own = bool((fleet.table.owner[rows] == fleet.accounts.find(account)).any())
        known = _Known(fleet.version, now_ms, _places_at(fleet, needs, rows), own, bool(rows.size))
        self._known[key] = known
        self._known.move_to_end(key)
        if len(self._known) > PLACES_MAX:
            self._known.popitem(last=False)
        return known
