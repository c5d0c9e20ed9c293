"""Accounts, API keys, one-time codes, the hub's secrets, and idempotency records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, bindparam, delete, or_, select, update

from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.group_tables import idempotency
from computepool.hub.db.queries import by_key, count, matches, set_where
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import accounts, api_keys, codes, hubs, secrets
from computepool.hub.db.typed_rows import TypedRow


class AccountRow(TypedRow, of=accounts):
    id: str
    name: str
    roles: str
    created_at_ms: int
    floor: int | None
    jobs_open_max: int | None
    spend_per_day_max: int | None
    artifact_bytes_max: int | None
    artifact_keep_s: int | None


class KeyRow(
    TypedRow,
    of=(api_keys, accounts.c.name.label("account_name")),
    joined=api_keys.join(accounts, accounts.c.id == api_keys.c.account_id),
):
    """A key without its hash."""

    id: str
    account_id: str
    kind: str
    name: str
    created_at_ms: int
    expires_at_ms: int | None
    last_used_ms: int | None
    revoked_at_ms: int | None
    scopes: str | None
    account_name: str


class CheckedKey(KeyRow, of=(api_keys, accounts)):
    hash: str
    roles: str


class CodeRow(TypedRow, of=codes):
    hash: str
    purpose: str
    account_id: str
    expires_at_ms: int
    used_at_ms: int | None
    uses: int
    uses_max: int | None


class StoredReply(TypedRow, of=idempotency):
    request_hash: str
    reply: str


#: A hub that was seen within this time is alive.
HUB_FRESH_MS = 30_000
_NOW = bindparam("now", type_=BigInteger)
_IS_LEFT = codes.c.uses < codes.c.uses_max
#: A code without a number of uses works once. The write that checks a use also counts it.
_USE_CODE = Prepared(
    update(codes)
    .where(codes.c.hash == bindparam("code"), codes.c.purpose == bindparam("meant"), codes.c.expires_at_ms > _NOW)
    .where(_IS_LEFT | (codes.c.uses_max.is_(None) & codes.c.used_at_ms.is_(None)))
    .values(used_at_ms=_NOW, uses=codes.c.uses + 1)
    .returning(codes.c.account_id)
)
_CODE = Prepared(CodeRow.select().where(codes.c.hash == bindparam("code")))
_INSERT_REPLY = Prepared(idempotency.insert())
_REPLY = Prepared(
    StoredReply.select().where(
        idempotency.c.account_id == bindparam("account"),
        idempotency.c.route == bindparam("path"),
        idempotency.c.key == bindparam("word"),
    )
)


def insert_account(tx: Tx, *, account_id: str, name: str, roles: Sequence[str]) -> bool:
    """False when the name is taken."""
    statement = dialect.insert_ignore(tx.connection, accounts).values(
        id=account_id, name=name, roles=",".join(roles), created_at_ms=tx.now_ms
    )
    return tx.connection.execute(statement.returning(accounts.c.id)).first() is not None


def get_account(connection: Connection, account_id: str) -> AccountRow | None:
    return AccountRow.find(connection, accounts.c.id == account_id)


def lock_accounts(tx: Tx, account_ids: Iterable[str]) -> None:
    """Whoever else locks them waits until this transaction ends. Foreign keys to them are not blocked."""
    matching = select(accounts.c.id).where(dialect.among(tx.connection, accounts.c.id, sorted(set(account_ids))))
    tx.connection.execute(matching.order_by(accounts.c.id).with_for_update(key_share=True))


def set_account(tx: Tx, account_id: str, **columns: str | int | None) -> bool:
    """False when there is none."""
    return set_where(tx, accounts, accounts.c.id == account_id, **columns) == 1


def lock_admins(tx: Tx) -> None:
    matching = select(accounts.c.id).where(accounts.c.roles.contains("admin")).order_by(accounts.c.id)
    tx.connection.execute(matching.with_for_update(key_share=True))


def count_admins(connection: Connection) -> int:
    return sum("admin" in roles.split(",") for roles in connection.execute(select(accounts.c.roles)).scalars())


def find_account(connection: Connection, word: str) -> AccountRow | None:
    """By its id, or else by its exact name."""
    return get_account(connection, word) or AccountRow.find(connection, accounts.c.name == word)


def get_names(connection: Connection, account_ids: Sequence[str]) -> dict[str, str]:
    return by_key(connection, accounts.c.name, key=accounts.c.id, among=account_ids)


def list_accounts(connection: Connection, *, after: str, limit: int) -> list[AccountRow]:
    return AccountRow.fetch(connection, accounts.c.id > after, order=accounts.c.id, limit=limit)


def insert_key(tx: Tx, **columns: Any) -> None:
    tx.connection.execute(api_keys.insert().values(created_at_ms=tx.now_ms, **columns))


def get_key(connection: Connection, key_id: str) -> CheckedKey | None:
    return CheckedKey.find(connection, api_keys.c.id == key_id)


def list_keys(
    connection: Connection, *, account_id: str | None, kinds: Sequence[str], after: str, limit: int
) -> list[KeyRow]:
    """`account_id` None: keys of all accounts."""
    which = api_keys.c.kind.in_(kinds), api_keys.c.id > after, matches(api_keys.c.account_id, account_id)
    return KeyRow.fetch(connection, *which, order=api_keys.c.id, limit=limit)


def revoke_key(tx: Tx, key_id: str) -> bool:
    return _revoke(tx, api_keys.c.id == key_id) == 1


def revoke_keys_of(tx: Tx, *, account_id: str, but: str = "") -> int:
    """Revoke keys and sessions. Returns how many were valid until now."""
    good = or_(api_keys.c.expires_at_ms.is_(None), api_keys.c.expires_at_ms > tx.now_ms)
    return _revoke(tx, api_keys.c.account_id == account_id, api_keys.c.id != but, good)


def revoke_keys_named(tx: Tx, *, account_id: str, name: str) -> None:
    _revoke(tx, api_keys.c.account_id == account_id, api_keys.c.name == name)


def _revoke(tx: Tx, *which: ColumnElement[bool]) -> int:
    return set_where(tx, api_keys, *which, api_keys.c.revoked_at_ms.is_(None), revoked_at_ms=tx.now_ms)


def end_key(tx: Tx, key_id: str, *, at_ms: int) -> None:
    set_where(tx, api_keys, api_keys.c.id == key_id, expires_at_ms=at_ms)


def touch_keys(tx: Tx, used: dict[str, int]) -> None:
    for key_id, at_ms in sorted(used.items()):
        set_where(tx, api_keys, api_keys.c.id == key_id, last_used_ms=at_ms)


def insert_code(tx: Tx, **columns: str | int | None) -> None:
    tx.connection.execute(codes.insert().values(columns))


def use_code(tx: Tx, *, code_hash: str, purpose: str) -> str | None:
    """The account the code stands for; None if it is used up, expired, or for another purpose."""
    owner = _USE_CODE.first(tx.connection, code=code_hash, meant=purpose, now=tx.now_ms)
    return None if owner is None else owner[0]


def get_code(connection: Connection, code_hash: str) -> CodeRow | None:
    return CodeRow.one(_CODE.first(connection, code=code_hash))


def list_join_codes(connection: Connection, *, account_id: str, now_ms: int) -> list[CodeRow]:
    """Those that still work, newest last."""
    which = codes.c.account_id == account_id, codes.c.purpose == "join", _IS_LEFT, codes.c.expires_at_ms > now_ms
    return CodeRow.fetch(connection, *which, order=(codes.c.expires_at_ms, codes.c.hash))


def end_join_codes(tx: Tx, *, account_id: str) -> None:
    _end(tx, codes.c.account_id == account_id, codes.c.purpose == "join")


def find_code(connection: Connection, name: str, *, account_id: str | None, purposes: Sequence[str]) -> CodeRow | None:
    """By the beginning of its hash; `account_id` None: of any account."""
    # A hash is hexadecimal; a range is a condition for which both databases use their index.
    named = codes.c.hash >= name, codes.c.hash < f"{name}g"
    which = *named, codes.c.purpose.in_(purposes), matches(codes.c.account_id, account_id)
    return next(iter(CodeRow.fetch(connection, *which, order=codes.c.hash, limit=1)), None)


def end_code(tx: Tx, code_hash: str) -> None:
    _end(tx, codes.c.hash == code_hash)


def _end(tx: Tx, *which: ColumnElement[bool]) -> None:
    set_where(tx, codes, *which, codes.c.expires_at_ms > tx.now_ms, expires_at_ms=tx.now_ms)


def used_code_owner(connection: Connection, *, code_hash: str, purposes: Sequence[str]) -> str | None:
    """The account of a used code."""
    statement = select(codes.c.account_id).where(
        codes.c.hash == code_hash, codes.c.purpose.in_(purposes), codes.c.used_at_ms.is_not(None)
    )
    return connection.execute(statement).scalar()


def prune_codes(tx: Tx, *, before_ms: int) -> None:
    tx.connection.execute(delete(codes).where(codes.c.expires_at_ms < before_ms))


def get_secrets(connection: Connection) -> dict[str, str]:
    """Oldest first; the order is the same for every hub."""
    rows = connection.execute(select(secrets).order_by(secrets.c.created_at_ms, secrets.c.name))
    return {row.name: row.value for row in rows}


def insert_secret(tx: Tx, *, name: str, value: str) -> bool:
    """False if it exists: of hubs that start together, one creates it and the others find it."""
    statement = dialect.insert_ignore(tx.connection, secrets).values(name=name, value=value, created_at_ms=tx.now_ms)
    return tx.connection.execute(statement.returning(secrets.c.name)).first() is not None


def beat_hub(tx: Tx, *, hub_id: str, address: str) -> None:
    statement = dialect.upsert(tx.connection, hubs, key=["id"], update=["address", "seen_at_ms"])
    tx.connection.execute(statement.values(id=hub_id, address=address, seen_at_ms=tx.now_ms))


def remove_hub(tx: Tx, *, hub_id: str) -> None:
    tx.connection.execute(delete(hubs).where(hubs.c.id == hub_id))


def other_hubs(connection: Connection, *, hub_id: str, since_ms: int) -> int:
    return count(connection, hubs.c.id != hub_id, hubs.c.seen_at_ms >= since_ms)


def live_address(connection: Connection, *, since_ms: int) -> str | None:
    """The address of a hub that serves this database, if any does."""
    statement = select(hubs.c.address).where(hubs.c.seen_at_ms >= since_ms).order_by(hubs.c.seen_at_ms.desc())
    return connection.execute(statement).scalars().first()


def get_reply(connection: Connection, *, account_id: str, route: str, key: str) -> StoredReply | None:
    return StoredReply.one(_REPLY.first(connection, account=account_id, path=route, word=key))


def insert_reply(tx: Tx, **columns: str) -> None:
    _INSERT_REPLY.execute(tx.connection, [{**columns, "created_at_ms": tx.now_ms}])


def prune_replies(tx: Tx, *, before_ms: int) -> None:
    tx.connection.execute(delete(idempotency).where(idempotency.c.created_at_ms < before_ms))
