"""Price tables, every version of them."""

from __future__ import annotations

from sqlalchemy import Connection, select

from computepool.core.money import pricing
from computepool.core.money.pricing import PriceTable
from computepool.hub.db.money_tables import price_tables
from computepool.hub.db.session import Tx
from computepool.hub.db.typed_rows import TypedRow


class PriceTableRow(TypedRow, of=price_tables):
    version: int
    body: str
    created_by: str
    created_at_ms: int


_NEWEST = select(price_tables).order_by(price_tables.c.version.desc()).limit(1)


def newest(connection: Connection) -> PriceTable | None:
    row = connection.execute(_NEWEST).first()
    return None if row is None else pricing.from_json(row.body)


def get(connection: Connection, version: int) -> PriceTable | None:
    row = connection.execute(select(price_tables).where(price_tables.c.version == version)).first()
    return None if row is None else pricing.from_json(row.body)


def list_versions(connection: Connection) -> list[PriceTableRow]:
    statement = PriceTableRow.select().order_by(price_tables.c.version.desc())
    return PriceTableRow.all(connection.execute(statement))


def list_tables(connection: Connection) -> list[PriceTable]:
    """The newest first."""
    return [pricing.from_json(row.body) for row in list_versions(connection)]


def insert(tx: Tx, table: PriceTable, *, created_by: str) -> None:
    """The caller chose the next version; two who chose the same one meet in the primary key."""
    tx.connection.execute(
        price_tables.insert().values(
            version=table.version, body=pricing.to_json(table), created_by=created_by, created_at_ms=tx.now_ms
        )
    )
