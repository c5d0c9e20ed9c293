"""Wire models of payouts. Amounts are in microcredits. The hub validates the targets."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import StringConstraints, model_validator

from computepool.core.plaintext import NAME_PATTERN
from computepool.protocol.base import Micro, Page, PositiveMicro, Reply, Request

State = Literal["requested", "reserved", "submitted", "unknown", "paid", "failed", "rejected"]
_Written = Annotated[str, StringConstraints(min_length=1, max_length=300)]
Words = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NAME_PATTERN)]
BankReference = Annotated[str, StringConstraints(min_length=4, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9/_-]*$")]


class BankAccount(Request):
    """An Indian bank account."""

    account_number: _Written
    ifsc: _Written
    name: _Written  #: the account holder, as the bank writes it


class PayoutRequest(Request):
    """A payout to a UPI id or to a bank account."""

    amount: PositiveMicro
    upi: _Written | None = None
    bank: BankAccount | None = None

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.upi is None) == (self.bank is None):
            raise ValueError("Name one target: either upi or bank.")
        return self


class RejectRequest(Request):
    reason: Words


class PaidRequest(Request):
    reference: BankReference  #: the bank's number for the transfer (UTR)


class FailedRequest(Request):
    reason: Words


class PayoutView(Reply):
    id: str
    account_id: str
    account_name: str
    amount: Micro
    method: Literal["upi", "bank"]
    masked: str  #: the target, shortened
    upi: str | None = None  #: in full only for the owner and administrators
    bank: BankAccount | None = None
    provider: str
    state: State
    reason: str
    status: str  #: a sentence
    provider_ref: str | None = None
    approved_by: str | None = None
    created_at_ms: int
    updated_at_ms: int
    can_cancel: bool = False
    can_approve: bool = False
    can_mark: bool = False  #: you may mark it as paid or failed


class PayoutPage(Page):
    payouts: list[PayoutView]
    available: Micro  #: matured credits of the caller that can be paid out
    minimum: Micro  #: amount of one payout
