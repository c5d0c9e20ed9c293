"""Rows of approvals: requests as they were made, and the decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sqlalchemy import Connection

from computepool.hub.clock import Clock, new_id
from computepool.hub.db.queries import set_where
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import accounts, approvals
from computepool.hub.db.typed_rows import TypedRow

TOP_UP = "top-up"
GRANT = "sign-up grant"
ROLES = "roles"
REVIEW = "node review"


class ApprovalRow(
    TypedRow,
    of=(approvals, accounts.c.name.label("requested_by_name")),
    joined=approvals.join(accounts, accounts.c.id == approvals.c.requested_by),
):
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


def ask(tx: Tx, clock: Clock, asker: str, *, kind: str, request: Mapping[str, object]) -> str:
    """Store an account's request. Returns its id."""
    row = {"id": new_id(clock, "approval"), "kind": kind, "request": json.dumps(request), "requested_by": asker}
    tx.connection.execute(approvals.insert().values(requested_at_ms=tx.now_ms, state="pending", **row))
    data = {"approval_id": row["id"], "kind": kind, "request": request}
    tx.emit(actor=asker, action="approval.requested", account_id=asker, data=data)
    return row["id"]


def get(connection: Connection, approval_id: str) -> ApprovalRow | None:
    return ApprovalRow.find(connection, approvals.c.id == approval_id)


def list_pending(connection: Connection, *, since_ms: int, limit: int) -> list[ApprovalRow]:
    """Oldest first, without those that expired."""
    which = approvals.c.state == "pending", approvals.c.requested_at_ms > since_ms
    return ApprovalRow.fetch(connection, *which, order=approvals.c.id, limit=limit)


def decide(tx: Tx, approval_id: str, *, state: str, by: str, reason: str | None) -> bool:
    """False: another decision came first."""
    pending = approvals.c.id == approval_id, approvals.c.state == "pending"
    decision = {"state": state, "decided_by": by, "decided_at_ms": tx.now_ms, "reason": reason}
    return set_where(tx, approvals, *pending, **decision) == 1
