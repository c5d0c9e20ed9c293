"""The operator as the bank: payouts are listed, exported as a file for the bank, and marked paid or failed by hand."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass

from computepool.core.errors import NotFound
from computepool.core.money.payouts import BankReply, BankTarget, Target, UpiTarget, Word, rupees_of
from computepool.hub.money.banks.base import Notice, Order

COLUMNS = (
    "reference",
    "amount_inr",
    "method",
    "name",
    "account_number",
    "ifsc",
    "upi",
    "account",
    "requested_at",
)
#: A spreadsheet takes a cell that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_LISTED = "it is on the operator's list"


class Manual:
    """Takes every order at once: being on the operator's list is all that can be asked of it."""

    can_look_up = False

    async def submit(self, order: Order) -> BankReply:
        return BankReply(Word.PROCESSING, words=_LISTED)

    async def look_up(self, order: Order, ref: str | None) -> BankReply:
        return BankReply(Word.PROCESSING, ref, _LISTED)

    def read_notice(self, body: bytes, signature: str) -> Notice | None:
        raise NotFound("This provider sends no notices.")

    async def close(self) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One line of the operator's list."""

    reference: str
    amount: int
    target: Target
    account: str
    requested_at: str


def list_for_bank(payouts: Iterable[Listed]) -> str:
    """A CSV file. No cell can be taken for a formula by the program that opens it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    writer.writerows([safe_cell(cell) for cell in _line(payout)] for payout in payouts)
    return out.getvalue()


def _line(payout: Listed) -> tuple[str, ...]:
    target = payout.target
    bank = (
        (target.name, target.account_number, target.ifsc) if isinstance(target, BankTarget) else ("", "", "")
    )
    upi = target.upi if isinstance(target, UpiTarget) else ""
    amount = rupees_of(payout.amount)
    return (payout.reference, amount, target.method, *bank, upi, payout.account, payout.requested_at)


def safe_cell(text: str) -> str:
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
