"""Looking back through events and jobs, newest first. Only so many rows are looked at in one go, whatever is searched for.

What has an index (an account, a job, a node, a group, a deed) leads the way; the rest is looked at row by row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, or_, select

from computepool.hub.db import event_rows
from computepool.hub.db.event_rows import EventRow
from computepool.hub.db.tables import HAS_NO_JOB, IS_IN_GROUP, events
from computepool.protocol.jobs.filters import EventFilter

#: Families of events that are about a job, nearly all there are. Every other event names none.
OF_JOBS = ("job.", "attempt.", "checkpoint.", "result.")
#: How far the clocks of hubs may differ: the numbers of events follow each other, their times only nearly so.
_SKEW_MS = 600_000


@dataclass(frozen=True, slots=True)
class SearchPage:
    rows: Sequence[EventRow] = ()
    seen: int | None = None  #: the last one that was looked at: go on there; None: there is nothing further
    seen_ms: int | None = None  #: its time
    #: there is nothing further: up to here, rows that are not wanted were looked at, too
    upto: int | None = None


def is_search(filters: EventFilter) -> bool:
    """Whether rows have to be looked at that may not be wanted."""
    return bool(_matching(filters))


def search_events(
    connection: Connection, filters: EventFilter, *, before: int, limit: int, window: int
) -> SearchPage:
    """Of the next `window` older events that the leading index has, `limit` at most; newest first."""
    found = _look(connection, filters, events.c.seq < before, order=(limit, window, True))
    past = filters.since_ms is not None and found.seen_ms is not None
    if past and found.seen_ms < filters.since_ms - _SKEW_MS:  # type: ignore[operator]
        return SearchPage(found.rows)
    return found


def growing_events(
    connection: Connection, filters: EventFilter, *, after: int, limit: int, window: int
) -> SearchPage:
    """Of the next `window` younger ones; oldest first."""
    # Asked for before they are looked at: what is committed meanwhile is looked at next time.
    upto = event_rows.last_event(connection) if is_search(filters) else None
    found = _look(connection, filters, events.c.seq > after, order=(limit, window, False))
    return found if found.seen is not None else replace(found, upto=upto)


def _look(
    connection: Connection, filters: EventFilter, begin: ColumnElement[bool], *, order: tuple[int, int, bool]
) -> SearchPage:
    limit, window, newest = order
    if filters.is_foreign():
        return SearchPage()
    led = _find_by_index(connection, filters)
    by = events.c.seq.desc() if newest else events.c.seq
    matching = _matching(filters)
    last = None
    if matching:
        # Where to stop, whatever is found until there: read from the index alone.
        end = select(events.c.seq, events.c.at_ms).where(*led, begin).order_by(by)
        last = connection.execute(end.offset(window - 1).limit(1)).first()
    if last is not None:
        matching.append(events.c.seq >= last.seq if newest else events.c.seq <= last.seq)
    found = EventRow.select().where(*led, begin, *matching).order_by(by).limit(limit)
    rows = EventRow.all(connection.execute(found))
    if len(rows) == limit:
        return SearchPage(rows, rows[-1].seq, rows[-1].at_ms)
    return SearchPage(rows) if last is None else SearchPage(rows, last.seq, last.at_ms)


def number_at(connection: Connection, at_ms: int) -> int:
    """A number that no event after this time is below, by halving: numbers grow with time."""
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


def _find_by_index(connection: Connection, filters: EventFilter) -> list[Any]:
    """What an index finds."""
    leading = filters.leading()
    found: list[Any] = [events.c[name] == value for name, value in leading.items()]
    found += [IS_IN_GROUP] if "group_id" in leading else []
    if leading or not filters.action or not is_deed(filters.action):
        return found
    named = [name for name in deeds(connection) if name.startswith(filters.action)]
    return [HAS_NO_JOB, events.c.action.in_(named)]


def deeds(connection: Connection) -> list[str]:
    """The names of all events that are about no job: one step of the index for each, however many events there are."""
    first = select(func.min(events.c.action).label("action")).where(HAS_NO_JOB)
    names = first.cte("names", recursive=True)
    after = select(func.min(events.c.action)).where(HAS_NO_JOB, events.c.action > names.c.action)
    names = names.union_all(select(after.scalar_subquery()).where(names.c.action.is_not(None)))
    listed = select(names.c.action).where(names.c.action.is_not(None))
    return list(connection.execute(listed).scalars())


def is_deed(action: str) -> bool:
    """Whether no event whose name begins like this is about a job."""
    return not any(family.startswith(action) or action.startswith(family) for family in OF_JOBS)


def _matching(filters: EventFilter) -> list[ColumnElement[bool]]:
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


_TEXTS = ("action", "reason", "data")
_IDS = ("job_id", "attempt_id", "node_id", "group_id", "account_id", "actor")
