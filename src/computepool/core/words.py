"""Numbers in sentences, said the same by the hub and the command line."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {one if number == 1 else many or one + 's'}"
