"""Wire models of the hub's health: its parts, and the invariants of its database. For administrators."""

from __future__ import annotations

from typing import Literal

from computepool.protocol.base import Reply

#: note: nothing is broken, but somebody should know or decide something
Health = Literal["ok", "note", "warn", "fail"]


class HealthPart(Reply):
    #: stable: database, disk, loops, queue, nodes, clock, versions, hubs, webhooks, payouts, approvals, backup
    name: str
    title: str
    state: Health
    sentence: str  #: its state, with numbers
    todo: str = ""  #: what to do about it; empty if it is healthy
    values: dict[str, int] = {}  #: the numbers by name; names end with the unit


class LoopView(Reply):
    """A periodic task of the hub."""

    name: str
    state: Health
    interval_ms: int
    ran_at_ms: int | None = None  #: the last time it succeeded
    failed_at_ms: int | None = None  #: the last time it failed
    failures: int = 0  #: consecutive failures
    error: str = ""  #: of the last failure


class VersionCount(Reply):
    version: str
    nodes: int


class HealthView(Reply):
    at_ms: int
    state: Health  #: the worst of its parts
    sentence: str
    hub_id: str  #: the hub that answers, if there are several
    version: str
    started_at_ms: int
    parts: list[HealthPart]
    loops: list[LoopView]
    node_versions: list[VersionCount]


class RuleView(Reply):
    rule: str
    kind: Literal["pool", "money", "schema"]
    state: Literal["waiting", "holds", "broken"]
    broken: int = 0  #: rows that break it
    examples: list[str] = []  #: ids of some of them
    took_ms: int = 0


class CheckView(Reply):
    """A check of all rules in one snapshot of the database."""

    state: Literal["never", "running", "done", "failed"]
    sentence: str
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    requested_by: str | None = None
    done: int = 0  #: rules checked so far
    broken: int = 0  #: checked rules that do not hold
    rules: list[RuleView] = []
