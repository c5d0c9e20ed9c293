"""Minor versions of Python, and sets of them as bits, so that "has this one" is one operation over the whole fleet."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping

#: Of Python 3. A later minor version has no bit, and so nobody has it.
_BITS = 32


def minor_version(python: str) -> str:
    """`3.11.7` → `3.11`: what two interpreters must share to run the same function."""
    return ".".join(python.split(".")[:2])


@functools.lru_cache(maxsize=_BITS)
def bit_of(python: str) -> int:
    """Of its minor version; 0 where it is none."""
    major, _, minor = minor_version(python).partition(".")
    known = major == "3" and minor.isascii() and minor.isdigit() and int(minor) < _BITS
    return 1 << int(minor) if known else 0


def mask_of(pythons: Iterable[str]) -> int:
    return functools.reduce(int.__or__, map(bit_of, pythons), 0)


def commonest(masks: Mapping[int, int]) -> str:
    """The minor version that most have, the newest of several; empty where none has any. `masks`: with how many have each."""
    held: Counter[int] = Counter()
    for mask, count in masks.items():
        held.update({number: count for number in range(_BITS) if mask >> number & 1})
    if not held:
        return ""
    return f"3.{max(held, key=lambda number: (held[number], number))}"


def newest_last(pythons: Iterable[str]) -> list[str]:
    return sorted(set(pythons), key=lambda python: [int(part) for part in python.split(".")])
