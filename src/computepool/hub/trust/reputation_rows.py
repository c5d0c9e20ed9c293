"""Rows of nodes' reputations: a cache of what the events add up to, updated by the transaction that writes the events.

`write` runs at the end of a transaction, while no other hub can number events. So outcomes are counted in the order of the
log, and a recount in that order gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, delete, func, select

from computepool.core.trust import reputation
from computepool.core.trust.reputation import NEWCOMER, Reputation
from computepool.hub.db import dialect, event_rows
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.queries import differences
from computepool.hub.db.reputation_tables import reputations
from computepool.hub.db.session import Commit, Tx
from computepool.hub.db.tables import nodes
from computepool.hub.nodes import rows as node_rows

_FIELDS = tuple(field.name for field in fields(Reputation))
_COLUMN_NAMES = ("action", "actor", "node_id", "job_id", "attempt_id", "reason", "account_id", "at_ms", "data")
_STORED = [reputations.c[name] for name in _FIELDS]
_SAVE = Prepared(lambda connection: dialect.upsert(connection, reputations, key=("node_id",), update=_FIELDS))
_LOAD = Prepared(
    lambda connection: select(reputations.c.node_id, *_STORED).where(
        dialect.among_ids(connection.dialect.name, reputations.c.node_id)
    )
)
#: With their owners; also nodes without a record.
_KNOWN = Prepared(
    lambda connection: (
        select(nodes.c.id, nodes.c.account_id, *_STORED)
        .outerjoin(reputations, reputations.c.node_id == nodes.c.id)
        .where(dialect.among_ids(connection.dialect.name, nodes.c.id))
    )
)


def write(tx: Tx, commit: Commit) -> None:
    """Count the transaction's events, in the order of their numbers."""
    connection = tx.connection
    once = reputation.without_repeats(event for event in tx.events if event["action"] in reputation.ACTIONS)
    about = [(node_id, event) for event in once if (node_id := reputation.node_of(event)) is not None]
    if not about:
        return
    matching = {node_id for node_id, _ in about}
    matching |= {old for _, event in about if (old := reputation.predecessor_of(event)) is not None}
    rows = _KNOWN.rows(connection, **dialect.ids(connection, matching))
    before = {node: (owner, _from_values(values)) for node, owner, *values in rows}
    after = _fold(about, owners={node_id: owner for node_id, (owner, _) in before.items()}, known=before)
    changed = {node_id: now for node_id, now in after.items() if now != before[node_id][1]}
    save(connection, changed)
    commit.reputations = changed


def _fold(
    about: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    owners: Mapping[str, str],
    known: Mapping[str, tuple[str, Reputation]],
) -> dict[str, Reputation]:
    found = {node_id: before for node_id, (_, before) in known.items()}
    for (node_id, *_), alike in groupby(about, key=_fields_that_count):
        owner = owners.get(node_id)
        if owner is None:
            continue  # not a node of this pool
        (_, event), *more = alike
        outcome = reputation.read(event, owner=owner)
        if (predecessor := reputation.predecessor_of(event)) is not None:
            found[node_id] = reputation.inherit(found.get(predecessor, NEWCOMER), event["at_ms"])
        elif outcome is not None:
            before = found.get(node_id, NEWCOMER)
            found[node_id] = reputation.update(before, outcome, times=1 + len(more))
    return found


def _fields_that_count(about: tuple[str, Mapping[str, Any]]) -> tuple[Any, ...]:
    """Everything in an event that counts. Most successes of a batch are alike and follow one another."""
    node_id, event = about
    return (node_id, event["action"], event["reason"], event["account_id"], event["at_ms"], event["data"])


def _from_values(values: Sequence[Any]) -> Reputation:
    """`values`: in the order of the fields; None without a record."""
    return NEWCOMER if values[0] is None else Reputation(**dict(zip(_FIELDS, values, strict=True)))


def save(connection: Connection, changed: Mapping[str, Reputation]) -> None:
    """In sorted order, as wherever rows are locked."""
    rows = [{"node_id": node_id, **asdict(now)} for node_id, now in sorted(changed.items())]
    if rows:
        _SAVE.execute(connection, rows)


def load(connection: Connection, node_ids: Sequence[str]) -> dict[str, Reputation]:
    """Reputations of the nodes with a record; the others are newcomers."""
    rows = _LOAD.rows(connection, **dialect.ids(connection, node_ids))
    return {node_id: _from_values(values) for node_id, *values in rows}


def of_node(connection: Connection, node_id: str) -> Reputation:
    return load(connection, [node_id]).get(node_id, NEWCOMER)


def of_owner(connection: Connection, account_id: str) -> list[tuple[str, str, int, Reputation]]:
    """Of the owner's nodes with a record: id, state, when last seen, and reputation."""
    statement = (
        select(nodes.c.id, nodes.c.state, nodes.c.last_seen_ms, *_STORED)
        .join(reputations, reputations.c.node_id == nodes.c.id)
        .where(nodes.c.account_id == account_id)
        .order_by(nodes.c.id)
    )
    rows = connection.execute(statement)
    return [(id_, state, seen_ms or 0, _from_values(values)) for id_, state, seen_ms, *values in rows]


def tenured_owners(connection: Connection, accounts: Sequence[str], *, days: int, clean_since_ms: int) -> set[str]:
    """Those of the owners with a node that has this many verified days, and no node with a wrong result since then."""
    matching = dialect.among(connection, nodes.c.account_id, accounts)
    statement = (
        select(nodes.c.account_id)
        .join(reputations, reputations.c.node_id == nodes.c.id)
        .where(matching)
        .group_by(nodes.c.account_id)
        .having(
            func.max(reputations.c.verified_days) >= days,
            func.max(reputations.c.penalised_at_ms) < clean_since_ms,
            func.max(reputations.c.banned_at_ms) == 0,
        )
    )
    return set(connection.execute(statement).scalars())


def recount(connection: Connection) -> dict[str, Reputation]:
    """Every node's reputation, from the events alone."""
    found = event_rows.stream_fields(connection, _COLUMN_NAMES, actions=reputation.ACTIONS)
    about = ((reputation.node_of(event) or "", event) for event in reputation.without_repeats(found))
    return _fold(about, owners=node_rows.owners(connection), known={})


def rebuild(connection: Connection) -> None:
    connection.execute(delete(reputations))
    save(connection, recount(connection))


def differing_nodes(connection: Connection) -> list[str]:
    """Nodes whose stored reputation differs from what their events add up to."""
    rows = connection.execute(select(reputations.c.node_id, *_STORED))
    stored = {node_id: _from_values(values) for node_id, *values in rows}
    return differences(stored, recount(connection), default=NEWCOMER)
