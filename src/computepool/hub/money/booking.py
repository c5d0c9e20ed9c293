"""Booking of transfers. Units note them; the end of the transaction writes them: balances first, then the rows, each of
which continues the hash chain.

They are written once for all units of a transaction, while no other hub can number anything: sequence numbers follow the
order of the commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, bindparam, select, update

from computepool.core.errors import InvariantViolation
from computepool.core.money import ledger
from computepool.core.money.ledger import Leg
from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.crashpoints import crash_point
from computepool.hub.db.money_tables import balances, transfers
from computepool.hub.db.session import Commit, Tx

_LAST = Prepared(select(transfers.c.seq, transfers.c.hash, transfers.c.at_ms).order_by(transfers.c.seq.desc()).limit(1))
_INSERT = Prepared(transfers.insert())
_OPEN = Prepared(lambda connection: dialect.insert_ignore(connection, balances))
_CHANGE = Prepared(
    update(balances)
    .where(balances.c.account == bindparam("name"))
    .values(balance=balances.c.balance + bindparam("delta"))
)
_BALANCE = Prepared(select(balances.c.balance).where(balances.c.account == bindparam("name")))


def post(tx: Tx, key: str, legs: Sequence[Leg], *, job_id: str | None = None, ref: str | None = None) -> None:
    """Move money once per key. The key names what happened, and the database refuses a second use of it."""
    tx.transfers += [
        {
            "tx_key": key,
            "leg": number,
            "debit": leg.debit,
            "credit": leg.credit,
            "amount": leg.amount,
            "kind": leg.kind.value,
            "job_id": job_id,
            "ref": ref,
        }
        for number, leg in enumerate(legs)
    ]
    tx.balances.update(ledger.deltas(legs))


def balance_of(connection: Connection, account: str) -> int:
    """As of the last commit."""
    found = _BALANCE.first(connection, name=account)
    return 0 if found is None else int(found[0])


def balance(tx: Tx, account: str) -> int:
    """Including what this transaction has moved so far. Another hub may commit first; then the database decides."""
    stored = balance_of(tx.connection, account)
    return stored + tx.before.balances[account] + tx.balances[account]


def write(tx: Tx, _commit: Commit) -> None:
    connection, now_ms = tx.connection, tx.now_ms
    if not tx.transfers:
        return
    _change_balances(connection, tx.balances)
    crash_point("in_booking")
    seq, previous, last_ms = _LAST.first(connection) or (0, ledger.GENESIS, now_ms)
    # Another hub's clock may be ahead of this one's; time in the ledger never goes back.
    at_ms = max(now_ms, last_ms)
    for row in tx.transfers:
        seq += 1
        row["seq"], row["at_ms"] = seq, at_ms
        previous = row["hash"] = ledger.chain_hash(previous, row)
    _INSERT.execute(connection, tx.transfers)


def _change_balances(connection: Connection, changes: Mapping[str, int]) -> None:
    """In sorted order, as wherever rows are locked."""
    moved = sorted((name, delta) for name, delta in changes.items() if delta)
    if not moved:
        return
    fresh = [{"account": name, "balance": 0, "can_overdraw": name in ledger.OVERDRAWN} for name, _ in moved]
    # Not an upsert: SQLite checks the constraints of the row to insert before it finds the one to update.
    _OPEN.execute(connection, fresh)
    changed = _CHANGE.execute(connection, [{"name": name, "delta": delta} for name, delta in moved])
    if changed != len(moved):
        raise InvariantViolation("a balance was not found")
