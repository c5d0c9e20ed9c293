"""Searches of events. Each reads a limited number of rows, whatever is searched for.

Conditions that have an index (account, job, node, group, action) select these rows; others are checked row by row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Connection, func, or_, select

from computepool.hub.db import event_rows
from computepool.hub.db.event_rows import EventRow
from computepool.hub.db.queries import scalars
from computepool.hub.db.tables import HAS_NO_JOB, IS_IN_GROUP, events
from computepool.hub.db.typed_rows import Condition
from computepool.protocol.jobs.filters import EventFilter

#: Actions of events that are about a job, which most events are. Other events name no job.
OF_JOBS = ("job.", "attempt.", "checkpoint.", "result.")
#: How far the clocks of hubs may differ: the times of events increase only approximately with their numbers.
_SKEW_MS = 600_000
_TEXTS = ("action", "reason", "data")
_IDS = ("job_id", "attempt_id", "node_id", "group_id", "account_id", "actor")


@dataclass(frozen=True, slots=True)
class SearchPage:
    rows: Sequence[EventRow] = ()
    seen: int | None = None  #: the last event that was read, to continue from; None: there are no more
    seen_ms: int | None = None  #: its time
    upto: int | None = None  #: if there are no more: all events up to this one were read


def is_search(filters: EventFilter) -> bool:
    """Whether the database has to read rows that do not match."""
    return bool(_unindexed_conditions(filters))


def search_events(connection: Connection, filters: EventFilter, *, before: int, limit: int, window: int) -> SearchPage:
    """Up to `limit` matching events among the next `window` older ones, newest first."""
    found = _search(connection, filters, events.c.seq < before, limit=limit, window=window, newest_first=True)
    if filters.since_ms is None or found.seen_ms is None or found.seen_ms >= filters.since_ms - _SKEW_MS:
        return found
    return SearchPage(found.rows)  # all further events are too old


def growing_events(connection: Connection, filters: EventFilter, *, after: int, limit: int, window: int) -> SearchPage:
    """Up to `limit` matching events among the next `window` newer ones, oldest first."""
    # Read first, because events that are committed meanwhile belong to the next page.
    upto = event_rows.last_event(connection) if is_search(filters) else None
    found = _search(connection, filters, events.c.seq > after, limit=limit, window=window, newest_first=False)
    return found if found.seen is not None else replace(found, upto=upto)


def _search(
    connection: Connection,
    filters: EventFilter,
    start: ColumnElement[bool],
    *,
    limit: int,
    window: int,
    newest_first: bool,
) -> SearchPage:
    if filters.is_foreign():
        return SearchPage()
    indexed, others = [*_indexed_conditions(connection, filters), start], _unindexed_conditions(filters)
    order = events.c.seq.desc() if newest_first else events.c.seq
    last = None
    if others:  # they are checked row by row: only so far, whatever is found. This query reads only the index.
        end = select(events.c.seq, events.c.at_ms).where(*indexed).order_by(order)
        last = connection.execute(end.offset(window - 1).limit(1)).first()
    if last is not None:
        others.append(events.c.seq >= last.seq if newest_first else events.c.seq <= last.seq)
    rows = EventRow.fetch(connection, *indexed, *others, order=order, limit=limit)
    if len(rows) == limit:
        return SearchPage(rows, rows[-1].seq, rows[-1].at_ms)
    return SearchPage(rows) if last is None else SearchPage(rows, last.seq, last.at_ms)


def number_at(connection: Connection, at_ms: int) -> int:
    """A number below those of all events after this time, found by bisection."""
    low, high = 0, int(connection.execute(select(func.max(events.c.seq))).scalar() or 0)
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(
            select(events.c.seq, events.c.at_ms).where(events.c.seq > middle).order_by(events.c.seq).limit(1)
        ).first()
        if row is None or row.at_ms > at_ms + _SKEW_MS:
            high = middle
        else:
            low = row.seq
    return low


def _indexed_conditions(connection: Connection, filters: EventFilter) -> list[Condition]:
    leading, action = filters.indexed_columns(), filters.action
    found: list[Condition] = [events.c[name] == value for name, value in leading.items()]
    found += [IS_IN_GROUP] if "group_id" in leading else []
    about_jobs = any(family.startswith(action) or action.startswith(family) for family in OF_JOBS)
    if leading or not action or about_jobs:
        return found
    named = [name for name in actions_without_job(connection) if name.startswith(action)]
    return [HAS_NO_JOB, events.c.action.in_(named)]


def actions_without_job(connection: Connection) -> list[str]:
    """The actions of all events that are about no job. Each takes one step in the index, however many events there are."""
    first = select(func.min(events.c.action).label("action")).where(HAS_NO_JOB)
    names = first.cte("names", recursive=True)
    after = select(func.min(events.c.action)).where(HAS_NO_JOB, events.c.action > names.c.action)
    names = names.union_all(select(after.scalar_subquery()).where(names.c.action.is_not(None)))
    return scalars(connection, select(names.c.action).where(names.c.action.is_not(None)))


def _unindexed_conditions(filters: EventFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if filters.action:
        found.append(events.c.action.startswith(filters.action, autoescape=True))
    if filters.actor is not None:
        found.append(events.c.actor == filters.actor)
    if filters.since_ms is not None:
        found.append(events.c.at_ms >= filters.since_ms)
    if filters.until_ms is not None:
        found.append(events.c.at_ms <= filters.until_ms)
    if filters.text:
        words = [events.c[name].icontains(filters.text, autoescape=True) for name in _TEXTS]
        # As JSON writes it.
        words.append(events.c.data.icontains(json.dumps(filters.text)[1:-1], autoescape=True))
        names = [events.c[name] == filters.text for name in _IDS]
        found.append(or_(*words, *names))
    return found
