"""Rows of schedules and of their runs. Every change is guarded by what the caller has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, select

from computepool.hub.db import dialect
from computepool.hub.db.group_tables import IS_OPEN_RUN, schedule_runs, schedules
from computepool.hub.db.queries import any_row, before_cursor, count, set_where
from computepool.hub.db.session import Tx
from computepool.hub.db.typed_rows import TypedRow

ACTIVE, PAUSED = "active", "paused"
WAITING, STARTING, SUBMITTED, SKIPPED, MISSED, FAILED = (
    "waiting", "starting", "submitted", "skipped", "missed", "failed",
)  # fmt: skip
_s, _r = schedules.c, schedule_runs.c


class ScheduleRow(TypedRow, of=schedules):
    id: str
    account_id: str
    name: str
    cron: str
    tz: str
    overlap: str
    missed: str
    request: str
    state: str
    reason: str
    next_at_ms: int | None
    failures: int
    created_at_ms: int


class RunRow(TypedRow, of=schedule_runs):
    schedule_id: str
    tick_ms: int
    by_hand: bool
    state: str
    touched_at_ms: int
    job_ids: str
    reason: str


def insert(tx: Tx, **columns: Any) -> None:
    row = {"state": ACTIVE, "reason": "", "failures": 0, "created_at_ms": tx.now_ms, **columns}
    tx.connection.execute(schedules.insert().values(row))


def get(connection: Connection, schedule_id: str) -> ScheduleRow | None:
    return ScheduleRow.find(connection, _s.id == schedule_id)


def has_name(connection: Connection, account_id: str, name: str) -> bool:
    return any_row(connection, _s.account_id == account_id, _s.name == name)


def count_of_account(connection: Connection, account_id: str) -> int:
    return count(connection, _s.account_id == account_id)


def of_account(connection: Connection, account_id: str, *, after: str | None, limit: int) -> list[ScheduleRow]:
    return ScheduleRow.fetch(connection, _s.account_id == account_id, _s.id > (after or ""), order=_s.id, limit=limit)


def due(connection: Connection, now_ms: int, *, limit: int) -> list[ScheduleRow]:
    return ScheduleRow.fetch(connection, _s.next_at_ms <= now_ms, order=_s.next_at_ms, limit=limit)


def advance(tx: Tx, row: ScheduleRow, *, next_at_ms: int | None) -> bool:
    """Pass a tick. False if another hub has, or if the schedule was paused or removed."""
    return set_where(tx, schedules, _s.id == row.id, _s.next_at_ms == row.next_at_ms, next_at_ms=next_at_ms) == 1


def set_state(tx: Tx, schedule_id: str, *, state: str, reason: str = "", next_at_ms: int | None = None) -> bool:
    """False if it was in this state already."""
    values = {"state": state, "reason": reason, "next_at_ms": next_at_ms, "failures": 0}
    return set_where(tx, schedules, _s.id == schedule_id, _s.state != state, **values) == 1


def note_failure(tx: Tx, schedule_id: str, reason: str) -> int:
    """The number of failures in a row."""
    set_where(tx, schedules, _s.id == schedule_id, failures=_s.failures + 1, reason=reason)
    row = get(tx.connection, schedule_id)
    return 0 if row is None else row.failures


def note_success(tx: Tx, schedule_id: str) -> None:
    set_where(tx, schedules, _s.id == schedule_id, _s.failures > 0, failures=0, reason="")


def remove(tx: Tx, schedule_id: str) -> None:
    tx.connection.execute(delete(schedule_runs).where(_r.schedule_id == schedule_id))
    tx.connection.execute(delete(schedules).where(_s.id == schedule_id))


# runs


def insert_run(
    tx: Tx, schedule_id: str, *, tick_ms: int, state: str, reason: str = "", by_hand: bool = False, kept: int
) -> bool:
    """False if this tick has a run. Only the newest `kept` runs stay."""
    row = {"schedule_id": schedule_id, "tick_ms": tick_ms, "by_hand": by_hand, "state": state, "reason": reason}
    statement = dialect.insert_ignore(tx.connection, schedule_runs).values(touched_at_ms=tx.now_ms, job_ids="[]", **row)
    if tx.connection.execute(statement.returning(_r.tick_ms)).first() is None:
        return False
    of_it = _r.schedule_id == schedule_id
    oldest = select(_r.tick_ms).where(of_it).order_by(_r.tick_ms.desc()).offset(kept).limit(1).scalar_subquery()
    tx.connection.execute(
        delete(schedule_runs).where(of_it, _r.tick_ms <= oldest, _r.state.not_in([WAITING, STARTING]))
    )
    return True


def get_run(connection: Connection, schedule_id: str, tick_ms: int) -> RunRow | None:
    return RunRow.find(connection, _r.schedule_id == schedule_id, _r.tick_ms == tick_ms)


def runs_of(connection: Connection, schedule_id: str, *, before: int | None = None, limit: int) -> list[RunRow]:
    """Newest first."""
    older = before_cursor(_r.tick_ms, before)
    return RunRow.fetch(connection, _r.schedule_id == schedule_id, older, order=_r.tick_ms.desc(), limit=limit)


def runs_in(connection: Connection, schedule_id: str, states: Sequence[str], *, limit: int) -> list[RunRow]:
    """Newest first."""
    which = (_r.schedule_id == schedule_id, _r.state.in_(states))
    return RunRow.fetch(connection, *which, order=_r.tick_ms.desc(), limit=limit)


def open_runs(connection: Connection, *, limit: int) -> list[RunRow]:
    """Those that wait, or that a hub has begun to submit; oldest first."""
    return RunRow.fetch(connection, IS_OPEN_RUN, order=(_r.touched_at_ms, _r.tick_ms), limit=limit)


def change_run(tx: Tx, run: RunRow, **columns: Any) -> bool:
    """False if it was changed, or removed, since `run` was read."""
    same = (_r.schedule_id == run.schedule_id, _r.tick_ms == run.tick_ms, _r.state == run.state)
    return set_where(tx, schedule_runs, *same, _r.touched_at_ms == run.touched_at_ms, **columns) == 1


def end_run(tx: Tx, run: RunRow, *, state: str, job_ids: str = "[]", reason: str = "") -> bool:
    """False if another hub ended it: both had submitted it with one key, so there is one submission."""
    same = (_r.schedule_id == run.schedule_id, _r.tick_ms == run.tick_ms, _r.state == STARTING)
    return set_where(tx, schedule_runs, *same, state=state, job_ids=job_ids, reason=reason) == 1
