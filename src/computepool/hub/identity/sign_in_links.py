"""Sign-in links that an administrator makes for somebody: good once, and no way around what keys may do."""

from __future__ import annotations

import json

from computepool.core.errors import Forbidden, NotFound
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity import access, keys, sign_in
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.access import Principal
from computepool.hub.snapshot import take
from computepool.protocol.accounts import LinkReply


async def create(hub: Hub, admin: Principal, account_id: str) -> LinkReply:
    """Whoever opens it is that account, for everything it may do: so the key that makes one must be for everything, too."""
    access.check_not_pools(account_id)
    if admin.scopes is not None:
        raise Forbidden(
            "A link opens everything the account may do; only a key without scopes, or a browser, makes one."
        )

    snapshot, life_s = take(hub), hub.settings.signin_code_life_s

    def unit(tx: Tx) -> tuple[str, int]:
        if account_rows.get_account(tx.connection, account_id) is None:
            raise NotFound("There is no such account.")
        keys.check_not_impersonating(tx, admin, owner=account_id, settings=snapshot.settings)
        maker = account_rows.get_key(tx.connection, admin.key_id)
        if maker is not None and maker.kind == "key" and maker.expires_at_ms is not None:
            raise Forbidden(
                "This key ends, and what a link makes need not; use one without an end, or a browser."
            )
        code, expires_at_ms = sign_in.issue_code(
            tx, snapshot, purpose="signin", account_id=account_id, life_s=life_s
        )
        data = json.dumps({"expires_at_ms": expires_at_ms})
        tx.emit(actor=admin.account_id, action="account.link_issued", account_id=account_id, data=data)
        return code, expires_at_ms

    code, expires_at_ms = await hub.store.write(unit)
    link = f"{hub.settings.address}/signin?code={code}"
    return LinkReply(account_id=account_id, link=link, code=code, expires_at_ms=expires_at_ms)
