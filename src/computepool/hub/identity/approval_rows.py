"""Requests of one administrator that another must agree to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select, update

from computepool.hub.db.session import AnyRow, Tx
from computepool.hub.db.tables import accounts, approvals

_WITH_NAME = select(approvals, accounts.c.name.label("asked_by_name")).join(
    accounts, accounts.c.id == approvals.c.asked_by
)


def insert(tx: Tx, **columns: Any) -> None:
    tx.connection.execute(approvals.insert().values(asked_at_ms=tx.now_ms, state="pending", **columns))


def get(connection: Connection, approval_id: str) -> AnyRow | None:
    return connection.execute(_WITH_NAME.where(approvals.c.id == approval_id)).first()


def list_pending(connection: Connection, *, since_ms: int, limit: int) -> Sequence[AnyRow]:
    """Oldest first; what nobody agreed to in time has lapsed."""
    statement = _WITH_NAME.where(approvals.c.state == "pending", approvals.c.asked_at_ms > since_ms)
    return connection.execute(statement.order_by(approvals.c.id).limit(limit)).all()


def decide(tx: Tx, approval_id: str, *, state: str, by: str, reason: str | None) -> bool:
    """False when somebody was faster."""
    statement = (
        update(approvals)
        .where(approvals.c.id == approval_id, approvals.c.state == "pending")
        .values(state=state, decided_by=by, decided_at_ms=tx.now_ms, reason=reason)
    )
    return tx.connection.execute(statement).rowcount == 1
