"""Comparison of results: by digest, within a tolerance (tolerance.py), or by a function that the submitter provides."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from computepool.core.errors import BadRequest

#: With 1 or more, any two numbers of the same sign would be equal.
RELATIVE_MAX: Final = 0.5


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Two numbers are equal if |a − b| ≤ max(absolute, relative · max(|a|, |b|))."""

    relative: float
    absolute: float = 0.0

    def __str__(self) -> str:
        text = f"tolerance:{self.relative:g}"
        return f"{text},{self.absolute:g}" if self.absolute else text


def parse(text: str) -> Tolerance | None:
    """The tolerance that the text names; None for a comparison by digest."""
    if text == "exact":
        return None
    word, _, numbers = text.partition(":")
    try:
        if word == "tolerance":
            relative, *rest = map(float, numbers.split(","))
            [absolute] = rest or [0.0]
            if 0 <= relative <= RELATIVE_MAX and 0 <= absolute < math.inf and (relative or absolute):
                return Tolerance(relative, absolute)
    except ValueError:
        pass
    raise BadRequest(
        "The comparison must be exact, tolerance:REL or tolerance:REL,ABS, with REL from 0 to "
        f"{RELATIVE_MAX:g}, ABS at least 0, and not both 0, for example tolerance:1e-6; not {text[:60]!r}.",
        field="compare",
    )


def classes(count: int, same: Callable[[int, int], bool | None]) -> list[int] | tuple[int, int]:
    """The class of each result, in order, or the pair that must be compared first.

    Closeness is not transitive. So each result is compared with the first of every class, and joins the first that matches.
    """
    kinds: list[int] = []
    for place in range(count):
        for head in sorted(set(kinds)):
            answer = same(head, place)
            if answer is None:
                return head, place
            if answer:
                kinds.append(head)
                break
        else:
            kinds.append(place)
    return kinds
