"""Minor versions of Python, and sets of them as bits, so that one operation checks the whole fleet."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping

#: The number of supported minor versions of Python 3. Later ones have no bit, so no node has them.
_BITS = 32
MINORS = tuple(f"3.{number}" for number in range(_BITS))


def minor_version(python: str) -> str:
    """`3.11.7` → `3.11`. Two interpreters must share it to run the same function."""
    return ".".join(python.split(".")[:2])


@functools.lru_cache(maxsize=_BITS)
def bit_of(python: str) -> int:
    """The bit of its minor version; 0 if it is not a supported one."""
    major, _, minor = minor_version(python).partition(".")
    known = major == "3" and minor.isascii() and minor.isdigit() and int(minor) < _BITS
    return 1 << int(minor) if known else 0


def mask_of(pythons: Iterable[str]) -> int:
    return functools.reduce(int.__or__, map(bit_of, pythons), 0)


def commonest(masks: Mapping[int, int]) -> str:
    """The minor version that most nodes have, the newest of several; empty if there is none. `masks`: number of nodes each."""
    held: Counter[int] = Counter()
    for mask, count in masks.items():
        held.update({number: count for number in range(_BITS) if mask >> number & 1})
    if not held:
        return ""
    return f"3.{max(held, key=lambda number: (held[number], number))}"


def any_version(pythons: Iterable[str]) -> str:
    """As text: `3.12`, `3.11 to 3.13`, `3.12 or newer`, `3.9 or 3.11`."""
    runs: list[list[int]] = []
    for number in sorted({int(minor_version(python).partition(".")[2]) for python in pythons}):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " or ".join(_range_text(run[0], run[-1]) for run in runs)


def _range_text(first: int, last: int) -> str:
    if first == last:
        return f"3.{first}"
    if last == _BITS - 1:
        return f"3.{first} or newer"
    return f"3.{last} or older" if first == 0 else f"3.{first} to 3.{last}"


def newest_last(pythons: Iterable[str]) -> list[str]:
    return sorted(set(pythons), key=lambda python: [int(part) for part in python.split(".")])
