"""Tags and properties of nodes as bits, so that one comparison finds the matching nodes of the whole fleet.

A feature is a tag (`str`) or a property (`(key, value)`). A feature gets a bit when it first appears and frees it when
the last node with it leaves. Owners choose their tags freely, so the number of bits is bounded. Features beyond the
bound are plain sets of rows, and only those are slower.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from computepool.core.resources import NodeProfile

Feature = str | tuple[str, str]
Mask = NDArray[np.bool_]
#: Rows of the fleet: an index array, or a slice for the whole table.
Rows = slice | NDArray[np.intp]

#: Narrow words: checking a feature reads one word for every node.
_WORD_BITS = 8
#: 128 words of 8 bits are 128 bytes per node, or 13 MB for 100 000 nodes.
BITS_MAX = 1_024


class Features:
    def __init__(self, rows: int) -> None:
        self._size = rows
        self._words: list[NDArray[np.uint8]] = []
        self._bits: dict[Feature, int] = {}
        self._holders: dict[Feature, set[int]] = {}
        self._free_bits: list[int] = list(range(BITS_MAX - 1, -1, -1))

    def grow(self, rows: int) -> None:
        self._words = [np.append(word, np.zeros(rows - word.size, np.uint8)) for word in self._words]
        self._size = rows

    def add(self, row: int, features: Iterable[Feature]) -> None:
        for feature in features:
            holders = self._holders.setdefault(feature, set())
            if not holders and self._free_bits:
                self._bits[feature] = self._free_bits.pop()
            holders.add(row)
            if (bit := self._bits.get(feature)) is not None:
                self._word(bit)[row] |= np.uint8(1 << bit % _WORD_BITS)

    def discard(self, row: int, features: Iterable[Feature]) -> None:
        for feature in features:
            holders = self._holders[feature]
            holders.discard(row)
            if (bit := self._bits.get(feature)) is not None:
                self._word(bit)[row] &= ~np.uint8(1 << bit % _WORD_BITS)
            if not holders:
                del self._holders[feature]
                if feature in self._bits:
                    self._free_bits.append(self._bits.pop(feature))

    def has(self, feature: Feature, rows: Rows) -> Mask:
        bit = self._bits.get(feature)
        if bit is not None:
            mask: Mask = (self._word(bit)[rows] & np.uint8(1 << bit % _WORD_BITS)) != 0
            return mask
        lookup = np.zeros(self._size, np.bool_)
        lookup[list(self._holders.get(feature, ()))] = True
        return lookup[rows]

    def has_all(self, features: Iterable[Feature], rows: Rows) -> Mask | None:
        """The rows that have every feature; None if no features are given."""
        return all_of(self.has(feature, rows) for feature in features)

    def has_none(self, features: Iterable[Feature], rows: Rows) -> Mask | None:
        """The rows that have none of the features; None if no features are given."""
        return all_of(~self.has(feature, rows) for feature in features)

    def _word(self, bit: int) -> NDArray[np.uint8]:
        while len(self._words) <= bit // _WORD_BITS:
            self._words.append(np.zeros(self._size, np.uint8))
        return self._words[bit // _WORD_BITS]


def all_of(masks: Iterable[Mask]) -> Mask | None:
    """The conjunction of the masks; None if there are no masks."""
    result: Mask | None = None
    for mask in masks:
        result = mask if result is None else np.logical_and(result, mask, out=result)
    return result


#: The key under which the sources of images are features. No property has it: it is not a valid name of one.
_IMAGES = "@images"


def image_feature(source: str) -> Feature:
    return (_IMAGES, source)


def features_of(profile: NodeProfile) -> set[Feature]:
    return {*profile.tags, *profile.properties, *map(image_feature, profile.registries)}
