"""Submitter reputation: a cache of what the events say, like the nodes' reputations and written with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from functools import cache
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, select

from computepool.core.trust import submitter_reputation
from computepool.core.trust.submitter_reputation import UNKNOWN, SubmitterEvent, SubmitterReputation
from computepool.hub.db import dialect
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.reputation_tables import submitter_reputations
from computepool.hub.db.session import Commit, Tx
from computepool.hub.db.tables import events, nodes
from computepool.hub.nodes import rows as node_rows

_FIELDS = tuple(field.name for field in fields(SubmitterReputation))
_COLUMNS = (
    events.c.action,
    events.c.actor,
    events.c.node_id,
    events.c.account_id,
    events.c.before,
    events.c.reason,
    events.c.at_ms,
)
_COLUMN_NAMES = tuple(column.name for column in _COLUMNS)
_STREAM_ROWS = 2_000
_SAVE = Prepared(
    lambda connection: dialect.upsert(connection, submitter_reputations, key=("account_id",), update=_FIELDS)
)


class SubmitterCounts:
    """Remembers whose the nodes are, which never changes: a pool of one owner asks the database once."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}  # of nodes; read and written by the writer alone

    def write(self, tx: Tx, commit: Commit) -> None:
        """Let the transaction's events count, in the order of their numbers."""
        runs = [run for event in tx.events if (run := submitter_reputation.read(event)) is not None]
        if not runs:
            return
        connection, owners = tx.connection, self._owners
        if unknown := {run.node_id for run in runs} - owners.keys():
            owners |= node_rows.owners(connection, sorted(unknown))
        foreign = [run for run in runs if _counts(run, owners)]
        if not foreign:
            return
        matching = dialect.ids(connection, {run.account_id for run in foreign})
        rows = connection.execute(_select_known(connection.dialect.name), matching)
        before = {row.account_id: _from_row(row) for row in rows}
        commit.submitters = _fold(foreign, before)
        save(connection, commit.submitters)


@cache
def _select_known(name: str) -> Select[Any]:
    return select(submitter_reputations).where(dialect.among_ids(name, submitter_reputations.c.account_id))


def _counts(run: SubmitterEvent, owners: Mapping[str, str]) -> bool:
    """On a node of somebody else; an actor that is no node (the hub) has none."""
    return owners.get(run.node_id, run.account_id) != run.account_id


def _fold(
    runs: Iterable[SubmitterEvent], before: Mapping[str, SubmitterReputation]
) -> dict[str, SubmitterReputation]:
    found: dict[str, SubmitterReputation] = {}
    for run in runs:
        known = found.get(run.account_id) or before.get(run.account_id, UNKNOWN)
        found[run.account_id] = submitter_reputation.update(known, run)
    return found


def save(connection: Connection, changed: Mapping[str, SubmitterReputation]) -> None:
    rows = [{"account_id": account_id, **asdict(now)} for account_id, now in sorted(changed.items())]
    if rows:
        _SAVE.execute(connection, rows)


def load(connection: Connection, accounts: Iterable[str]) -> dict[str, SubmitterReputation]:
    """Of those that had jobs on nodes of others."""
    matching = dialect.among(connection, submitter_reputations.c.account_id, sorted(accounts))
    rows = connection.execute(select(submitter_reputations).where(matching))
    return {row.account_id: _from_row(row) for row in rows}


def changed_since(connection: Connection, since_ms: int) -> dict[str, SubmitterReputation]:
    """By this clock or another hub's."""
    rows = connection.execute(
        select(submitter_reputations).where(submitter_reputations.c.changed_at_ms >= since_ms)
    )
    return {row.account_id: _from_row(row) for row in rows}


def _from_row(row: Row[Any]) -> SubmitterReputation:
    return SubmitterReputation(**{name: row._mapping[name] for name in _FIELDS})


def recount(connection: Connection) -> dict[str, SubmitterReputation]:
    """Everybody's, from the events alone."""
    owners = {row.id: row.account_id for row in connection.execute(select(nodes.c.id, nodes.c.account_id))}
    matching = (
        select(*_COLUMNS)
        .where(events.c.action.in_(sorted(submitter_reputation.ACTIONS)))
        .order_by(events.c.seq)
    )
    rows = connection.execute(matching.execution_options(yield_per=_STREAM_ROWS))
    found = (dict(zip(_COLUMN_NAMES, row, strict=True)) for row in rows)
    runs = (run for event in found if (run := submitter_reputation.read(event)) is not None)
    return _fold((run for run in runs if _counts(run, owners)), {})


def rebuild(connection: Connection) -> None:
    connection.execute(delete(submitter_reputations))
    save(connection, recount(connection))


def differing(connection: Connection) -> list[str]:
    """Accounts whose stored reputation is not what their events say."""
    stored, found = changed_since(connection, 0), recount(connection)
    return sorted(
        account_id
        for account_id in stored.keys() | found.keys()
        if stored.get(account_id, UNKNOWN) != found.get(account_id, UNKNOWN)
    )
