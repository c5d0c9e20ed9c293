"""The columns behind the fleet: NumPy arrays that grow together, and small numbers for words.

Storage only: the fleet writes it, gates and scores read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)

#: Columns are 32 bits wide: 2 PB of disk and two million cores. Larger claims are clipped.
INT32_MAX = 2**31 - 1


class Table:
    """One entry per row in every column. Rows that are not live are meaningless."""

    def __init__(self, rows: int) -> None:
        self.live = np.zeros(rows, np.bool_)
        self.available = np.zeros(rows, np.bool_)
        # Free amounts are -1 where jobs hold more than the node has, so that not even a job that needs 0 fits.
        self.cpu_total = np.zeros(rows, np.int32)
        self.cpu_free = np.zeros(rows, np.int32)
        self.ram_total = np.zeros(rows, np.int32)
        self.ram_free = np.zeros(rows, np.int32)
        self.disk_total = np.zeros(rows, np.int32)
        self.disk_free = np.zeros(rows, np.int32)
        self.cards = np.zeros(rows, np.int16)
        self.cards_idle = np.zeros(rows, np.int16)
        self.mixed = np.zeros(rows, np.bool_)  # cards of more than one tier
        self.tier = np.zeros(rows, np.int32)
        self.speed = np.zeros(rows, np.float32)
        self.core_speed = np.zeros(rows, np.float32)
        self.region = np.zeros(rows, np.int32)
        self.mesh_version = np.zeros(rows, np.int32)
        self.python = np.zeros(rows, np.uint32)  # one bit per minor version, see pythons.py
        self.owner = np.zeros(rows, np.int32)
        self.level = np.zeros(rows, np.int8)
        self.trusts_everyone = np.zeros(rows, np.bool_)
        self.lends_gpus = np.zeros(rows, np.bool_)  # to other accounts
        self.network = np.zeros(rows, np.bool_)  # its owner lets jobs reach the hosts they list
        self.installs = np.zeros(rows, np.bool_)  # the dependencies of jobs, where no environment satisfies them
        self.down_mbps = np.zeros(rows, np.int32)  # measured; 0: unknown
        self.up_mbps = np.zeros(rows, np.int32)
        self.rules = np.zeros(rows, np.int32)  # numbers in the rule book; 0 allows everything
        self.reliability = np.zeros(rows, np.float32)
        self.newcomer = np.zeros(rows, np.bool_)  # one external job at a time
        self.banned = np.zeros(rows, np.bool_)  # no external jobs, because of wrong results
        self.last_used = np.zeros(rows, np.int64)
        # In thousandths of cards (and of cores): what is unused, and what the market's jobs hold.
        self.gpu_free = np.zeros(rows, np.int64)
        self.cpu_busy = np.zeros(rows, np.int64)
        self.gpu_busy = np.zeros(rows, np.int64)
        # Entry k holds the (k+1)-th largest card of every node: "two cards of 16 GB" is one comparison with entry 1.
        self.vram_total: list[NDArray[np.int32]] = []
        self.vram_free: list[NDArray[np.int32]] = []

    def __len__(self) -> int:
        return self.live.size

    def grow(self, rows: int) -> None:
        for name, column in vars(self).items():
            setattr(self, name, [grown(c, rows) for c in column] if isinstance(column, list) else grown(column, rows))

    def make_ranks(self, cards: int) -> None:
        while len(self.vram_free) < cards:
            self.vram_total.append(np.zeros(len(self), np.int32))
            self.vram_free.append(np.zeros(len(self), np.int32))


class Interner:
    """Numbers words, so that a column can hold them."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._words: list[str] = []

    def number(self, word: str) -> int:
        number = self._numbers.setdefault(word, len(self._words))
        if number == len(self._words):
            self._words.append(word)
        return number

    def word(self, number: int) -> str:
        return self._words[number]

    def find(self, word: str) -> int:
        """The number of a word; -1, which no column holds, if no node has ever used it."""
        return self._numbers.get(word, -1)


def write_ranked(columns: list[NDArray[np.int32]], row: int, values: Sequence[int]) -> None:
    """Write the largest value to the first column, and so on; further columns stay as they are."""
    for column, value in zip(columns, sorted(values, reverse=True), strict=False):
        column[row] = min(value, INT32_MAX)


def grown(column: NDArray[Scalar], rows: int) -> NDArray[Scalar]:
    longer = np.zeros(rows, column.dtype)
    longer[: column.size] = column
    return longer
