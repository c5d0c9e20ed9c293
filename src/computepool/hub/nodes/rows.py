"""Rows of enrolled nodes. Whether a node is online is soft state, kept in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, bindparam, func, or_, select, true, update

from computepool.core.fleet.node_status import Departure
from computepool.core.resources import NodeState
from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.queries import by_key, count, matches, scalars, set_where
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import accounts, nodes
from computepool.hub.db.typed_rows import TypedRow


class NodeStanding(TypedRow, of=(nodes, accounts.c.floor.label("owner_floor"))):
    """The columns that determine a node's status."""

    id: str
    account_id: str
    state: str
    profile: str
    floor: int | None
    last_seen_ms: int | None
    cool_off_until_ms: int
    departure: str | None
    owner_floor: int | None


class NodeRow(
    NodeStanding,
    of=(nodes, accounts.c.name.label("owner_name")),
    joined=nodes.join(accounts, accounts.c.id == nodes.c.account_id),
):
    name: str
    public_key: str
    enrolled_at_ms: int
    online_since_ms: int | None
    known_since_ms: int | None
    boot_id: str | None
    consecutive_faults: int
    rules: str | None
    previous_key: str | None
    previous_key_until_ms: int | None
    code: str | None
    owner_name: str


class NodeKeysRow(TypedRow, of=nodes):
    """The columns that a node's tokens are verified with."""

    id: str
    account_id: str
    state: str
    public_key: str
    previous_key: str | None
    previous_key_until_ms: int | None


_BY_ID = nodes.c.id == bindparam("node")
_NODE = Prepared(NodeRow.select().where(_BY_ID))
_NODES = Prepared(lambda connection: NodeRow.select().where(dialect.among_ids(connection.dialect.name, nodes.c.id)))
_KEYS = Prepared(lambda connection: NodeKeysRow.select().where(dialect.among_ids(connection.dialect.name, nodes.c.id)))
_WITH_KEY = Prepared(NodeRow.select().where(nodes.c.public_key == bindparam("key")))
_LOCKED = Prepared(select(nodes.c.id).where(_BY_ID).with_for_update(key_share=True))
_INSERT = Prepared(nodes.insert())
_PROFILE = Prepared(
    update(nodes)
    .where(_BY_ID)
    .values(
        name=bindparam("new_name"),
        profile=bindparam("new_profile"),
        boot_id=bindparam("boot"),
        last_seen_ms=bindparam("now"),
        departure=None,
    )
)
#: It never goes back in time, although two hubs saw a node that changed hubs.
_SEEN = (
    update(nodes)
    .where(_BY_ID, func.coalesce(nodes.c.last_seen_ms, 0) < bindparam("seen"))
    .values(last_seen_ms=bindparam("seen"))
)


def insert_node(tx: Tx, **columns: Any) -> None:
    times = ("enrolled_at_ms", "last_seen_ms", "online_since_ms", "known_since_ms")
    _INSERT.execute(tx.connection, [dict.fromkeys(times, tx.now_ms) | columns])


def get_node(connection: Connection, node_id: str) -> NodeRow | None:
    return NodeRow.one(_NODE.first(connection, node=node_id))


def get_keys(connection: Connection, node_ids: Iterable[str]) -> dict[str, NodeKeysRow]:
    rows = NodeKeysRow.all(_KEYS.rows(connection, **dialect.ids(connection, node_ids)))
    return {row.id: row for row in rows}


def lock_node(tx: Tx, node_id: str) -> None:
    """Keep others from settling for this node until the transaction ends. SQLite has a single writer anyway."""
    if tx.connection.dialect.name == "postgresql":
        _LOCKED.rows(tx.connection, node=node_id)


def set_key(tx: Tx, row: NodeRow, *, public_key: str, until_ms: int) -> None:
    keys = {"public_key": public_key, "previous_key": row.public_key, "previous_key_until_ms": until_ms}
    set_where(tx, nodes, nodes.c.id == row.id, nodes.c.public_key == row.public_key, **keys)


def enrolment_times(connection: Connection, *, account_id: str, since_ms: int) -> list[int]:
    """When the account enrolled its nodes, oldest first, including nodes that were revoked."""
    statement = (
        select(nodes.c.enrolled_at_ms)
        .where(nodes.c.account_id == account_id, nodes.c.enrolled_at_ms > since_ms)
        .order_by(nodes.c.enrolled_at_ms)
    )
    return scalars(connection, statement)


def find_node_by_key(connection: Connection, public_key: str) -> NodeRow | None:
    return NodeRow.one(_WITH_KEY.first(connection, key=public_key))


def list_nodes(
    connection: Connection,
    *,
    after: str,
    limit: int,
    account_id: str | None,
    states: Sequence[str] = (),
    text: str = "",
) -> list[NodeRow]:
    """`text` is a part of a node's name or of its owner's name, or its id."""
    which = [nodes.c.id > after, matches(nodes.c.account_id, account_id)]
    if states:
        which.append(nodes.c.state.in_(states))
    if text:
        parts = (column.icontains(text, autoescape=True) for column in (nodes.c.name, accounts.c.name))
        which.append(or_(*parts, nodes.c.id == text))
    return NodeRow.fetch(connection, *which, order=nodes.c.id, limit=limit)


def nodes_of_code(connection: Connection, *, account_id: str, code_id: str, limit: int) -> list[NodeRow]:
    """The account's nodes that were enrolled with this code, newest first."""
    which = nodes.c.account_id == account_id, nodes.c.code == code_id
    return NodeRow.fetch(connection, *which, order=nodes.c.id.desc(), limit=limit)


def recently_seen(connection: Connection, *, limit: int) -> list[NodeRow]:
    """The active nodes that were seen last, latest first."""
    return NodeRow.fetch(connection, nodes.c.state == "active", order=nodes.c.last_seen_ms.desc(), limit=limit)


def recently_seen_ids(connection: Connection, *, since_ms: int) -> list[str]:
    """Ids of the nodes seen since then, latest first, paused or not."""
    statement = select(nodes.c.id).where(nodes.c.last_seen_ms >= since_ms, nodes.c.state != "revoked")
    return scalars(connection, statement.order_by(nodes.c.last_seen_ms.desc()))


def get_nodes(connection: Connection, node_ids: Iterable[str]) -> list[NodeRow]:
    return NodeRow.all(_NODES.rows(connection, **dialect.ids(connection, node_ids)))


def find_nodes(connection: Connection, word: str, *, revoked: bool = False) -> list[NodeRow]:
    """The nodes with this id, or with this name in any case, newest first; with `revoked`, including revoked ones."""
    named = or_(nodes.c.id == word, nodes.c.name == word, func.lower(nodes.c.name) == word.lower())
    kept = true() if revoked else nodes.c.state != NodeState.REVOKED.value
    return NodeRow.fetch(connection, named, kept, order=nodes.c.id.desc())


def ids_between(connection: Connection, least: str, most: str, *, limit: int) -> Sequence[str]:
    statement = select(nodes.c.id).where(nodes.c.id.between(least, most))
    return scalars(connection, statement.order_by(nodes.c.id.desc()).limit(limit))


def owners(connection: Connection, node_ids: Iterable[str] | None = None) -> dict[str, str]:
    """The account of each of these nodes, or of all. It never changes."""
    return by_key(connection, nodes.c.account_id, key=nodes.c.id, among=node_ids)


def count_nodes(connection: Connection) -> int:
    """The number of nodes that are not revoked."""
    return count(connection, nodes.c.state != "revoked")


def get_names(connection: Connection, node_ids: Sequence[str]) -> dict[str, str]:
    return by_key(connection, nodes.c.name, key=nodes.c.id, among=node_ids)


def set_state(tx: Tx, *, node_id: str, before: str, after: str) -> bool:
    return set_where(tx, nodes, nodes.c.id == node_id, nodes.c.state == before, state=after) == 1


def revoke(tx: Tx, node_id: str, *, departure: Departure | None = None) -> bool:
    """Revoke a node in any state. Returns False if it was revoked already."""
    revoked = NodeState.REVOKED.value
    member = nodes.c.id == node_id, nodes.c.state != revoked
    return set_where(tx, nodes, *member, state=revoked, departure=departure) == 1


def depart(tx: Tx, *, node_id: str, boot_id: str) -> bool:
    """Record that a node's agent stopped. Returns False if it was started again since, or revoked."""
    this_start = (nodes.c.id == node_id, nodes.c.boot_id == boot_id, nodes.c.state != NodeState.REVOKED.value)
    return set_where(tx, nodes, *this_start, departure=Departure.STOPPED.value) == 1


def set_profiles(tx: Tx, described: Sequence[Mapping[str, str]]) -> None:
    """`described` are rows with the keys node, new_name, new_profile and boot."""
    rows = [{**row, "now": tx.now_ms} for row in sorted(described, key=itemgetter("node"))]
    _PROFILE.execute(tx.connection, rows)


def emit_change(tx: Tx, row: NodeRow, *, actor: str, action: str, before: str, after: str) -> None:
    """Record an owner's change of a node, and notify the hub that it polls."""
    tx.emit(actor=actor, action=action, before=before, after=after, account_id=row.account_id, node_id=row.id)
    tx.touch(f"node:{row.id}")


def set_node(tx: Tx, node_id: str, **columns: Any) -> None:
    set_where(tx, nodes, nodes.c.id == node_id, **columns)


def count_fault(tx: Tx, node_id: str) -> int:
    """Count one more consecutive fault. Returns their number."""
    statement = update(nodes).where(nodes.c.id == node_id).values(consecutive_faults=nodes.c.consecutive_faults + 1)
    return tx.connection.execute(statement.returning(nodes.c.consecutive_faults)).scalar() or 0


def touch_nodes(tx: Tx, seen: Mapping[str, int]) -> None:
    if seen:
        rows = [{"node": node_id, "seen": at_ms} for node_id, at_ms in sorted(seen.items())]
        tx.connection.execute(_SEEN, rows)
