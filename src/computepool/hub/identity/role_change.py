"""An administrator's wish to change somebody's roles: done at once, or kept for a second administrator."""

from __future__ import annotations

import json

from computepool.core.errors import NotFound
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity import access, approvals, roles
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.access import Principal
from computepool.hub.identity.sign_in import account_view
from computepool.protocol.accounts import AccountView, RolesRequest


async def change(hub: Hub, admin: Principal, account_id: str, *, request: RolesRequest) -> AccountView:
    settings, clock = hub.settings, hub.clock

    def unit(tx: Tx) -> AccountView:
        row = account_rows.get_account(tx.connection, account_id)
        if row is None:
            raise NotFound("There is no such account.")
        access.check_not_pools(account_id)
        if "roles" not in settings.two_person_kinds():
            return account_view(roles.change_in(tx, account_id, roles=request.roles, actor=admin.account_id))
        asked = {"account_id": account_id, "name": row.name, "roles": request.roles}
        approval_id = approvals.ask(tx, clock, admin, kind=approvals.ROLES, request=json.dumps(asked))
        return account_view(row).model_copy(update={"approval_id": approval_id})

    return await hub.store.write(unit)
