"""Rows of secrets. The values are encrypted."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, delete

from computepool.hub.db import dialect
from computepool.hub.db.group_tables import account_secrets
from computepool.hub.db.queries import any_row, count, set_where
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import events
from computepool.hub.db.typed_rows import TypedRow

USED = "secret.used"  #: the action of an event
_c = account_secrets.c


class SecretRow(TypedRow, of=account_secrets):
    account_id: str
    name: str
    value: str
    kid: str
    size: int
    created_at_ms: int
    changed_at_ms: int


def of_account(connection: Connection, account_id: str) -> list[SecretRow]:
    return SecretRow.fetch(connection, _c.account_id == account_id, order=_c.name)


def by_name(connection: Connection, account_id: str, names: Collection[str]) -> dict[str, SecretRow]:
    which = dialect.among(connection, _c.name, sorted(names))
    return {row.name: row for row in SecretRow.fetch(connection, _c.account_id == account_id, which)}


def has(connection: Connection, account_id: str, name: str) -> bool:
    return any_row(connection, _c.account_id == account_id, _c.name == name)


def count_of_account(connection: Connection, account_id: str) -> int:
    return count(connection, _c.account_id == account_id)


def was_used(connection: Connection, job_id: str, attempt_id: str) -> bool:
    """Whether the event that a node got the secrets of this attempt was recorded."""
    of_attempt = (events.c.job_id == job_id, events.c.attempt_id == attempt_id)
    return any_row(connection, *of_attempt, events.c.action == USED)


def put(tx: Tx, *, account_id: str, name: str, value: str, kid: str, size: int) -> None:
    changed = ("value", "kid", "size", "changed_at_ms")
    statement = dialect.upsert(tx.connection, account_secrets, key=("account_id", "name"), update=changed)
    row = {"account_id": account_id, "name": name, "value": value, "kid": kid, "size": size}
    tx.connection.execute(statement, [{**row, "created_at_ms": tx.now_ms, "changed_at_ms": tx.now_ms}])


def remove(tx: Tx, *, account_id: str, name: str) -> bool:
    """False if there is none."""
    statement = delete(account_secrets).where(_c.account_id == account_id, _c.name == name)
    return tx.connection.execute(statement).rowcount == 1


def of_keys(connection: Connection, kids: Collection[str], *, after: tuple[str, str], limit: int) -> list[SecretRow]:
    """Those encrypted with one of these keys, in the order of account and name, after the given ones."""
    account_id, name = after
    later = (_c.account_id > account_id) | ((_c.account_id == account_id) & (_c.name > name))
    which = dialect.among(connection, _c.kid, sorted(kids))
    return SecretRow.fetch(connection, which, later, order=(_c.account_id, _c.name), limit=limit)


def replace_encryption(tx: Tx, row: SecretRow, *, value: str, kid: str) -> bool:
    """False if its value was changed or removed since `row` was read."""
    same = (_c.account_id == row.account_id, _c.name == row.name, _c.value == row.value)
    return set_where(tx, account_secrets, *same, value=value, kid=kid) == 1
