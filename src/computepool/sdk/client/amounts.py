"""Amounts of credits in Python programs: strings, integers and Decimals, all exact. Floats are refused."""

from __future__ import annotations

from decimal import Decimal

from computepool.core.errors import BadRequest
from computepool.core.money.money import parse_credits

#: "2.5", 2 or Decimal("2.5"): credits, not microcredits.
Credits = str | int | Decimal


def microcredits(value: Credits, *, what: str) -> int:
    """The amount as sent to the hub. A float is refused rather than rounded."""
    if isinstance(value, float):
        raise BadRequest(f'{what}: {value!r} is a float, which is not exact; pass a string: "{value}".', field=what)
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise BadRequest(f'{what}: {value!r} is not an amount of credits; use a value like 12 or "0.25".', field=what)
    text = format(value, "f") if isinstance(value, Decimal) else str(value)
    try:
        return parse_credits(text, field=what)
    except BadRequest as error:
        raise BadRequest(f"{what}: {error.detail}", field=what) from None
