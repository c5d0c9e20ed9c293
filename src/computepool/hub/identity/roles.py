"""Changes of an account's roles. There is always an administrator left."""

from __future__ import annotations

import json
from collections.abc import Sequence

from computepool.core.errors import Conflict, NotFound
from computepool.hub.db.session import Tx
from computepool.hub.identity import access
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.access import Role
from computepool.hub.identity.rows import AccountRow
from computepool.hub.identity.sign_in import KEYS_TOPIC


def change_in(tx: Tx, account_id: str, *, roles: Sequence[str], actor: str) -> AccountRow:
    before = account_rows.get_account(tx.connection, account_id)
    if before is None:
        raise NotFound("There is no such account.")
    access.check_not_pools(account_id)
    account_rows.lock_admins(tx)  # or two hubs could take the last two at once
    account_rows.set_roles(tx, account_id, roles=sorted(set(roles)))
    if Role.ADMIN not in roles and not account_rows.count_admins(tx.connection):
        raise Conflict("This is the last administrator; make another one first.", field="roles")
    data = json.dumps({"before": before.roles.split(","), "after": sorted(set(roles))})
    tx.emit(actor=actor, action="account.roles", account_id=account_id, data=data)
    tx.touch(KEYS_TOPIC)
    after = account_rows.get_account(tx.connection, account_id)
    assert after is not None
    return after
