"""Choice of bank: each payout names its provider, so that a changed setting does not orphan payouts under way.

The manual provider is the operator: payouts are listed, exported as a file for the bank, and marked paid or failed by hand.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from computepool.core.errors import NotFound
from computepool.core.money.payouts import BankReply, BankStatus
from computepool.hub.money.banks.base import Bank, Notice, Order
from computepool.hub.money.banks.razorpayx import RazorpayX
from computepool.hub.settings import Settings

MANUAL = "manual"
RAZORPAYX = "razorpayx"
_LISTED = "it is on the operator's list"


class Manual:
    """Accepts every order at once: it is then on the operator's list, and nothing more can be asked about it."""

    can_look_up = False

    async def submit(self, order: Order) -> BankReply:
        return BankReply(BankStatus.PROCESSING, detail=_LISTED)

    async def look_up(self, order: Order, ref: str | None) -> BankReply:
        return BankReply(BankStatus.PROCESSING, ref, _LISTED)

    def read_notice(self, body: bytes, signature: str) -> Notice | None:
        raise NotFound("This provider sends no notices.")

    async def close(self) -> None:
        return None


@asynccontextmanager
async def open_bank(provider: str, settings: Settings) -> AsyncIterator[Bank]:
    if provider not in (MANUAL, RAZORPAYX):
        raise NotFound(f"There is no payout provider named {provider[:40]!r}.")
    bank: Bank = Manual() if provider == MANUAL else RazorpayX(settings)
    try:
        yield bank
    finally:
        await bank.close()
