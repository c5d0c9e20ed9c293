"""Periods in which nodes were online: the current one is in `nodes`, each past one is a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, bindparam, delete, select, update

from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import node_spans, nodes
from computepool.hub.nodes.rows import NodeRow

_BEGUN = Prepared(
    update(nodes)
    .where(nodes.c.id == bindparam("node"))
    .values(online_since_ms=bindparam("online"), known_since_ms=bindparam("known"))
)


def arrive(tx: Tx, rows: Sequence[NodeRow], *, gap_ms: int) -> None:
    """Record that these nodes poll again. For a node that was away for longer than the gap, a new period begins."""
    now_ms = tx.now_ms
    away = [row for row in rows if row.online_since_ms is None or now_ms - (row.last_seen_ms or now_ms) > gap_ms]
    spans = [
        {"node_id": row.id, "since_ms": row.online_since_ms, "until_ms": row.last_seen_ms}
        for row in away
        if (row.last_seen_ms or now_ms) > (row.online_since_ms or now_ms)
    ]
    if spans:
        tx.connection.execute(dialect.insert_ignore(tx.connection, node_spans), spans)
    begun = [
        {"node": row.id, "online": now_ms, "known": row.known_since_ms or now_ms}
        for row in sorted(away, key=lambda row: row.id)
    ]
    _BEGUN.execute(tx.connection, begun)


def of_nodes(connection: Connection, node_ids: Iterable[str], *, since_ms: int) -> dict[str, list[tuple[int, int]]]:
    """The past periods that reach into the time since then."""
    matching = dialect.among(connection, node_spans.c.node_id, node_ids)
    found: dict[str, list[tuple[int, int]]] = {}
    for row in connection.execute(select(node_spans).where(matching, node_spans.c.until_ms >= since_ms)):
        found.setdefault(row.node_id, []).append((row.since_ms, row.until_ms))
    return found


def prune(tx: Tx, *, before_ms: int) -> None:
    tx.connection.execute(delete(node_spans).where(node_spans.c.until_ms < before_ms))
