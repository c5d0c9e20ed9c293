"""Two persons for what one should not do alone: credits out of nothing, who is an administrator, money that leaves.

The operator chooses (COMPUTEPOOL_TWO_PERSON). What was asked is kept as it was asked, and happens in the transaction in
which a second administrator agrees. Payouts keep their own state (payouts.py); here they are only listed with the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from computepool.core.errors import Conflict, Forbidden, NotFound
from computepool.core.money.money import format_credits
from computepool.core.money.payouts import PayoutState
from computepool.hub.approvals import rows
from computepool.hub.approvals.rows import ApprovalRow
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import roles
from computepool.hub.identity.access import Principal
from computepool.hub.identity.approval_requests import GRANT, REVIEW, ROLES, TOP_UP
from computepool.hub.money import credits as credit_service
from computepool.hub.money import new_accounts
from computepool.hub.money.payouts import rows as payout_rows
from computepool.hub.money.payouts.rows import PayoutRow
from computepool.hub.nodes import rows as node_rows
from computepool.hub.settings import Settings
from computepool.hub.snapshot import Snapshot, take
from computepool.hub.trust import reputation
from computepool.protocol.accounts import ApprovalList, ApprovalView, RolesRequest
from computepool.protocol.money.credits import TopUpRequest

PAYOUT = "payout"
_LIST_MAX = 500


@dataclass(frozen=True, slots=True)
class _Kind:
    summary: Callable[[dict[str, object]], str]
    effect: Callable[[Tx, Snapshot, ApprovalRow], None]


def _top_up_words(details: dict[str, object]) -> str:
    request = TopUpRequest.model_validate(details)
    words = f"{format_credits(request.amount)} credits ({request.source}) for {request.account}"
    return f"{words}: {request.note}" if request.note else words


def _top_up(tx: Tx, snapshot: Snapshot, row: ApprovalRow) -> None:
    request = TopUpRequest.model_validate_json(row.request)
    credit_service.give(tx, snapshot, request, actor=row.requested_by, top_up_id=f"top_{row.id}")


def _grant_words(details: dict[str, object]) -> str:
    return f"{format_credits(int(str(details['amount'])))} credits to begin with for the new account {details['name']}"


def _grant(tx: Tx, snapshot: Snapshot, row: ApprovalRow) -> None:
    details = json.loads(row.request)
    new_accounts.welcome(tx, details["account_id"], amount=details["amount"], table=snapshot.table)


def _roles_words(details: dict[str, object]) -> str:
    request = RolesRequest.model_validate({"roles": details["roles"]})
    return f"{details['name']} becomes {', '.join(request.roles)}"


def _roles(tx: Tx, snapshot: Snapshot, row: ApprovalRow) -> None:
    details = json.loads(row.request)
    roles.change_in(tx, details["account_id"], roles=details["roles"], actor=row.requested_by)


def _review_words(details: dict[str, object]) -> str:
    what = "ban" if details["banned"] else "probation"
    node = f"{details['name']} ({details['node_id']})"
    words = f"take back the {what} of {node}, {details['wrong']} of whose results were proven wrong"
    return f"{words}: {details['note']}" if details["note"] else words


def _review(tx: Tx, snapshot: Snapshot, row: ApprovalRow) -> None:
    node = node_rows.get_node(tx.connection, json.loads(row.request)["node_id"])
    decided_by = _find(tx.connection, row.id).decided_by
    assert decided_by is not None
    if node is not None:
        reputation.emit_pardoned(tx, node, actor=decided_by)


_KINDS = {
    TOP_UP: _Kind(_top_up_words, _top_up),
    GRANT: _Kind(_grant_words, _grant),
    ROLES: _Kind(_roles_words, _roles),
    REVIEW: _Kind(_review_words, _review),
}


async def pending(hub: Hub, admin: Principal) -> ApprovalList:
    """Everything that waits for somebody's word, payouts too."""
    since_ms = hub.now_ms() - round(hub.settings.approval_lifetime_s * 1000)

    def load(connection: Connection) -> list[ApprovalView]:
        found = rows.list_pending(connection, since_ms=since_ms, limit=_LIST_MAX)
        waiting = payout_rows.list_payouts(
            connection, account_id=None, state=PayoutState.REQUESTED.value, before=None, limit=_LIST_MAX
        )
        return [_view(row, admin) for row in found] + [_payout(hub, row, admin) for row in waiting]

    return ApprovalList(approvals=await hub.store.read(load))


def _view(row: ApprovalRow, admin: Principal) -> ApprovalView:
    return ApprovalView.from_attributes(
        row,
        summary=_KINDS[row.kind].summary(json.loads(row.request)),
        requested_by=row.requested_by_name,
        can_approve=row.state == "pending" and row.requested_by != admin.account_id,
    )


def _payout(hub: Hub, row: PayoutRow, admin: Principal) -> ApprovalView:
    two = "payouts" in hub.settings.two_person_kinds()
    return ApprovalView(
        id=row.id,
        kind=PAYOUT,
        summary=f"{format_credits(row.amount)} credits to {row.account_name}",
        requested_by=row.account_name,
        requested_at_ms=row.created_at_ms,
        state="pending",
        approved_by=row.approved_by,
        can_approve=not two or admin.account_id not in (row.account_id, row.approved_by),
    )


async def approve(hub: Hub, admin: Principal, approval_id: str) -> ApprovalView:
    snapshot = take(hub)

    def unit(tx: Tx) -> ApprovalView:
        row = _waiting(tx, approval_id, settings=snapshot.settings)
        if row.requested_by == admin.account_id:
            raise Forbidden("Another administrator must approve your request.")
        _decide(tx, row, admin, state="approved", reason=None)
        _KINDS[row.kind].effect(tx, snapshot, row)
        return _view(_find(tx.connection, approval_id), admin)

    return await hub.store.write(unit)


async def reject(hub: Hub, admin: Principal, approval_id: str, *, reason: str) -> ApprovalView:
    """Anybody who might agree, and who asked."""
    settings = hub.settings

    def unit(tx: Tx) -> ApprovalView:
        row = _waiting(tx, approval_id, settings=settings)
        _decide(tx, row, admin, state="rejected", reason=reason)
        return _view(_find(tx.connection, approval_id), admin)

    return await hub.store.write(unit)


def _waiting(tx: Tx, approval_id: str, *, settings: Settings) -> ApprovalRow:
    row = _find(tx.connection, approval_id)
    if row.state != "pending":
        raise Conflict(f"This was {row.state} already.")
    if tx.now_ms - row.requested_at_ms > settings.approval_lifetime_s * 1000:
        raise Conflict("The request expired without approval; submit it again.")
    return row


def _decide(tx: Tx, row: ApprovalRow, admin: Principal, *, state: str, reason: str | None) -> None:
    if not rows.decide(tx, row.id, state=state, by=admin.account_id, reason=reason):
        raise Conflict("This was decided concurrently; reload and try again.")
    data = json.dumps({"approval_id": row.id, "kind": row.kind, "requested_by": row.requested_by})
    tx.emit(actor=admin.account_id, action=f"approval.{state}", account_id=row.requested_by, data=data)


def _find(connection: Connection, approval_id: str) -> ApprovalRow:
    row = rows.get(connection, approval_id)
    if row is None:
        raise NotFound("There is no such approval.")
    return row
