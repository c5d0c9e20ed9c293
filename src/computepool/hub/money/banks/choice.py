"""Choice of bank: each payout names its provider, so that a changed setting does not orphan payouts under way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from computepool.core.errors import NotFound
from computepool.hub.money.banks.base import Bank
from computepool.hub.money.banks.manual import Manual
from computepool.hub.money.banks.razorpayx import RazorpayX
from computepool.hub.settings import Settings

MANUAL = "manual"
RAZORPAYX = "razorpayx"


@asynccontextmanager
async def open_bank(provider: str, settings: Settings) -> AsyncIterator[Bank]:
    if provider not in (MANUAL, RAZORPAYX):
        raise NotFound(f"There is no payout provider named {provider[:40]!r}.")
    bank: Bank = Manual() if provider == MANUAL else RazorpayX(settings)
    try:
        yield bank
    finally:
        await bank.close()
