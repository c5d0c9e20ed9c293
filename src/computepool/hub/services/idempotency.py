"""The same request twice has one effect: the reply is stored under the caller's key, in the effect's own transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel

from computepool.core.errors import Conflict
from computepool.hub.store import accounts
from computepool.hub.store.session import Tx

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """Who asked what under which key. An empty key means: not remembered."""

    account_id: str
    route: str
    key: str
    request_hash: str


def once(tx: Tx, remembered: Remembered, model: type[M], effect: Callable[[], M]) -> M:
    """The stored reply if this request was answered before, else the effect's own, stored with it."""
    if not remembered.key:
        return effect()
    scope = {"account_id": remembered.account_id, "route": remembered.route, "key": remembered.key}
    row = accounts.get_reply(tx.connection, **scope)
    if row is not None:
        if row.request_hash != remembered.request_hash:
            raise Conflict("This idempotency key was used for a different request.", field="Idempotency-Key")
        return model.model_validate_json(row.reply)
    reply = effect()
    accounts.insert_reply(tx, **scope, request_hash=remembered.request_hash, reply=reply.model_dump_json())
    return reply
