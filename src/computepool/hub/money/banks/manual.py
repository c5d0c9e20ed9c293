"""The operator as the bank: payouts are listed, exported as a file for the bank, and marked paid or failed by hand."""

from __future__ import annotations

from computepool.core.errors import NotFound
from computepool.core.money.payouts import BankReply, BankStatus
from computepool.hub.money.banks.base import Notice, Order

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
