"""Ledger rules: the legs of every transfer of money, and the hash that chains them.

A leg is one row that moves an amount from one ledger account (debit) to another (credit), so money can neither appear nor
vanish. Legs of zero are omitted. The name of a ledger account states its purpose and owner:

    user:<account>    to spend          escrow:<account>  held for unfinished jobs
    earn:<account>    earned, maturing  owner:<account>   earned and matured: to spend or to pay out
    payout:<payout>   on its way out    platform:fees, platform:promo, platform:loss, ext:bank
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from computepool.core.errors import InvariantViolation
from computepool.core.money.money import AMOUNT_MAX
from computepool.core.money.pricing import PriceTable

FEES = "platform:fees"
PROMO = "platform:promo"
LOSS = "platform:loss"
BANK = "ext:bank"
#: Money enters the pool here. Their negative balances are the pool's debt to the outside.
OVERDRAWN: frozenset[str] = frozenset({PROMO, BANK})
GENESIS = "0" * 64


class Kind(StrEnum):
    HOLD = "hold"
    PAY = "pay"
    FEE = "fee"
    REFUND = "refund"
    TAKE_BACK = "take_back"  #: pay and fee of a result that was proven wrong before they matured
    MATURE = "mature"
    GRANT = "grant"  #: at sign-up, from platform:promo
    TOP_UP = "top_up"  #: by an operator: paid in (ext:bank) or given (platform:promo)
    PAYOUT_RESERVE = "payout_reserve"
    PAYOUT_PAID = "payout_paid"
    PAYOUT_RETURN = "payout_return"


class Leg(NamedTuple):
    debit: str
    credit: str
    amount: int
    kind: Kind


def user(account_id: str) -> str:
    return f"user:{account_id}"


def escrow(account_id: str) -> str:
    return f"escrow:{account_id}"


def earn(account_id: str) -> str:
    return f"earn:{account_id}"


def owner(account_id: str) -> str:
    return f"owner:{account_id}"


def payout(payout_id: str) -> str:
    return f"payout:{payout_id}"


def _legs(*legs: Leg) -> list[Leg]:
    for leg in legs:
        if leg.amount < 0 or leg.amount > AMOUNT_MAX or leg.debit == leg.credit:
            raise InvariantViolation(f"a transfer of {leg.amount} from {leg.debit} to {leg.credit} is not possible")
    return [leg for leg in legs if leg.amount]


def hold(account_id: str, *, amount: int, earned: int) -> list[Leg]:
    """Set money aside. `earned` of it comes from matured earnings, and is spent last."""
    held = escrow(account_id)
    return _legs(
        Leg(user(account_id), held, amount - earned, Kind.HOLD), Leg(owner(account_id), held, earned, Kind.HOLD)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How a hold is divided: pay + fee + refund = hold."""

    pay: int
    fee: int
    refund: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShare:
    """The shares of the owner and the platform in one further run of a job."""

    owner_id: str
    pay: int
    fee: int


def share(owner_id: str, *, charge: int, table: PriceTable) -> RunShare:
    fee = table.fee_of(charge)
    return RunShare(owner_id=owner_id, pay=charge - fee, fee=fee)


def split(*, held: int, charge: int, table: PriceTable, others: Sequence[RunShare] = ()) -> Split:
    rest = held - sum(other.pay + other.fee for other in others)
    if not 0 <= charge <= rest:
        raise InvariantViolation(f"a charge of {charge} does not fit a hold of {rest}")
    fee = table.fee_of(charge)
    return Split(pay=charge - fee, fee=fee, refund=rest - charge)


def settle(account_id: str, *, owner_id: str, parts: Split, earned: int, others: Sequence[RunShare] = ()) -> list[Leg]:
    """Resolve a hold: pay the node's owner and the platform's fee, and return the rest to where it came from.

    `others` confirmed the result and are paid in the same way.
    """
    held, back = escrow(account_id), min(parts.refund, earned)
    return _legs(
        Leg(held, earn(owner_id), parts.pay, Kind.PAY),
        Leg(held, FEES, parts.fee, Kind.FEE),
        *(Leg(held, earn(other.owner_id), other.pay, Kind.PAY) for other in others),
        *(Leg(held, FEES, other.fee, Kind.FEE) for other in others),
        Leg(held, user(account_id), parts.refund - back, Kind.REFUND),
        Leg(held, owner(account_id), back, Kind.REFUND),
    )


def release(account_id: str, *, amount: int, earned: int) -> list[Leg]:
    return settle(account_id, owner_id=account_id, parts=Split(pay=0, fee=0, refund=amount), earned=earned)


def take_back(account_id: str, *, owner_id: str, pay: int, fee: int) -> list[Leg]:
    """Return the cost of a wrong result to who paid it. Only earnings that have not matured are available for that."""
    return _legs(
        Leg(earn(owner_id), user(account_id), pay, Kind.TAKE_BACK), Leg(FEES, user(account_id), fee, Kind.TAKE_BACK)
    )


def mature(account_id: str, amount: int) -> list[Leg]:
    return _legs(Leg(earn(account_id), owner(account_id), amount, Kind.MATURE))


def grant(account_id: str, amount: int) -> list[Leg]:
    return _legs(Leg(PROMO, user(account_id), amount, Kind.GRANT))


def top_up(account_id: str, amount: int, *, source: str) -> list[Leg]:
    return _legs(Leg(source, user(account_id), amount, Kind.TOP_UP))


def reserve_payout(account_id: str, *, payout_id: str, amount: int) -> list[Leg]:
    return _legs(Leg(owner(account_id), payout(payout_id), amount, Kind.PAYOUT_RESERVE))


def pay_out(payout_id: str, amount: int) -> list[Leg]:
    return _legs(Leg(payout(payout_id), BANK, amount, Kind.PAYOUT_PAID))


def return_payout(account_id: str, *, payout_id: str, amount: int) -> list[Leg]:
    return _legs(Leg(payout(payout_id), owner(account_id), amount, Kind.PAYOUT_RETURN))


def deltas(legs: Iterable[Leg]) -> dict[str, int]:
    changes: dict[str, int] = {}
    for leg in legs:
        changes[leg.debit] = changes.get(leg.debit, 0) - leg.amount
        changes[leg.credit] = changes.get(leg.credit, 0) + leg.amount
    return changes


#: The fields of a transfer that the chain covers, in this order.
CHAINED = ("seq", "tx_key", "leg", "debit", "credit", "amount", "kind", "job_id", "ref", "at_ms")


def chain_hash(previous: str, row: Mapping[str, object]) -> str:
    """Fields must not contain line breaks, so that different rows have different texts."""
    parts = [previous, *("" if row[name] is None else str(row[name]) for name in CHAINED)]
    # Text that people wrote may not be valid UTF-8, which must not block a transfer.
    return hashlib.sha256("\n".join(parts).encode(errors="surrogatepass")).hexdigest()
