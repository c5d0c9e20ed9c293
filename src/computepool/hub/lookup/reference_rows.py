"""Rows found by an id prefix or a name: a few of them, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, exists, or_, select

from computepool.core.ids import id_range
from computepool.hub.db.group_tables import child_jobs
from computepool.hub.db.tables import accounts, groups, jobs, nodes

TABLES: dict[str, Table] = {"job": jobs, "node": nodes, "group": groups, "account": accounts}
PREFIXES = {"job": "job", "node": "node", "group": "grp", "account": "acc"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundReference:
    """What a word may refer to. Only jobs have a key and a state."""

    id: str
    name: str
    key: str | None = None
    state: str = ""


def by_id(connection: Connection, kind: str, word: str, *, whose: str | None, limit: int) -> list[FoundReference]:
    """The one with this id, or else those whose ids begin with it, with or without a prefix like `job_`. `whose`: only of this
    account, or None for all."""
    table = TABLES[kind]
    exact = _find(connection, _visible(kind, whose).where(table.c.id == word))
    bounds = id_range(PREFIXES[kind], word)
    if exact or bounds is None:
        return exact
    begin = _visible(kind, whose).where(table.c.id.between(*bounds))
    return _find(connection, begin.order_by(table.c.id.desc()).limit(limit))


def newest(connection: Connection, kind: str, *, account_id: str) -> list[FoundReference]:
    """The newest of the account. Jobs that a running job submitted are left out, because people do not mean them."""
    table = TABLES[kind]
    statement = _own(kind, account_id)
    if kind == "job":
        statement = statement.where(~exists().where(child_jobs.c.job_id == table.c.id))
    return _find(connection, statement.order_by(table.c.id.desc()).limit(1))


def by_name(
    connection: Connection, kind: str, word: str, *, account_id: str, window: int, limit: int
) -> list[FoundReference]:
    """Among the newest `window` of an account. No index has names, so no more are read."""
    table = TABLES[kind]
    near = _own(kind, account_id).order_by(table.c.id.desc()).limit(window).subquery("near")
    called = near.c.name == word
    if kind == "job":
        called = or_(called, near.c.key == word)
    return _find(connection, select(near).where(called).order_by(near.c.id.desc()).limit(limit))


def account_named(connection: Connection, name: str) -> list[FoundReference]:
    return _find(connection, _columns("account").where(accounts.c.name == name))


def _find(connection: Connection, statement: Select[Any]) -> list[FoundReference]:
    return [FoundReference(**row._mapping) for row in connection.execute(statement)]


def _visible(kind: str, whose: str | None) -> Select[Any]:
    """Everybody may see all nodes."""
    if whose is None or kind == "node":
        return _columns(kind)
    return _own(kind, whose)


def _own(kind: str, account_id: str) -> Select[Any]:
    table = TABLES[kind]
    owner: ColumnElement[Any] = table.c.id if kind == "account" else table.c.account_id
    return _columns(kind).where(owner == account_id)


def _columns(kind: str) -> Select[Any]:
    table = TABLES[kind]
    if kind != "job":
        return select(table.c.id, table.c.name)
    # People do not see hub jobs.
    return select(jobs.c.id, jobs.c.name, jobs.c.key, jobs.c.state).where(jobs.c.hub_job.is_(None))
