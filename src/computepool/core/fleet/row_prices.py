"""The fleet's prices, by class of row: rows of one zone with cards of one size cost every job the same.

There are few classes, so a ceiling is held against them and not against 100 000 rows. The numbers are exactly
those of `Market.offer`; the fleet keeps each row's class and whether its floor is met.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from computepool.core.fleet.features import Mask
from computepool.core.fleet.node_record import cards_needed
from computepool.core.money.market import Market
from computepool.core.money.money import AMOUNT_MAX
from computepool.core.money.pricing import MILLI, Zone, units_of
from computepool.core.resources import Requirements, Shape

_CLASSES_MIN = 16


class PriceClasses:
    """Zones with a size of card, and today's spot price of each, before and after the fee."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Zone, int], int] = {}
        self._spot = np.zeros(_CLASSES_MIN, np.int64)
        self._card_mb = np.zeros(_CLASSES_MIN, np.int64)
        self.net = np.zeros(_CLASSES_MIN, np.int64)

    def number(self, zone: Zone, card_mb: int, market: Market | None) -> int:
        number = self._numbers.setdefault((zone, card_mb), len(self._numbers))
        if number == self._spot.size:
            self._spot, self._card_mb, self.net = (
                np.append(column, np.zeros_like(column)) for column in (self._spot, self._card_mb, self.net)
            )
        self._card_mb[number] = card_mb
        if market is not None:
            self._write(number, market.spot(zone), market)
        return number

    def __len__(self) -> int:
        return len(self._numbers)

    def card_mb(self, number: int) -> int:
        return int(self._card_mb[number])

    def zones(self) -> list[Zone]:
        """The zone of each class, by number."""
        return [zone for zone, _ in self._numbers]

    def units(self, needs: Requirements) -> list[int]:
        """How many thousandths of units the job takes in each class."""
        return [units_of(needs, card_mb=card_mb) for _, card_mb in self._numbers]

    def follow(self, market: Market) -> bool:
        """Take the market's prices over. True if one of them fell."""
        before = self._spot[: len(self._numbers)].copy()
        for (zone, _), number in self._numbers.items():
            self._write(number, market.spot(zone), market)
        return bool((self._spot[: before.size] < before).any())

    def within(self, needs: Requirements, ceiling: int) -> Mask | None:
        """Which classes the ceiling pays for; None: all of them."""
        count = len(self._numbers)
        allowed: Mask = self._spot[:count] <= self._dearest(needs, ceiling, self._card_mb[:count])
        return None if allowed.all() else allowed

    @staticmethod
    def _dearest(needs: Requirements, ceiling: int, card_mb: NDArray[np.int64]) -> NDArray[np.int64] | int:
        """The highest spot price at which the job costs no more than its ceiling: `price_of` the other way round.

        It multiplies nothing by a spot price: that product could leave 64 bits.
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
        self.net[number] = market.table.net_of(spot)


class RowPrices:
    """One set of classes for jobs without a GPU, one for jobs with."""

    def __init__(self) -> None:
        self.market: Market | None = None
        self.floors = 0  #: nodes that have one
        self.cpu = PriceClasses()
        self.gpu = PriceClasses()

    def follow(self, market: Market) -> bool:
        self.market = market
        # Both: `or` would leave the second as it was.
        return self.cpu.follow(market) | self.gpu.follow(market)

    def within(self, shape: Shape) -> Mask | None:
        if self.market is None or shape.ceiling is None or shape.ceiling >= AMOUNT_MAX:
            return None
        classes = self.gpu if cards_needed(shape.requirements) else self.cpu
        return classes.within(shape.requirements, shape.ceiling)
