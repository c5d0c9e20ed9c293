"""The interface of a bank: it takes an order under our reference, and later says what became of it.

A bank never raises for trouble between it and us: a time-out, a broken connection and an unreadable answer are all
`unclear`. It keeps no state; the store does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from computepool.core.money.payouts import BankReply, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    reference: str  #: the payout's id, and the idempotency key: an order sent twice is paid once
    paise: int
    target: Target
    account_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What a bank reports on its own initiative."""

    reference: str
    paise: int
    answer: BankReply


class Bank(Protocol):
    can_look_up: bool  #: if not, a person says what became of an order

    async def submit(self, order: Order) -> BankReply: ...

    async def look_up(self, order: Order, ref: str | None) -> BankReply:
        """Looks up by the bank's own id where it is known, else by our reference."""

    def read_notice(self, body: bytes, signature: str) -> Notice | None:
        """Raises Forbidden for a wrong signature. Returns None for a notice about something else."""

    async def close(self) -> None: ...
