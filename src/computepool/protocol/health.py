"""Health of the hub itself: its parts, and the rules that its database must keep. For administrators."""

from __future__ import annotations

from typing import Literal

from computepool.protocol.base import Reply

#: note: nothing is broken, and somebody should know or decide something
Health = Literal["ok", "note", "warn", "fail"]


class HealthPart(Reply):
    name: str  #: stable: database, disk, loops, queue, nodes, clock, versions, hubs, webhooks, payouts, approvals, backup
    title: str
    state: Health
    sentence: str  #: how it is, with numbers
    todo: str = ""  #: what to do about it; empty where it is well
    values: dict[str, int] = {}  #: the numbers themselves, by name; units at the end of the name


class LoopView(Reply):
    """A duty that the hub repeats."""

    name: str
    state: Health
    interval_ms: int
    ran_at_ms: int | None = None  #: the last time it ended well
    failed_at_ms: int | None = None  #: the last time it did not
    failures: int = 0  #: in a row
    error: str = ""  #: of the last failure


class VersionCount(Reply):
    version: str
    nodes: int


class HealthView(Reply):
    at_ms: int
    state: Health  #: the worst of its parts
    sentence: str
    hub_id: str  #: of several hubs, the one that answers
    version: str
    started_at_ms: int
    parts: list[HealthPart]
    loops: list[LoopView]
    node_versions: list[VersionCount]


class RuleView(Reply):
    rule: str
    kind: Literal["pool", "money", "schema"]
    state: Literal["waiting", "holds", "broken"]
    broken: int = 0  #: how many rows break it
    examples: list[str] = []  #: some of them, by id
    took_ms: int = 0


class CheckView(Reply):
    """One look at all rules, in one snapshot of the database."""

    state: Literal["never", "running", "done", "failed"]
    sentence: str
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    requested_by: str | None = None
    done: int = 0  #: rules looked at so far
    broken: int = 0  #: rules, of these, that do not hold
    rules: list[RuleView] = []
