"""Roles of an account: changed at once, or after a second administrator approves. One administrator always remains."""

from __future__ import annotations

from collections.abc import Sequence

from computepool.core.errors import Conflict
from computepool.hub.approvals import rows as approval_rows
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity import access, rows as account_rows
from computepool.hub.identity.access import Principal, Role
from computepool.hub.identity.authenticator import KEYS_TOPIC
from computepool.hub.identity.rows import AccountRow
from computepool.hub.identity.sign_in import account_view
from computepool.protocol.accounts import AccountView, RolesRequest


async def change(hub: Hub, admin: Principal, account_id: str, *, request: RolesRequest) -> AccountView:
    settings, clock = hub.settings, hub.clock

    def unit(tx: Tx) -> AccountView:
        row = _changeable(tx, account_id)
        if "roles" not in settings.two_person_kinds():
            return account_view(change_in(tx, account_id, roles=request.roles, actor=admin.account_id))
        details = {"account_id": account_id, "name": row.name, "roles": request.roles}
        approval_id = approval_rows.ask(tx, clock, admin.account_id, kind=approval_rows.ROLES, request=details)
        return account_view(row).model_copy(update={"approval_id": approval_id})

    return await hub.store.write(unit)


def _changeable(tx: Tx, account_id: str) -> AccountRow:
    row = access.require_found(account_rows.get_account(tx.connection, account_id), what="account")
    access.check_not_pools(account_id)
    return row


def change_in(tx: Tx, account_id: str, *, roles: Sequence[str], actor: str) -> AccountRow:
    before = _changeable(tx, account_id)
    account_rows.lock_admins(tx)  # else two hubs could demote the last two at once
    account_rows.set_account(tx, account_id, roles=",".join(sorted(set(roles))))
    if Role.ADMIN not in roles and not account_rows.count_admins(tx.connection):
        raise Conflict("This is the last administrator; add another one first.", field="roles")
    data = {"before": before.roles.split(","), "after": sorted(set(roles))}
    tx.emit(actor=actor, action="account.roles", account_id=account_id, data=data)
    tx.touch(KEYS_TOPIC)
    return _changeable(tx, account_id)
