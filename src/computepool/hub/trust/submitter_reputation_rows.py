"""Rows of submitters' reputations: a cache of what the events add up to, written with them like the nodes' reputations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, delete, select

from computepool.core.trust import submitter_reputation
from computepool.core.trust.submitter_reputation import UNKNOWN, SubmitterEvent, SubmitterReputation
from computepool.hub.db import dialect, event_rows
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.queries import differences
from computepool.hub.db.reputation_tables import submitter_reputations
from computepool.hub.db.session import Commit, Tx
from computepool.hub.nodes import rows as node_rows

_FIELDS = tuple(field.name for field in fields(SubmitterReputation))
_COLUMN_NAMES = ("action", "actor", "node_id", "account_id", "before", "reason", "at_ms")
_SELECT = select(submitter_reputations.c.account_id, *(submitter_reputations.c[name] for name in _FIELDS))
_KNOWN = Prepared(
    lambda connection: _SELECT.where(dialect.among_ids(connection.dialect.name, submitter_reputations.c.account_id))
)
_SAVE = Prepared(
    lambda connection: dialect.upsert(connection, submitter_reputations, key=("account_id",), update=_FIELDS)
)


class SubmitterCounts:
    """Caches the owners of nodes, which never change: a pool of one owner reads them once."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}  # used by the writer thread alone

    def write(self, tx: Tx, commit: Commit) -> None:
        """Count the transaction's events, in the order of their numbers."""
        runs = list(_read(tx.events))
        if not runs:
            return
        connection, owners = tx.connection, self._owners
        if unknown := {run.node_id for run, _ in runs} - owners.keys():
            owners |= node_rows.owners(connection, sorted(unknown))
        foreign = [(run, times) for run, times in runs if _counts(run, owners)]
        if not foreign:
            return
        rows = _KNOWN.rows(connection, **dialect.ids(connection, {run.account_id for run, _ in foreign}))
        commit.submitters = _fold(foreign, _by_account(rows))
        save(connection, commit.submitters)


#: Everything in an event that counts.
_fields_that_count = itemgetter(*_COLUMN_NAMES)


def _read(events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[SubmitterEvent, int]]:
    """What the events say, and how many in a row say the same, as most of a batch do."""
    counted = (event for event in events if event["action"] in submitter_reputation.ACTIONS)
    for _, alike in groupby(counted, key=_fields_that_count):
        first, *more = alike
        if (run := submitter_reputation.read(first)) is not None:
            yield run, 1 + len(more)


def _counts(run: SubmitterEvent, owners: Mapping[str, str]) -> bool:
    """Whether it ran on another owner's node. An actor that is no node (the hub) does not count."""
    return owners.get(run.node_id, run.account_id) != run.account_id


def _fold(
    runs: Iterable[tuple[SubmitterEvent, int]], before: Mapping[str, SubmitterReputation]
) -> dict[str, SubmitterReputation]:
    found: dict[str, SubmitterReputation] = {}
    for run, times in runs:
        known = found.get(run.account_id) or before.get(run.account_id, UNKNOWN)
        found[run.account_id] = submitter_reputation.update(known, run, times=times)
    return found


def save(connection: Connection, changed: Mapping[str, SubmitterReputation]) -> None:
    rows = [{"account_id": account_id, **asdict(now)} for account_id, now in sorted(changed.items())]
    if rows:
        _SAVE.execute(connection, rows)


def list_changed_since(connection: Connection, since_ms: int) -> dict[str, SubmitterReputation]:
    """By the clock of whichever hub recorded the change."""
    rows = connection.execute(_SELECT.where(submitter_reputations.c.changed_at_ms >= since_ms))
    return _by_account(rows)


def _by_account(rows: Iterable[Sequence[Any]]) -> dict[str, SubmitterReputation]:
    """From rows of `_SELECT`."""
    return {id_: SubmitterReputation(**dict(zip(_FIELDS, values, strict=True))) for id_, *values in rows}


def recount(connection: Connection) -> dict[str, SubmitterReputation]:
    """Every submitter's reputation, from the events alone."""
    owners = node_rows.owners(connection)
    runs = _read(event_rows.stream_fields(connection, _COLUMN_NAMES, actions=submitter_reputation.ACTIONS))
    return _fold(((run, times) for run, times in runs if _counts(run, owners)), {})


def rebuild(connection: Connection) -> None:
    connection.execute(delete(submitter_reputations))
    save(connection, recount(connection))


def differing_accounts(connection: Connection) -> list[str]:
    """Accounts whose stored reputation differs from what their events add up to."""
    return differences(list_changed_since(connection, 0), recount(connection), default=UNKNOWN)
