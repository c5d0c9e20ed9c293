"""The life of a payout: states, the transition table, what makes an amount and a target valid, who must approve, and
what an answer of the bank means.

The money is set aside when a payout is asked for, and stays so until the bank has given a definite answer. An answer
that was lost is *unknown*, never failed: only a definite no brings the money back, and only a definite yes lets it go.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum

from computepool.core.backoff import doubled
from computepool.core.errors import BadRequest
from computepool.core.money.money import CREDIT, format_credits

PAISA = CREDIT // 100
UPI_LENGTH = (3, 256)
#: `next_try_ms` of a payout that nobody has to ask about.
NEVER_MS = 2**62
_WORDS_MAX = 200

_UPI = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*@[A-Za-z][A-Za-z0-9]*", re.ASCII)
_IFSC = re.compile(r"[A-Z]{4}0[A-Z0-9]{6}", re.ASCII)
_ACCOUNT_NUMBER = re.compile(r"[0-9]{9,18}", re.ASCII)
#: What banks take as a name: letters, digits, spaces and a few signs, 3 to 120 of them.
_HOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9 '._/()-]{1,118}[A-Za-z0-9.)]", re.ASCII)


class PayoutState(StrEnum):
    REQUESTED = "requested"  #: the money is set aside; waits for an administrator
    RESERVED = "reserved"  #: goes to the bank next
    SUBMITTED = "submitted"  #: given to the bank, or about to be: it cannot be called back
    UNKNOWN = "unknown"  #: the bank's answer was lost; we ask until it is clear
    PAID = "paid"
    FAILED = "failed"  #: the bank said no; the money is back
    REJECTED = "rejected"  #: by an administrator, or cancelled by its owner, before the bank had it; the money is back


class Why(StrEnum):
    """Why a payout is as it is. Stable words; people get a sentence made from them."""

    FIRST = "first_payout"
    LARGE = "large_payout"
    READY = "ready"
    SECOND = "second_person"  #: one administrator has approved it; another one must, too
    APPROVED = "approved"
    SENDING = "sending"
    PROCESSING = "processing"
    NO_ANSWER = "no_answer"
    #: sent a second time, it was refused; what became of the first time is not known
    REFUSED_AGAIN = "refused_again"
    BANK_PAID = "bank_paid"
    BANK_REFUSED = "bank_refused"
    MARKED_PAID = "marked_paid"
    MARKED_FAILED = "marked_failed"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


DECIDED: frozenset[PayoutState] = frozenset({PayoutState.PAID, PayoutState.FAILED, PayoutState.REJECTED})
#: Decided, and the money went back to its owner.
RETURNED: frozenset[PayoutState] = frozenset({PayoutState.FAILED, PayoutState.REJECTED})
#: The bank may have it.
AT_THE_BANK: frozenset[PayoutState] = frozenset({PayoutState.SUBMITTED, PayoutState.UNKNOWN})
#: Nobody outside knows of it yet.
CANCELLABLE: frozenset[PayoutState] = frozenset({PayoutState.REQUESTED, PayoutState.RESERVED})

_NEXT: dict[PayoutState, frozenset[PayoutState]] = {
    PayoutState.REQUESTED: frozenset({PayoutState.RESERVED, PayoutState.REJECTED}),
    PayoutState.RESERVED: frozenset({PayoutState.SUBMITTED, PayoutState.REJECTED}),
    PayoutState.SUBMITTED: frozenset({PayoutState.UNKNOWN, PayoutState.PAID, PayoutState.FAILED}),
    PayoutState.UNKNOWN: frozenset({PayoutState.SUBMITTED, PayoutState.PAID, PayoutState.FAILED}),
}


def may_become(before: PayoutState, after: PayoutState) -> bool:
    return after in _NEXT.get(before, frozenset())


# where the money goes


@dataclass(frozen=True, slots=True)
class UpiTarget:
    upi: str

    method = "upi"

    def masked(self) -> str:
        name, _, handle = self.upi.partition("@")
        return f"{name[: min(2, len(name) // 2)]}***@{handle}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BankTarget:
    account_number: str
    ifsc: str
    name: str  #: the account holder

    method = "bank"

    def masked(self) -> str:
        return f"***{self.account_number[-4:]} at {self.ifsc}"


Target = UpiTarget | BankTarget


def upi_target(text: str) -> UpiTarget:
    """Upper and lower case are one UPI id."""
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
    if isinstance(target, UpiTarget):
        return json.dumps({"upi": target.upi})
    return json.dumps({"account_number": target.account_number, "ifsc": target.ifsc, "name": target.name})


def target_from_json(text: str) -> Target:
    values = json.loads(text)
    return UpiTarget(values["upi"]) if "upi" in values else BankTarget(**values)


# how much


def check_amount(amount: int, *, least: int) -> None:
    if amount % PAISA:
        raise BadRequest(
            f"{format_credits(amount)} credits is not a whole number of paise: at most two decimals can be paid out.",
            field="amount",
        )
    if amount < least:
        raise BadRequest(
            f"A payout is at least {format_credits(least)} credits; you asked for {format_credits(amount)}.",
            field="amount",
        )


def paise_of(amount: int) -> int:
    return amount // PAISA


def rupees_of(amount: int) -> str:
    """For the bank: `1234.50`, without separators."""
    rupees, paise = divmod(paise_of(amount), 100)
    return f"{rupees}.{paise:02d}"


# who must say yes


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRules:
    first: bool  #: the first payout of an account needs an administrator
    above: int  #: so does every one above this many microcredits
    two_persons: bool  #: who asked for it may not be the one who approves


def needs_approval(amount: int, rules: ApprovalRules, *, paid_before: bool) -> Why | None:
    if amount > rules.above:
        return Why.LARGE
    return Why.FIRST if rules.first and not paid_before else None


def may_approve(rules: ApprovalRules, *, requester: str, approver: str) -> bool:
    return not rules.two_persons or requester != approver


# what the bank says


class Word(StrEnum):
    PAID = "paid"
    PROCESSING = "processing"  #: it has the order and works on it
    REFUSED = "refused"  #: a definite no: this was not paid and will not be
    UNCLEAR = "unclear"  #: no answer, or one that says nothing about the payout
    ABSENT = "absent"  #: it knows of no such order; that may still be on its way


@dataclass(frozen=True, slots=True)
class BankReply:
    word: Word
    ref: str | None = None  #: the bank's own id for the payout
    words: str = ""  #: why, as the bank put it


class BankRequest(StrEnum):
    """What was said before the answer."""

    SUBMIT = "submit"  #: for the first time: nobody has sent this order before
    SUBMIT_AGAIN = "submit_again"  #: an order that the bank may have had before
    LOOK_UP = "look_up"  #: or the bank spoke by itself


@dataclass(frozen=True, slots=True)
class Step:
    state: PayoutState
    why: Why


def judge(answer: BankReply, request: BankRequest) -> Step | None:
    """Where the answer leads. None: it tells nothing new.

    A refusal ends a payout only where it cannot be about another copy of the order: the first time it is sent, or when
    the bank says so of the order it has.
    """
    if answer.word is Word.PAID:
        return Step(PayoutState.PAID, Why.BANK_PAID)
    if answer.word is Word.PROCESSING:
        return Step(PayoutState.SUBMITTED, Why.PROCESSING)
    if answer.word is Word.REFUSED and request is BankRequest.SUBMIT_AGAIN:
        return Step(PayoutState.UNKNOWN, Why.REFUSED_AGAIN)
    if answer.word is Word.REFUSED:
        return Step(PayoutState.FAILED, Why.BANK_REFUSED)
    if request is BankRequest.LOOK_UP:
        return None
    return Step(PayoutState.UNKNOWN, Why.NO_ANSWER)


def contradicts(state: PayoutState, answer: BankReply) -> bool:
    """What a person must look at: the ledger has it one way, and the bank says the other.

    `processing` is no contradiction: what a bank tells may come late.
    """
    if state is PayoutState.PAID:
        return answer.word is Word.REFUSED
    return state in RETURNED and answer.word is Word.PAID


class Absence(StrEnum):
    """What to do about an order that the bank does not know."""

    SEND_AGAIN = "send_again"  #: under the same key, so that it can only be one payment
    WAIT = "wait"
    GIVE_UP = "give_up"  #: the bank refuses it and has never had it


def judge_absence(*, why: Why, known: bool, silent_ms: int, certain_ms: int) -> Absence:
    """`known`: the bank has once told its own id for it. `silent_ms`: since the last time it was sent."""
    if known:
        return Absence.WAIT
    if why is not Why.REFUSED_AGAIN:
        return Absence.SEND_AGAIN
    return Absence.GIVE_UP if silent_ms >= certain_ms else Absence.WAIT


def retry_after_ms(tries: int, *, base_ms: int, max_ms: int) -> int:
    """Twice as long each time."""
    return doubled(base_ms, tries - 1, most=max_ms)


# reasons as they are stored: a word, and what somebody added


def reason_text(why: Why, words: str = "") -> str:
    clean = " ".join("".join(c if c.isprintable() else " " for c in words).split())[:_WORDS_MAX]
    return f"{why.value}: {clean}" if clean else why.value


def reason_parts(text: str) -> tuple[Why, str]:
    word, _, detail = text.partition(": ")
    return Why(word), detail
