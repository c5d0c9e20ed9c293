"""Rows of the price table, one for each version."""

from __future__ import annotations

from sqlalchemy import Connection

from computepool.core.errors import InvariantViolation
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

    def table(self) -> PriceTable:
        return pricing.from_json(self.body)


def newest(connection: Connection) -> PriceTable | None:
    return next((row.table() for row in list_versions(connection, limit=1)), None)


def get(connection: Connection, version: int) -> PriceTable:
    row = PriceTableRow.find(connection, price_tables.c.version == version)
    if row is None:
        raise InvariantViolation(f"something was priced by table {version}, which does not exist")
    return row.table()


def list_versions(connection: Connection, *, limit: int | None = None) -> list[PriceTableRow]:
    """Newest first."""
    return PriceTableRow.fetch(connection, order=price_tables.c.version.desc(), limit=limit)


def insert(tx: Tx, table: PriceTable, *, created_by: str) -> PriceTableRow:
    """The caller has chosen the next version; the primary key refuses the second of two equal ones."""
    row = PriceTableRow(
        version=table.version, body=pricing.to_json(table), created_by=created_by, created_at_ms=tx.now_ms
    )
    tx.connection.execute(price_tables.insert().values(row._asdict()))
    return row
