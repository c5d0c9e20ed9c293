"""The interface of a bank: take an order under our reference, and say later what became of it.

A bank never raises for what happens between it and us: a time-out, a broken connection and an answer that cannot be
read are all `unclear`. It keeps nothing; the store does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from computepool.core.money.payouts import BankReply, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    reference: str  #: the payout's id, and the key under which it can be sent twice and is paid once
    paise: int
    target: Target
    account_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What a bank tells by itself."""

    reference: str
    paise: int
    answer: BankReply


class Bank(Protocol):
    #: Whether look_up can tell anything; if not, a person will.
    can_look_up: bool

    async def submit(self, order: Order) -> BankReply: ...

    async def look_up(self, order: Order, ref: str | None) -> BankReply:
        """By the bank's own id where it is known, else by our reference."""

    def read_notice(self, body: bytes, signature: str) -> Notice | None:
        """Raises Forbidden for a wrong signature. None: it is about something else."""

    async def close(self) -> None: ...
