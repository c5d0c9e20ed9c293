"""The same request twice has one effect: the reply is stored under the caller's key, in the effect's own transaction."""

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
    """Who asked what under which key. An empty key means: not remembered."""

    account_id: str
    route: str
    key: str
    request_hash: str
    credential: str = ""  #: what the caller signed in with; never stored

    def lock(self) -> Fernet:
        """Opens only for who has the credential: a reply with a secret in it must not lie readable in the database."""
        words = f"{self.credential}\n{self.account_id}\n{self.route}\n{self.key}".encode()
        return Fernet(base64.urlsafe_b64encode(hashlib.sha256(words).digest()))


def once(
    tx: Tx, remembered: Remembered, effect: Callable[[], M], *, model: type[M], sealed: bool = False
) -> M:
    """The stored reply if this request was answered before, else the effect's own, stored with it."""
    if not remembered.key:
        return effect()
    scope = {"account_id": remembered.account_id, "route": remembered.route, "key": remembered.key}
    row = account_rows.get_reply(tx.connection, **scope)
    if row is not None:
        if row.request_hash != remembered.request_hash:
            raise Conflict("This idempotency key was used for a different request.", field="Idempotency-Key")
        return model.model_validate_json(_unseal(remembered, row.reply) if sealed else row.reply)
    reply = effect()
    text = reply.model_dump_json()
    if sealed:
        text = remembered.lock().encrypt(text.encode()).decode()
    account_rows.insert_reply(tx, **scope, request_hash=remembered.request_hash, reply=text)
    return reply


async def find(hub: Hub, remembered: Remembered, *, model: type[M]) -> M | None:
    """The reply that this very request got before, if any."""
    if not remembered.key:
        return None
    scope = {"account_id": remembered.account_id, "route": remembered.route, "key": remembered.key}
    row = await hub.store.read(lambda connection: account_rows.get_reply(connection, **scope))
    if row is None or row.request_hash != remembered.request_hash:
        return None
    return model.model_validate_json(row.reply)


def _unseal(remembered: Remembered, text: str) -> bytes:
    try:
        return remembered.lock().decrypt(text)
    except InvalidToken:
        raise Conflict(
            "This was answered before, to another key of yours; the secret in it is shown to that one only.",
            field="Idempotency-Key",
        ) from None
