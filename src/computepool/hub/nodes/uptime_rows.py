"""Times in which nodes were online: the time that lasts is in `nodes`, those that are over have a row each."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, delete, select, update

from computepool.hub.db import dialect
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import node_spans, nodes
from computepool.hub.nodes.rows import NodeRow


def arrive(tx: Tx, row: NodeRow, *, gap_ms: int) -> None:
    """The node speaks again. If it was away for longer than that, the time before is over and a new one begins."""
    since_ms, seen_ms = row.online_since_ms, row.last_seen_ms or tx.now_ms
    if since_ms is not None and tx.now_ms - seen_ms <= gap_ms:
        return
    if since_ms is not None and seen_ms > since_ms:
        span = {"node_id": row.id, "since_ms": since_ms, "until_ms": seen_ms}
        tx.connection.execute(dialect.insert_ignore(tx.connection, node_spans).values(span))
    known_ms = tx.now_ms if row.known_since_ms is None else row.known_since_ms
    begun = update(nodes).where(nodes.c.id == row.id)
    tx.connection.execute(begun.values(online_since_ms=tx.now_ms, known_since_ms=known_ms))


def of_nodes(
    connection: Connection, node_ids: Iterable[str], *, since_ms: int
) -> dict[str, list[tuple[int, int]]]:
    """What is over, of those that reach into the time since then."""
    matching = dialect.among(connection, node_spans.c.node_id, node_ids)
    found: dict[str, list[tuple[int, int]]] = {}
    for row in connection.execute(select(node_spans).where(matching, node_spans.c.until_ms >= since_ms)):
        found.setdefault(row.node_id, []).append((row.since_ms, row.until_ms))
    return found


def prune(tx: Tx, *, before_ms: int) -> None:
    tx.connection.execute(delete(node_spans).where(node_spans.c.until_ms < before_ms))
