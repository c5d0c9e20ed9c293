"""Rows of payouts. Every change is guarded by the state, and the claim, that the caller has read."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection

from computepool.core.money.payouts import AT_THE_BANK, DECIDED, PayoutState
from computepool.hub.db.money_tables import IS_UNDECIDED, payouts
from computepool.hub.db.queries import any_row, before_cursor, count, matches, set_where
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import accounts
from computepool.hub.db.typed_rows import TypedRow


class PayoutRow(
    TypedRow,
    of=(payouts, accounts.c.name.label("account_name")),
    joined=payouts.join(accounts, accounts.c.id == payouts.c.account_id),
):
    id: str
    account_id: str
    amount: int
    method: str
    target: str
    provider: str
    state: str
    reason: str
    provider_ref: str | None
    approved_by: str | None
    tries: int
    next_try_ms: int
    created_at_ms: int
    updated_at_ms: int
    account_name: str


_AT_BANK = sorted(state.value for state in AT_THE_BANK)
_DECIDED = sorted(state.value for state in DECIDED)


def insert(tx: Tx, **columns: Any) -> None:
    tx.connection.execute(payouts.insert().values(created_at_ms=tx.now_ms, updated_at_ms=tx.now_ms, **columns))


def get(connection: Connection, payout_id: str) -> PayoutRow | None:
    return PayoutRow.find(connection, payouts.c.id == payout_id)


def list_payouts(
    connection: Connection, *, account_id: str | None, state: str | None, before: str | None, limit: int
) -> list[PayoutRow]:
    """Newest first; ids sort by time."""
    which = (
        matches(payouts.c.account_id, account_id),
        matches(payouts.c.state, state),
        before_cursor(payouts.c.id, before),
    )
    return PayoutRow.fetch(connection, *which, order=payouts.c.id.desc(), limit=limit)


def list_at_bank(connection: Connection, *, provider: str) -> list[PayoutRow]:
    """Payouts that were given to the provider and are not decided, oldest first."""
    which = payouts.c.provider == provider, payouts.c.state.in_(_AT_BANK), IS_UNDECIDED
    return PayoutRow.fetch(connection, *which, order=payouts.c.id)


def list_due(connection: Connection, *, now_ms: int, limit: int) -> list[PayoutRow]:
    """Payouts to send to a bank, or to ask it about, now; the longest waiting first."""
    states = [*_AT_BANK, PayoutState.RESERVED.value]
    which = IS_UNDECIDED, payouts.c.state.in_(states), payouts.c.next_try_ms <= now_ms
    return PayoutRow.fetch(connection, *which, order=(payouts.c.next_try_ms, payouts.c.id), limit=limit)


def count_undecided(connection: Connection, account_id: str) -> int:
    return count(connection, payouts.c.account_id == account_id, payouts.c.state.not_in(_DECIDED))


def was_paid(connection: Connection, account_id: str) -> bool:
    return any_row(connection, payouts.c.account_id == account_id, payouts.c.state == PayoutState.PAID.value)


def ref_taken(connection: Connection, provider_ref: str, *, payout_id: str) -> bool:
    """Whether another payout has this reference of the bank."""
    return any_row(connection, payouts.c.provider_ref == provider_ref, payouts.c.id != payout_id)


def change(tx: Tx, believed: PayoutRow, **columns: Any) -> bool:
    """False: the payout is no longer in the state that was read."""
    return set_where(tx, payouts, *_as_believed(believed), updated_at_ms=tx.now_ms, **columns) == 1


def _as_believed(row: PayoutRow) -> tuple[ColumnElement[bool], ...]:
    return payouts.c.id == row.id, payouts.c.state == row.state


def claim(tx: Tx, believed: PayoutRow, *, until_ms: int) -> bool:
    """Take the next try. False: another hub, or a person, came first."""
    unclaimed = *_as_believed(believed), payouts.c.next_try_ms == believed.next_try_ms
    return set_where(tx, payouts, *unclaimed, next_try_ms=until_ms, tries=payouts.c.tries + 1) == 1


def try_again_at(tx: Tx, believed: PayoutRow, *, next_try_ms: int) -> None:
    set_where(tx, payouts, *_as_believed(believed), next_try_ms=next_try_ms)
