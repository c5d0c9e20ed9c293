"""Idempotency: a repeated request has one effect. The reply is stored under the caller's key in the same transaction."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cryptography.fernet import Fernet, InvalidToken
from pydantic import BaseModel

from computepool.core.errors import Conflict
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity import rows as account_rows

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A request and its idempotency key. With an empty key, nothing is remembered."""

    account_id: str
    route: str
    key: str
    request_hash: str
    credential: str = ""  #: what the caller signed in with; never stored

    @property
    def scope(self) -> dict[str, str]:
        return {"account_id": self.account_id, "route": self.route, "key": self.key}

    def cipher(self) -> Fernet:
        """Needs the caller's credential: a reply that contains a secret must not be readable in the database."""
        text = f"{self.credential}\n{self.account_id}\n{self.route}\n{self.key}".encode()
        return Fernet(base64.urlsafe_b64encode(hashlib.sha256(text).digest()))


def once(tx: Tx, remembered: Remembered, effect: Callable[[], M], *, model: type[M], sealed: bool = False) -> M:
    """The stored reply if the request was answered before; otherwise the effect's reply, which is stored with it."""
    if not remembered.key:
        return effect()
    row = account_rows.get_reply(tx.connection, **remembered.scope)
    if row is not None:
        if row.request_hash != remembered.request_hash:
            raise Conflict("This idempotency key was used for a different request.", field="Idempotency-Key")
        return model.model_validate_json(_unseal(remembered, row.reply) if sealed else row.reply)
    reply = effect()
    text = reply.model_dump_json()
    if sealed:
        text = remembered.cipher().encrypt(text.encode()).decode()
    account_rows.insert_reply(tx, **remembered.scope, request_hash=remembered.request_hash, reply=text)
    return reply


async def write_once(
    hub: Hub, remembered: Remembered, effect: Callable[[Tx], M], *, model: type[M], sealed: bool = False
) -> M:
    """Run the effect durably, unless the request was answered before."""
    return await hub.store.write(lambda tx: once(tx, remembered, lambda: effect(tx), model=model, sealed=sealed))


async def find(hub: Hub, remembered: Remembered, *, model: type[M]) -> M | None:
    """The stored reply to this very request, if any."""
    if not remembered.key:
        return None
    row = await hub.store.read(account_rows.get_reply, **remembered.scope)
    if row is None or row.request_hash != remembered.request_hash:
        return None
    return model.model_validate_json(row.reply)


def _unseal(remembered: Remembered, text: str) -> bytes:
    try:
        return remembered.cipher().decrypt(text)
    except InvalidToken:
        raise Conflict(
            "This request was already answered to another of your keys; only that key is shown the secret in the reply.",
            field="Idempotency-Key",
        ) from None
