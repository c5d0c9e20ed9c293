"""Knowledge of nodes' hardware, one row a node. Kept apart from `nodes`, which every poll may write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, select

from computepool.core.trust.hardware import Truth, from_json, to_json
from computepool.hub.db import dialect
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import hardware


def load(connection: Connection, node_ids: Sequence[str]) -> dict[str, Truth]:
    """Of the nodes of which anything is known."""
    wanted = dialect.among(connection, hardware.c.node_id, node_ids)
    rows = connection.execute(select(hardware).where(wanted))
    return {row.node_id: from_json(row.body) for row in rows}


def save(tx: Tx, known: Mapping[str, Truth]) -> None:
    rows = [{"node_id": node_id, "body": to_json(truth)} for node_id, truth in sorted(known.items())]
    if rows:
        tx.connection.execute(
            dialect.upsert(tx.connection, hardware, key=["node_id"], update=("body",)), rows
        )
