"""Supply and demand of every zone, in thousandths of units, from one hub's fleet and queue.

Offered units count if their floor is met. Busy units count as both supply and demand. Waiting jobs count if they pay the
current price. A job that may run in several zones is divided among them in proportion to their capacity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.features import Mask
from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import cards_needed
from computepool.core.isolation import Level
from computepool.core.money.market import Market
from computepool.core.money.pricing import MILLI, Zone, price_of, units_of
from computepool.core.placement.allocator import able
from computepool.core.resources import CPU_TIERS, Requirements, Shape
from computepool.core.trust.tiers import region_of

Units = NDArray[np.int64]


@dataclass(slots=True)
class ZoneCount:
    """One zone as seen by one hub."""

    nodes: int = 0
    free: int = 0  #: offered at a floor that is met
    unmet: int = 0  #: offered at a floor that is not met
    busy: int = 0  #: held by paying jobs
    queued: int = 0  #: required by waiting jobs that pay the current price
    floors: dict[int, int] = field(default_factory=dict)  #: net price per unit-hour → units offered
    ceilings: dict[int | None, int] = field(default_factory=dict)  #: gross price per unit-hour → units required

    @property
    def capacity(self) -> int:
        return self.free + self.busy

    @property
    def demand(self) -> int:
        return self.busy + self.queued


class MarketCount:
    """Supply and demand at one moment. Nodes that join while shapes are added do not count yet.

    `others` is the capacity of other hubs. Every hub sees the whole queue, so each one counts only the part of demand that
    corresponds to its own share of the capacity.
    """

    def __init__(self, fleet: Fleet, market: Market, others: Mapping[Zone, int] | None = None) -> None:
        self._fleet, self._market = fleet, market
        self._others = others or {}
        self._sides = {cards: _Side(fleet, cards=cards) for cards in (False, True)}
        self._able: dict[tuple[Requirements, str], tuple[Units, Units]] = {}
        self.zones: dict[Zone, ZoneCount] = {}
        for side in self._sides.values():
            side.count(self.zones)

    def add(self, shape: Shape, jobs: int) -> None:
        """Count waiting jobs. Those that no node could ever run, or that pay too little, do not count."""
        side = self._sides[cards_needed(shape.requirements) > 0]
        capacity, total = self._able_in(shape, side)
        allowed = self._fleet.prices.within(shape)
        if allowed is not None:
            allowed = allowed[: capacity.size]
        paying = capacity if allowed is None else np.where(allowed, capacity, 0)
        elsewhere = self._elsewhere(shape)
        if not paying.any() and not elsewhere:
            # No floor is met, or all nodes are away: the demand still exists, and must raise the price.
            paying = total if allowed is None else np.where(allowed, total, 0)
        units = side.units(shape.requirements)
        weights = paying.tolist()
        for zone, part in zip(side.zones, _split(jobs, units, weights=weights, beside=elsewhere), strict=True):
            if part:
                self.zones[zone].queued += part

    def add_ceilings(self, shape: Shape, jobs: int) -> None:
        """Add the jobs' ceilings, whether they pay the current price or not. For display."""
        side = self._sides[cards_needed(shape.requirements) > 0]
        units = side.units(shape.requirements)
        parts = _split(jobs, units, weights=self._able_in(shape, side)[1].tolist())
        for number, part in enumerate(parts):
            if part:
                levels = self.zones[side.zones[number]].ceilings
                most = None if shape.ceiling is None else shape.ceiling * MILLI // max(1, units[number])
                levels[most] = levels.get(most, 0) + part

    def add_floors(self) -> None:
        """Add the floors of all offers. For display."""
        for side in self._sides.values():
            side.add_floors(self.zones)

    def _able_in(self, shape: Shape, side: _Side) -> tuple[Units, Units]:
        """By class: the capacity and the total units of the nodes that could run the shape."""
        key = (shape.requirements, shape.account)
        if key not in self._able:
            rows = able(self._fleet, shape)[: side.live.size] & side.live
            self._able[key] = side.sums(side.capacity, rows), side.sums(side.total, rows)
        return self._able[key]

    def _elsewhere(self, shape: Shape) -> int:
        """The capacity of other hubs in zones that suit the job."""
        needs = shape.requirements
        units = units_of(needs)
        regions = {region_of(region) for region in needs.regions}
        found = 0
        for zone, capacity in self._others.items():
            if cards_needed(needs):
                fits = zone.tier not in CPU_TIERS and (not needs.tiers or zone.tier in needs.tiers)
            else:
                fits = zone.tier in CPU_TIERS
            price = price_of(self._market.spot(zone), units)
            if fits and (not regions or zone.region in regions) and (shape.ceiling is None or price <= shape.ceiling):
                found += capacity
        return found


class _Side:
    """The fleet from the point of view of jobs without, or with, a GPU."""

    def __init__(self, fleet: Fleet, *, cards: bool) -> None:
        table, rows = fleet.table, slice(0, fleet.rows)
        self._prices = fleet.prices.side(cards=cards)
        self.zones = self._prices.zones()
        self._class = self._prices.classes[rows].copy()
        self._floor = self._prices.floor[rows].copy()
        self.live: Mask = table.live[rows] & (table.cards[rows] > 0) if cards else table.live[rows].copy()
        # Nodes that run only trusted accounts' jobs are not for sale.
        for_sale = table.level[rows] >= int(Level.NAMESPACE)
        if cards:
            for_sale &= table.lends_gpus[rows]
        for_sale |= table.trusts_everyone[rows]
        free = (table.gpu_free if cards else table.cpu_free)[rows].astype(np.int64)
        self._offered = np.where(self.live & table.available[rows] & for_sale, np.maximum(free, 0), 0)
        self._met = self._prices.met[rows].copy()
        self._busy = np.where(self.live, (table.gpu_busy if cards else table.cpu_busy)[rows], 0)
        self.capacity = np.where(self._met, self._offered, 0) + self._busy
        self.total = table.cards[rows].astype(np.int64) * MILLI if cards else table.cpu_total[rows].astype(np.int64)

    def units(self, needs: Requirements) -> list[int]:
        return self._prices.units(needs)[: len(self.zones)]

    def sums(self, amounts: Units, rows: Mask) -> Units:
        """The sums by class over these rows, as integers, which weighted `bincount` would not give."""
        found = np.zeros(len(self.zones), np.int64)
        np.add.at(found, self._class, np.where(rows, amounts, 0))
        return found

    def count(self, zones: dict[Zone, ZoneCount]) -> None:
        nodes = self.sums(np.ones_like(self.capacity), self.live).tolist()
        free = self.sums(self._offered, self._met).tolist()
        unmet = self.sums(self._offered, ~self._met).tolist()
        busy = self.sums(self._busy, self.live).tolist()
        for number, zone in enumerate(self.zones):
            if nodes[number]:  # a class outlives its nodes
                found = zones.setdefault(zone, ZoneCount())
                found.nodes += nodes[number]
                found.free += free[number]
                found.unmet += unmet[number]
                found.busy += busy[number]

    def add_floors(self, zones: dict[Zone, ZoneCount]) -> None:
        offering = np.flatnonzero(self._offered > 0)
        prices, level = np.unique(self._floor[offering], return_inverse=True)
        keys, which = np.unique(self._class[offering] * prices.size + level, return_inverse=True)
        units = np.zeros(keys.size, np.int64)
        np.add.at(units, which, self._offered[offering])
        for key, amount in zip(keys.tolist(), units.tolist(), strict=True):
            found = zones[self.zones[key // prices.size]].floors
            floor = int(prices[key % prices.size])
            found[floor] = found.get(floor, 0) + amount


def _split(jobs: int, units: Sequence[int], *, weights: Sequence[int], beside: int = 0) -> list[int]:
    """The units of these jobs, divided in proportion to the weights. If units are equal everywhere, rounding loses none.

    `beside` is the weight of a share that is counted elsewhere.
    """
    total = sum(weights) + beside
    if not total:
        return [0] * len(weights)
    edges = pairwise(accumulate(weights, initial=0))
    return [
        jobs * unit * end // total - jobs * unit * start // total
        for unit, (start, end) in zip(units, edges, strict=True)
    ]


def merge(levels: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """At most `most` levels (price, units): neighbours are merged under the last of their prices."""
    size = max(1, -(-len(levels) // most))
    groups = [levels[start : start + size] for start in range(0, len(levels), size)]
    return [(group[-1][0], sum(units for _, units in group)) for group in groups]
