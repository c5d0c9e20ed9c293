"""Requests of one administrator that another must agree to."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from computepool.hub.db.queries import set_where
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import accounts, approvals
from computepool.hub.db.typed_rows import TypedRow


class ApprovalRow(TypedRow, of=(approvals, accounts.c.name.label("requested_by_name"))):
    id: str
    kind: str
    request: str
    requested_by: str
    requested_at_ms: int
    state: str
    decided_by: str | None
    decided_at_ms: int | None
    reason: str | None
    requested_by_name: str


_WITH_NAME = ApprovalRow.select().join(accounts, accounts.c.id == approvals.c.requested_by)


def insert(tx: Tx, **columns: Any) -> None:
    tx.connection.execute(approvals.insert().values(requested_at_ms=tx.now_ms, state="pending", **columns))


def get(connection: Connection, approval_id: str) -> ApprovalRow | None:
    return ApprovalRow.first(connection.execute(_WITH_NAME.where(approvals.c.id == approval_id)))


def list_pending(connection: Connection, *, since_ms: int, limit: int) -> list[ApprovalRow]:
    """Oldest first; what nobody agreed to in time has lapsed."""
    statement = _WITH_NAME.where(approvals.c.state == "pending", approvals.c.requested_at_ms > since_ms)
    return ApprovalRow.all(connection.execute(statement.order_by(approvals.c.id).limit(limit)))


def decide(tx: Tx, approval_id: str, *, state: str, by: str, reason: str | None) -> bool:
    """False when somebody was faster."""
    pending = approvals.c.id == approval_id, approvals.c.state == "pending"
    decision = {"state": state, "decided_by": by, "decided_at_ms": tx.now_ms, "reason": reason}
    return set_where(tx, approvals, *pending, **decision) == 1
