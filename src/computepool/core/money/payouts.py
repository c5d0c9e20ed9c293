"""The life of a payout: states and transitions, valid amounts and targets, approvals, and the meaning of the bank's answers.

The money is set aside when a payout is requested, and stays so until the bank has given a definite answer. A lost answer
means *unknown*, never failed: only a definite refusal returns the money, and only a definite confirmation releases it.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from enum import StrEnum

from computepool.core.errors import BadRequest
from computepool.core.money.money import CREDIT, format_credits

PAISA = CREDIT // 100
UPI_LENGTH = (3, 256)
#: `next_try_ms` of a payout that needs no further requests.
NEVER_MS = 2**62
_DETAIL_MAX = 200

_UPI = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*@[A-Za-z][A-Za-z0-9]*", re.ASCII)
_IFSC = re.compile(r"[A-Z]{4}0[A-Z0-9]{6}", re.ASCII)
_ACCOUNT_NUMBER = re.compile(r"[0-9]{9,18}", re.ASCII)
#: Names that banks accept: 3 to 120 letters, digits, spaces and a few punctuation marks.
_HOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9 '._/()-]{1,118}[A-Za-z0-9.)]", re.ASCII)


class PayoutState(StrEnum):
    REQUESTED = "requested"  #: the money is set aside; the payout waits for an administrator
    RESERVED = "reserved"  #: goes to the bank next
    SUBMITTED = "submitted"  #: sent to the bank, or about to be: it cannot be recalled
    UNKNOWN = "unknown"  #: the bank's answer was lost; the hub asks until it is clear
    PAID = "paid"
    FAILED = "failed"  #: the bank refused it; the money is back
    #: by an administrator, or cancelled by its owner, before it was sent to the bank; the money is back
    REJECTED = "rejected"


class PayoutReason(StrEnum):
    """The reason for a payout's state. The words are stable; people see a sentence made from them."""

    FIRST = "first_payout"
    LARGE = "large_payout"
    READY = "ready"
    SECOND = "second_person"  #: one administrator has approved it; a second one must, too
    APPROVED = "approved"
    SENDING = "sending"
    PROCESSING = "processing"
    NO_ANSWER = "no_answer"
    REFUSED_AGAIN = "refused_again"  #: the second try was refused, and the outcome of the first one is unknown
    BANK_PAID = "bank_paid"
    BANK_REFUSED = "bank_refused"
    MARKED_PAID = "marked_paid"
    MARKED_FAILED = "marked_failed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


DECIDED: frozenset[PayoutState] = frozenset({PayoutState.PAID, PayoutState.FAILED, PayoutState.REJECTED})
#: Decided, and the money was returned to its owner.
RETURNED: frozenset[PayoutState] = frozenset({PayoutState.FAILED, PayoutState.REJECTED})
#: The bank may have it.
AT_THE_BANK: frozenset[PayoutState] = frozenset({PayoutState.SUBMITTED, PayoutState.UNKNOWN})
#: Not yet sent to the bank.
CANCELLABLE: frozenset[PayoutState] = frozenset({PayoutState.REQUESTED, PayoutState.RESERVED})

_NEXT: dict[PayoutState, frozenset[PayoutState]] = {
    PayoutState.REQUESTED: frozenset({PayoutState.RESERVED, PayoutState.REJECTED}),
    PayoutState.RESERVED: frozenset({PayoutState.SUBMITTED, PayoutState.REJECTED}),
    PayoutState.SUBMITTED: frozenset({PayoutState.UNKNOWN, PayoutState.PAID, PayoutState.FAILED}),
    PayoutState.UNKNOWN: frozenset({PayoutState.SUBMITTED, PayoutState.PAID, PayoutState.FAILED}),
}


def may_become(before: PayoutState, after: PayoutState) -> bool:
    return after in _NEXT.get(before, frozenset())


# targets


@dataclass(frozen=True, slots=True)
class UpiTarget:
    upi: str

    method = "upi"

    def mask(self) -> str:
        name, _, handle = self.upi.partition("@")
        return f"{name[: min(2, len(name) // 2)]}***@{handle}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BankTarget:
    account_number: str
    ifsc: str
    name: str  #: the account holder

    method = "bank"

    def mask(self) -> str:
        return f"***{self.account_number[-4:]} at {self.ifsc}"


Target = UpiTarget | BankTarget


def upi_target(text: str) -> UpiTarget:
    """UPI ids are case-insensitive."""
    least, most = UPI_LENGTH
    if not least <= len(text) <= most or not _UPI.fullmatch(text):
        raise BadRequest(
            f"{text[:60]!r} is not a UPI id: it looks like name@handle, with {least} to {most} letters, digits, "
            "dots, hyphens and underscores.",
            field="upi",
        )
    return UpiTarget(text.lower())


def bank_target(*, account_number: str, ifsc: str, name: str) -> BankTarget:
    if not _ACCOUNT_NUMBER.fullmatch(account_number):
        raise BadRequest("An Indian bank account number has 9 to 18 digits.", field="bank.account_number")
    if not _IFSC.fullmatch(ifsc):
        raise BadRequest(
            f"{ifsc[:40]!r} is not an IFSC: four capital letters, a zero, and six capital letters or digits.",
            field="bank.ifsc",
        )
    if not _HOLDER.fullmatch(name):
        raise BadRequest(
            "The account holder's name has 3 to 120 letters, digits, spaces and ' . _ / ( ) -, as the bank writes it.",
            field="bank.name",
        )
    return BankTarget(account_number=account_number, ifsc=ifsc, name=name)


def target_to_json(target: Target) -> str:
    return json.dumps(asdict(target))


def target_from_json(text: str) -> Target:
    values = json.loads(text)
    return UpiTarget(**values) if "upi" in values else BankTarget(**values)


# amounts


def check_amount(amount: int, *, least: int) -> None:
    if amount % PAISA:
        raise BadRequest(
            f"{format_credits(amount)} credits is not a whole number of paise: at most two decimals can be paid out.",
            field="amount",
        )
    if amount < least:
        raise BadRequest(
            f"A payout must be at least {format_credits(least)} credits, not {format_credits(amount)}.", field="amount"
        )


def paise_of(amount: int) -> int:
    return amount // PAISA


def rupees_of(amount: int) -> str:
    """`1234.50`, without separators."""
    rupees, paise = divmod(paise_of(amount), 100)
    return f"{rupees}.{paise:02d}"


# approvals


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRules:
    first: bool  #: the first payout of an account needs an approval
    above: int  #: payouts of more microcredits than this need an approval
    not_own: bool  #: nobody approves their own payout
    two_approvals: bool  #: two administrators must approve, neither of them the owner


def needs_approval(amount: int, rules: ApprovalRules, *, paid_before: bool) -> PayoutReason | None:
    if amount > rules.above:
        return PayoutReason.LARGE
    return PayoutReason.FIRST if rules.first and not paid_before else None


def approver_refusal(rules: ApprovalRules, *, owner: str, approver: str, approved_by: str | None) -> str | None:
    """Why this administrator may not approve a payout that waits for approval; None if they may."""
    if approver == owner and (rules.not_own or rules.two_approvals):
        return "Another administrator must approve your own payout."
    if approver == approved_by and rules.two_approvals:
        return "You have already approved it; another administrator must approve it, too."
    return None


# answers of the bank


class BankStatus(StrEnum):
    PAID = "paid"
    PROCESSING = "processing"  #: the bank has the order and works on it
    REFUSED = "refused"  #: definite: the payout was not made and will not be
    UNCLEAR = "unclear"  #: no answer, or one that says nothing about the payout
    ABSENT = "absent"  #: the bank does not know the order, which may still be on its way


@dataclass(frozen=True, slots=True)
class BankReply:
    status: BankStatus
    ref: str | None = None  #: the bank's own id for the payout
    detail: str = ""  #: the bank's explanation


class BankRequest(StrEnum):
    """The request that an answer belongs to."""

    SUBMIT = "submit"  #: the first time that this order is sent
    SUBMIT_AGAIN = "submit_again"  #: the bank may have received this order before
    LOOK_UP = "look_up"  #: also for messages that the bank sent unasked


@dataclass(frozen=True, slots=True)
class Step:
    state: PayoutState
    why: PayoutReason


def judge(answer: BankReply, request: BankRequest) -> Step | None:
    """What follows from an answer; None if nothing does.

    A refusal ends a payout only if it cannot concern another copy of the order: when the order is sent for the first time,
    or when the bank states it about the order it has.
    """
    if answer.status is BankStatus.PAID:
        return Step(PayoutState.PAID, PayoutReason.BANK_PAID)
    if answer.status is BankStatus.PROCESSING:
        return Step(PayoutState.SUBMITTED, PayoutReason.PROCESSING)
    if answer.status is BankStatus.REFUSED and request is BankRequest.SUBMIT_AGAIN:
        return Step(PayoutState.UNKNOWN, PayoutReason.REFUSED_AGAIN)
    if answer.status is BankStatus.REFUSED:
        return Step(PayoutState.FAILED, PayoutReason.BANK_REFUSED)
    if request is BankRequest.LOOK_UP:
        return None
    return Step(PayoutState.UNKNOWN, PayoutReason.NO_ANSWER)


def contradicts(state: PayoutState, answer: BankReply) -> bool:
    """Whether the bank contradicts the ledger, so that a person must investigate.

    `processing` is no contradiction, because messages of a bank may arrive late.
    """
    if state is PayoutState.PAID:
        return answer.status is BankStatus.REFUSED
    return state in RETURNED and answer.status is BankStatus.PAID


class Absence(StrEnum):
    """What to do about an order that the bank does not know."""

    SEND_AGAIN = "send_again"  #: with the same key, so that there is only one payment
    WAIT = "wait"
    GIVE_UP = "give_up"  #: the bank refuses the order and has never had it


def judge_absence(*, why: PayoutReason, known: bool, silent_ms: int, certain_ms: int) -> Absence:
    """`known`: the bank has stated its own id for the order before. `silent_ms`: time since the order was last sent."""
    if known:
        return Absence.WAIT
    if why is not PayoutReason.REFUSED_AGAIN:
        return Absence.SEND_AGAIN
    return Absence.GIVE_UP if silent_ms >= certain_ms else Absence.WAIT


# stored reasons: a word and an optional detail


def reason_text(why: PayoutReason, detail: str = "") -> str:
    clean = " ".join("".join(c if c.isprintable() else " " for c in detail).split())[:_DETAIL_MAX]
    return f"{why.value}: {clean}" if clean else why.value


def reason_parts(text: str) -> tuple[PayoutReason, str]:
    word, _, detail = text.partition(": ")
    return PayoutReason(word), detail
