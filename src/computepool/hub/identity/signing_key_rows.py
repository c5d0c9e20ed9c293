"""The hub's signing keys: one that signs, one that will, and those that did."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select, update

from computepool.hub.db import dialect
from computepool.hub.db.session import AnyRow, Tx
from computepool.hub.db.tables import signing_keys


def list_keys(connection: Connection) -> Sequence[AnyRow]:
    """In the order they sign."""
    return connection.execute(select(signing_keys).order_by(signing_keys.c.number)).all()


def insert_key(tx: Tx, **columns: str | int | None) -> bool:
    """False when another hub was faster."""
    statement = dialect.insert_ignore(tx.connection, signing_keys).values(created_at_ms=tx.now_ms, **columns)
    return tx.connection.execute(statement.returning(signing_keys.c.kid)).first() is not None


def start_key(tx: Tx, kid: str) -> bool:
    """The next one signs from now on. False when it does already: two rotations at once are one."""
    statement = (
        update(signing_keys)
        .where(signing_keys.c.kid == kid, signing_keys.c.starts_at_ms.is_(None))
        .values(starts_at_ms=tx.now_ms)
    )
    return tx.connection.execute(statement).rowcount == 1


def end_key(tx: Tx, kid: str, *, at_ms: int) -> None:
    tx.connection.execute(update(signing_keys).where(signing_keys.c.kid == kid).values(ends_at_ms=at_ms))


def retire_keys(tx: Tx) -> list[str]:
    """Forget the private halves of those whose overlap is over; their names."""
    statement = (
        update(signing_keys)
        .where(signing_keys.c.ends_at_ms <= tx.now_ms, signing_keys.c.private_key.is_not(None))
        .values(private_key=None)
        .returning(signing_keys.c.kid)
    )
    return list(tx.connection.execute(statement).scalars())
