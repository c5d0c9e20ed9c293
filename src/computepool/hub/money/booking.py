"""Writing transfers at the end of a transaction: balances, then rows that carry the hash chain on.

Called once for all units of a transaction, while no other hub numbers anything: so the numbers are those of the commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from computepool.core.errors import InvariantViolation
from computepool.core.money import ledger
from computepool.core.money.ledger import Leg
from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.crashpoints import crash_point
from computepool.hub.db.money_tables import balances, transfers

_LAST = select(transfers.c.seq, transfers.c.hash, transfers.c.at_ms).order_by(transfers.c.seq.desc()).limit(1)
_INSERT = Prepared(transfers.insert())
_OPEN = Prepared(lambda connection: dialect.insert_ignore(connection, balances))
_CHANGE = Prepared(
    update(balances)
    .where(balances.c.account == bindparam("name"))
    .values(balance=balances.c.balance + bindparam("delta"))
)
_BALANCE = select(balances.c.balance).where(balances.c.account == bindparam("name"))


def rows_of(key: str, legs: Sequence[Leg], *, job_id: str | None, ref: str | None) -> list[dict[str, Any]]:
    """Unnumbered rows. `key` names what happened; it can happen once."""
    return [
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


def balance_of(connection: Connection, account: str) -> int:
    """As the last commit left it."""
    return connection.execute(_BALANCE, {"name": account}).scalar() or 0


def write(
    connection: Connection, rows: Sequence[dict[str, Any]], changes: Mapping[str, int], *, now_ms: int
) -> None:
    _change_balances(connection, changes)
    crash_point("in_booking")
    last = connection.execute(_LAST).first()
    seq, previous = (last.seq, last.hash) if last is not None else (0, ledger.GENESIS)
    # Another hub's clock may be ahead of this one's; the ledger's time never goes back.
    at_ms = max(now_ms, last.at_ms) if last is not None else now_ms
    for row in rows:
        seq += 1
        row["seq"], row["at_ms"] = seq, at_ms
        previous = row["hash"] = ledger.chain_hash(previous, row)
    _INSERT.execute(connection, rows)


def _change_balances(connection: Connection, changes: Mapping[str, int]) -> None:
    """In sorted order, as everywhere where rows are locked."""
    moved = sorted((name, delta) for name, delta in changes.items() if delta)
    if not moved:
        return
    fresh = [{"account": name, "balance": 0, "can_overdraw": name in ledger.OVERDRAWN} for name, _ in moved]
    # Not an upsert: SQLite judges the row to be inserted before it finds that there is one to update.
    _OPEN.execute(connection, fresh)
    changed = _CHANGE.execute(connection, [{"name": name, "delta": delta} for name, delta in moved])
    if changed != len(moved):
        raise InvariantViolation("a balance was not found")
