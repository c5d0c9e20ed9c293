"""Secrets of accounts: set, list, remove. No reply, event or log contains a value."""

from __future__ import annotations

from computepool.core.errors import NotFound, TooLarge
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity.access import Principal
from computepool.hub.secrets import rows
from computepool.hub.secrets.encryption import Cipher
from computepool.hub.secrets.rows import SecretRow
from computepool.protocol.secrets import SecretList, SecretRequest, SecretView


async def put(hub: Hub, principal: Principal, name: str, *, request: SecretRequest) -> SecretView:
    """Create the secret, or replace its value."""
    account, settings, clock = principal.account_id, hub.settings, hub.clock
    size = len(request.value.encode())
    if size > settings.secret_bytes_max:
        raise TooLarge(
            f"A secret may have {settings.secret_bytes_max} bytes, and this one has {size}; send larger data as a sealed"
            " input, or encrypt it and store its key here.",
            field="value",
        )

    def unit(tx: Tx) -> SecretView:
        known = rows.has(tx.connection, account, name)
        if not known and rows.count_of_account(tx.connection, account) >= settings.secrets_max:
            raise TooLarge(f"An account may have {settings.secrets_max} secrets; remove one first.")
        cipher = Cipher(tx.connection, settings)
        value = cipher.encrypt(request.value, account_id=account, name=name, clock=clock)
        rows.put(tx, account_id=account, name=name, value=value, kid=cipher.kid, size=size)
        tx.emit_own(account, "secret.changed" if known else "secret.created", name=name)
        return _view(rows.by_name(tx.connection, account, {name})[name])

    return await hub.store.write(unit)


async def page(hub: Hub, principal: Principal) -> SecretList:
    found = await hub.store.read(rows.of_account, principal.account_id)
    return SecretList(secrets=[_view(row) for row in found])


async def remove(hub: Hub, principal: Principal, name: str) -> None:
    account = principal.account_id

    def unit(tx: Tx) -> None:
        if not rows.remove(tx, account_id=account, name=name):
            raise NotFound(f"You have no secret {name}.")
        tx.emit_own(account, "secret.removed", name=name)

    await hub.store.write(unit)


def _view(row: SecretRow) -> SecretView:
    return SecretView.from_attributes(row)
