"""The fleet's prices, by class of row: a job costs the same on all rows of one zone whose GPUs have one size.

There are few classes, so a ceiling is compared with those instead of 100 000 rows. The numbers are exactly those of
`Market.offer`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.features import Mask
from computepool.core.fleet.node_record import cards_needed
from computepool.core.fleet.table import grown
from computepool.core.money.market import Market
from computepool.core.money.money import AMOUNT_MAX
from computepool.core.money.pricing import MILLI, Zone, price_of, units_of
from computepool.core.resources import Requirements, Shape

_CLASSES_MIN = 16


class PriceSide:
    """Prices of jobs without, or with, a GPU. A class is a zone and a card size; every row has one."""

    def __init__(self, rows: int) -> None:
        self._numbers: dict[tuple[Zone, int], int] = {}
        # By class: the current spot price, before and after the fee.
        self._spot = np.zeros(_CLASSES_MIN, np.int64)
        self._net = np.zeros(_CLASSES_MIN, np.int64)
        self._card_mb = np.zeros(_CLASSES_MIN, np.int64)
        # By row: the owner's floor, and whether the current price meets it.
        self.classes = np.zeros(rows, np.intp)
        self.floor = np.zeros(rows, np.int64)
        self.met = np.zeros(rows, np.bool_)

    def grow(self, rows: int) -> None:
        self.classes = grown(self.classes, rows)
        self.floor = grown(self.floor, rows)
        self.met = grown(self.met, rows)

    def write_class(self, row: int, zone: Zone, *, card_mb: int, market: Market | None) -> None:
        number = self._numbers.setdefault((zone, card_mb), len(self._numbers))
        if number == self._spot.size:
            self._spot, self._net, self._card_mb = (
                grown(column, 2 * number) for column in (self._spot, self._net, self._card_mb)
            )
        self._card_mb[number] = card_mb
        self.classes[row] = number
        if market is not None:
            self._write(number, market.spot(zone), market)

    def judge_floors(self, rows: slice | int) -> bool:
        """Update which floors are met. True if one is met that was not before."""
        met = self.floor[rows] <= self._net[self.classes[rows]]
        opened = met & ~self.met[rows]
        self.met[rows] = met
        return bool(opened.any())

    def card_mb(self, row: int) -> int:
        """The size of the row's largest card."""
        return int(self._card_mb[self.classes[row]])

    def zones(self) -> list[Zone]:
        """The zone of each class, by number."""
        return [zone for zone, _ in self._numbers]

    def units(self, needs: Requirements) -> list[int]:
        """Thousandths of units that the job takes in each class."""
        return [units_of(needs, card_mb=card_mb) for _, card_mb in self._numbers]

    def prices(self, needs: Requirements) -> list[int]:
        """What the job costs in each class, in microcredits per hour."""
        spots = self._spot[: len(self._numbers)].tolist()
        return [price_of(spot, units) for spot, units in zip(spots, self.units(needs), strict=True)]

    def follow(self, market: Market) -> bool:
        """Adopt the market's prices. True if one of them fell."""
        before = self._spot[: len(self._numbers)].copy()
        for (zone, _), number in self._numbers.items():
            self._write(number, market.spot(zone), market)
        return bool((self._spot[: before.size] < before).any())

    def within(self, needs: Requirements, ceiling: int) -> Mask | None:
        """The classes that the ceiling pays for; None if it pays for all."""
        count = len(self._numbers)
        allowed: Mask = self._spot[:count] <= self._dearest(needs, ceiling, self._card_mb[:count])
        return None if allowed.all() else allowed

    @staticmethod
    def _dearest(needs: Requirements, ceiling: int, card_mb: NDArray[np.int64]) -> NDArray[np.int64] | int:
        """The highest spot price at which the job costs no more than its ceiling: the inverse of `price_of`.

        It never multiplies by a spot price, because that product could exceed 64 bits.
        """
        most = min(ceiling + 1, AMOUNT_MAX) * MILLI - 1
        cards = cards_needed(needs)
        if not cards:
            return most // needs.cpu_milli if needs.cpu_milli else AMOUNT_MAX
        if not needs.vram_mb:
            return most // (cards * MILLI)
        share = -(-needs.vram_mb * MILLI // np.maximum(card_mb, 1))
        units = cards * np.where(card_mb > 0, np.minimum(share, MILLI), MILLI)
        dearest: NDArray[np.int64] = most // units
        return dearest

    def _write(self, number: int, spot: int, market: Market) -> None:
        self._spot[number] = spot
        self._net[number] = market.table.net_of(spot)


class RowPrices:
    """Prices of jobs without a GPU, and of jobs with one."""

    def __init__(self, rows: int) -> None:
        self.market: Market | None = None
        self.version = 0  #: counts changes of prices
        self.floors = 0  #: nodes with a floor
        self.cpu, self.gpu = PriceSide(rows), PriceSide(rows)

    def side(self, *, cards: int) -> PriceSide:
        return self.gpu if cards else self.cpu

    def grow(self, rows: int) -> None:
        self.cpu.grow(rows)
        self.gpu.grow(rows)

    def judge_floors(self, rows: slice | int) -> bool:
        # Not `or`, here and below: both sides must be updated.
        return self.cpu.judge_floors(rows) | self.gpu.judge_floors(rows)

    def follow(self, market: Market) -> bool:
        self.market = market
        self.version += 1
        return self.cpu.follow(market) | self.gpu.follow(market)

    def within(self, shape: Shape) -> Mask | None:
        if self.market is None or shape.ceiling is None or shape.ceiling >= AMOUNT_MAX:
            return None
        return self.side(cards=cards_needed(shape.requirements)).within(shape.requirements, shape.ceiling)
