"""Rows of hardware truth, one a node. They are apart from `nodes`, which every poll may write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import TypeAdapter
from sqlalchemy import Connection, select

from computepool.core.trust.hardware import Truth
from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import hardware

#: Between a node's facts and their JSON text.
BODY = TypeAdapter(Truth)
_KNOWN = Prepared(
    lambda connection: select(hardware.c.node_id, hardware.c.body).where(
        dialect.among_ids(connection.dialect.name, hardware.c.node_id)
    )
)


def load(connection: Connection, node_ids: Sequence[str]) -> dict[str, Truth]:
    """Of the nodes that have a row."""
    rows = _KNOWN.rows(connection, **dialect.ids(connection, node_ids))
    return {node_id: BODY.validate_json(body) for node_id, body in rows}


def save(tx: Tx, known: Mapping[str, Truth]) -> None:
    rows = [{"node_id": node_id, "body": BODY.dump_json(truth).decode()} for node_id, truth in sorted(known.items())]
    if rows:
        tx.connection.execute(dialect.upsert(tx.connection, hardware, key=["node_id"], update=("body",)), rows)
