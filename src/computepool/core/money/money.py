"""Credits as whole numbers of microcredits: one credit is one rupee, or 1 000 000 microcredits. Money is never a float."""

from __future__ import annotations

import re

from computepool.core.errors import BadRequest

CREDIT = 1_000_000
#: Far below 2**63, and exact in a browser, whose integers end at 2**53.
AMOUNT_MAX = 9_000_000_000_000_000
_DECIMALS = 6
_WRITTEN = re.compile(r"(\d{1,30})(?:\.(\d{1,6}))?", re.ASCII)


def parse_credits(text: str, *, field: str | None = None) -> int:
    """`12.5` → 12 500 000. Refuses signs, exponents and more than six decimals, so nothing is rounded."""
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        raise BadRequest(
            f"{text[:40]!r} is not an amount of credits: write it like 12 or 0.25, with at most six decimals.",
            field=field,
        )
    whole, fraction = match[1], match[2] or ""
    amount = int(whole) * CREDIT + int(fraction.ljust(_DECIMALS, "0"))
    if amount > AMOUNT_MAX:
        raise BadRequest(f"{text[:40]} credits is more than one transfer may move.", field=field)
    return amount


def round_down(amount: int) -> int:
    """To hundredths, or to two significant digits if less: nobody is promised more than there is."""
    step = _step(amount)
    return amount // step * step


def round_up(amount: int) -> int:
    """As `round_down`, but upwards: paying the displayed price is enough."""
    return -round_down(-amount)


def _step(amount: int) -> int:
    digits = max(0, len(str(abs(amount))) - 2)
    return min(CREDIT // 100, int("1" + "0" * digits))


def format_credits(amount: int, *, decimals: int = 2) -> str:
    """With at least `decimals` decimals, and more if the amount has them."""
    sign = "-" if amount < 0 else ""
    whole, fraction = divmod(abs(amount), CREDIT)
    digits = f"{fraction:0{_DECIMALS}d}".rstrip("0").ljust(decimals, "0")
    return f"{sign}{whole:,}.{digits}" if digits else f"{sign}{whole:,}"


def free_or_reserved(hold: int) -> str:
    """For a submitter with an able node of their own: why money is reserved although the job may be free."""
    reserved = f" (at most {format_credits(hold)} reserved if others run it)" if hold else ""
    return f"Free on your own node{reserved}."
