"""Approvals: requests that need a second administrator, such as credits without payment, new administrators and payouts.

The operator chooses which (COMPUTEPOOL_TWO_PERSON). A request is stored as it was made, and takes effect in the
transaction in which another administrator approves it. Payouts keep their own state (payouts.py) and are only listed here.
"""

from __future__ import annotations

import json
from typing import Any

from computepool.core.errors import Conflict, Forbidden
from computepool.core.money.money import format_credits
from computepool.core.money.payouts import PayoutState
from computepool.hub.approvals import rows
from computepool.hub.approvals.rows import ApprovalRow
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import access, roles
from computepool.hub.identity.access import Principal
from computepool.hub.money import credits as credit_service, new_accounts
from computepool.hub.money.payouts import payouts, rows as payout_rows
from computepool.hub.money.payouts.rows import PayoutRow
from computepool.hub.nodes import rows as node_rows
from computepool.hub.settings import Settings
from computepool.hub.snapshot import Snapshot, take
from computepool.hub.trust import reputation
from computepool.protocol.accounts import ApprovalList, ApprovalView
from computepool.protocol.money.credits import TopUpRequest

PAYOUT = "payout"
_LIST_MAX = 500


async def list_pending(hub: Hub, admin: Principal) -> ApprovalList:
    """Every request that waits for a decision, including payouts."""
    since_ms = hub.now_ms() - round(hub.settings.approval_lifetime_s * 1000)

    def load(connection: Connection) -> list[ApprovalView]:
        found = rows.list_pending(connection, since_ms=since_ms, limit=_LIST_MAX)
        waiting = payout_rows.list_payouts(
            connection, account_id=None, state=PayoutState.REQUESTED.value, before=None, limit=_LIST_MAX
        )
        return [_view(row, admin) for row in found] + [_payout_view(hub, row, admin) for row in waiting]

    return ApprovalList(approvals=await hub.store.read(load))


def _view(row: ApprovalRow, admin: Principal) -> ApprovalView:
    return ApprovalView.from_attributes(
        row,
        summary=_summary(row.kind, json.loads(row.request)),
        requested_by=row.requested_by_name,
        can_approve=row.state == "pending" and row.requested_by != admin.account_id,
    )


def _summary(kind: str, details: dict[str, Any]) -> str:
    """`details`: the request as it was stored."""
    if kind == rows.TOP_UP:
        request = TopUpRequest.model_validate(details)
        summary = f"{format_credits(request.amount)} credits ({request.source}) for {request.account}"
        return f"{summary}: {request.note}" if request.note else summary
    if kind == rows.GRANT:
        return f"{format_credits(details['amount'])} credits to begin with for the new account {details['name']}"
    if kind == rows.ROLES:
        return f"{details['name']} becomes {', '.join(details['roles'])}"
    what = "ban" if details["banned"] else "probation"
    node = f"{details['name']} ({details['node_id']})"
    summary = f"lift the {what} of {node}, {details['wrong']} of whose results were proven wrong"
    return f"{summary}: {details['note']}" if details["note"] else summary


def _payout_view(hub: Hub, row: PayoutRow, admin: Principal) -> ApprovalView:
    return ApprovalView(
        id=row.id,
        kind=PAYOUT,
        summary=f"{format_credits(row.amount)} credits to {row.account_name}",
        requested_by=row.account_name,
        requested_at_ms=row.created_at_ms,
        state="pending",
        approved_by=row.approved_by,
        can_approve=payouts.can_approve(row, admin, hub.settings),
    )


async def approve(hub: Hub, admin: Principal, approval_id: str) -> ApprovalView:
    snapshot = take(hub)

    def unit(tx: Tx) -> ApprovalView:
        row = _find_pending(tx, approval_id, settings=snapshot.settings)
        if row.requested_by == admin.account_id:
            raise Forbidden("Another administrator must approve your request.")
        _decide(tx, row, admin, state="approved", reason=None)
        _apply(tx, snapshot, row, admin=admin)
        return _view(_find(tx.connection, approval_id), admin)

    return await hub.store.write(unit)


def _apply(tx: Tx, snapshot: Snapshot, row: ApprovalRow, *, admin: Principal) -> None:
    details = json.loads(row.request)
    if row.kind == rows.TOP_UP:
        request = TopUpRequest.model_validate(details)
        credit_service.give(tx, snapshot, request, actor=row.requested_by, top_up_id=f"top_{row.id}")
    elif row.kind == rows.GRANT:
        new_accounts.grant_credits(tx, details["account_id"], amount=details["amount"], table=snapshot.table)
    elif row.kind == rows.ROLES:
        roles.change_in(tx, details["account_id"], roles=details["roles"], actor=row.requested_by)
    elif (node := node_rows.get_node(tx.connection, details["node_id"])) is not None:
        reputation.emit_pardoned(tx, node, actor=admin.account_id)


async def reject(hub: Hub, admin: Principal, approval_id: str, *, reason: str) -> ApprovalView:
    """Reject a request, or withdraw one's own."""
    settings = hub.settings

    def unit(tx: Tx) -> ApprovalView:
        row = _find_pending(tx, approval_id, settings=settings)
        _decide(tx, row, admin, state="rejected", reason=reason)
        return _view(_find(tx.connection, approval_id), admin)

    return await hub.store.write(unit)


def _find_pending(tx: Tx, approval_id: str, *, settings: Settings) -> ApprovalRow:
    row = _find(tx.connection, approval_id)
    if row.state != "pending":
        raise Conflict(f"This request was already {row.state}.")
    if tx.now_ms - row.requested_at_ms > settings.approval_lifetime_s * 1000:
        raise Conflict("The request expired without approval; submit it again.")
    return row


def _decide(tx: Tx, row: ApprovalRow, admin: Principal, *, state: str, reason: str | None) -> None:
    if not rows.decide(tx, row.id, state=state, by=admin.account_id, reason=reason):
        raise Conflict("Another administrator decided at the same time; reload and try again.")
    data = {"approval_id": row.id, "kind": row.kind, "requested_by": row.requested_by}
    tx.emit(actor=admin.account_id, action=f"approval.{state}", account_id=row.requested_by, data=data)


def _find(connection: Connection, approval_id: str) -> ApprovalRow:
    return access.require_found(rows.get(connection, approval_id), what="approval")
