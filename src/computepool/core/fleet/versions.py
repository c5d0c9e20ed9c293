"""Versions of drivers and of CUDA as numbers, so that one comparison judges the whole fleet, and conditions on them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

#: An operator and a version, such as (">=", number_of("12.4")); all of them must hold.
Conditions = tuple[tuple[str, int], ...]

_PART: Final = 100_000
_PARTS: Final = 3
CONDITIONS_MAX: Final = 4
CONDITION_CHARS_MAX: Final = 100
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt,
}  # fmt: skip


def number_of(version: str) -> int:
    """`580.159.04` as a number that sorts by version; 0 if it is no version of up to three numbers."""
    parts = version.split(".")
    if len(parts) > _PARTS or not all(
        part.isascii() and part.isdigit() and len(part) < len(str(_PART)) for part in parts
    ):
        return 0
    found = 0
    for part in (*parts, "0", "0")[:_PARTS]:
        found = found * _PART + int(part)
    return found


def text_of(number: int, *, parts_min: int = 2) -> str:
    """`12.4` for the number of 12.4 or 12.4.0."""
    parts = [number // _PART**2, number // _PART % _PART, number % _PART]
    while len(parts) > parts_min and not parts[-1]:
        parts.pop()
    return ".".join(map(str, parts))


def conditions_of(text: str) -> Conditions:
    """`>=12.4,<14` as sorted conditions; none for an empty text. Raises ValueError."""
    listed = text.split(",") if text else []
    problem = f"{text[:CONDITION_CHARS_MAX]!a} is not a condition on a version, such as >=12.4 or >=12.4,<14"
    if len(text) > CONDITION_CHARS_MAX or len(listed) > CONDITIONS_MAX:
        raise ValueError(problem)
    found = set()
    for part in listed:
        stripped = part.strip(" ")
        sign = next((sign for sign in _COMPARISONS if stripped.startswith(sign)), "")
        number = number_of(stripped.removeprefix(sign).strip(" "))
        if not sign or not number:
            raise ValueError(problem)
        found.add((sign, number))
    return tuple(sorted(found))


def describe(conditions: Conditions) -> str:
    return ",".join(f"{sign}{text_of(number, parts_min=1)}" for sign, number in conditions)


def meets(versions: Any, conditions: Conditions) -> Any:
    """Whether a version, or each of an array, meets all conditions. 0 is unknown, and meets none."""
    met = versions > 0
    for sign, number in conditions:
        met = met & _COMPARISONS[sign](versions, number)
    return met
