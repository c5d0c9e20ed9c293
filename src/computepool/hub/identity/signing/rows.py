"""Rows of the hub's signing keys: the current one, the next one, and previous ones."""

from __future__ import annotations

from sqlalchemy import Connection, exists, update

from computepool.hub.db import dialect
from computepool.hub.db.group_tables import account_secrets
from computepool.hub.db.queries import set_where
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import signing_keys
from computepool.hub.db.typed_rows import TypedRow


class SigningKeyRow(TypedRow, of=signing_keys):
    kid: str
    number: int
    public_key: str
    private_key: str | None
    created_at_ms: int
    starts_at_ms: int | None
    ends_at_ms: int | None
    endorsed_by: str | None
    endorsement: str | None


def list_keys(connection: Connection) -> list[SigningKeyRow]:
    """In the order in which they sign."""
    return SigningKeyRow.fetch(connection, order=signing_keys.c.number)


def insert_key(tx: Tx, **columns: str | int | None) -> bool:
    """False: another hub inserted it first."""
    statement = dialect.insert_ignore(tx.connection, signing_keys).values(created_at_ms=tx.now_ms, **columns)
    return tx.connection.execute(statement.returning(signing_keys.c.kid)).first() is not None


def start_key(tx: Tx, kid: str) -> bool:
    """Let the next key sign from now on. False if it already does: two rotations at once are one."""
    unused = signing_keys.c.kid == kid, signing_keys.c.starts_at_ms.is_(None)
    return set_where(tx, signing_keys, *unused, starts_at_ms=tx.now_ms) == 1


def end_key(tx: Tx, kid: str, *, at_ms: int) -> None:
    set_where(tx, signing_keys, signing_keys.c.kid == kid, ends_at_ms=at_ms)


def retire_keys(tx: Tx) -> list[str]:
    """Delete the private keys whose overlap is over. Returns their ids."""
    statement = (
        update(signing_keys)
        .where(
            signing_keys.c.ends_at_ms <= tx.now_ms,
            signing_keys.c.private_key.is_not(None),
            # Secrets that are still encrypted with it are encrypted anew first (hub/secrets/encryption.py).
            ~exists().where(account_secrets.c.kid == signing_keys.c.kid),
        )
        .values(private_key=None)
        .returning(signing_keys.c.kid)
    )
    return list(tx.connection.execute(statement).scalars())
