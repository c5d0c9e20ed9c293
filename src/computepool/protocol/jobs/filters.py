"""Filters of lists of events and jobs. None, and empty: anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    whose: str | None = None  #: the account whose events they must be, whatever else is asked for
    account_id: str | None = None
    job_id: str | None = None
    node_id: str | None = None
    group_id: str | None = None
    actor: str | None = None
    action: str = ""  #: how its name begins
    since_ms: int | None = None
    until_ms: int | None = None
    text: str = ""  #: a part of its name, reason or data, or an id

    def leading(self) -> dict[str, str]:
        """What it must be about, by the names of columns that have an index."""
        equal = {
            "job_id": self.job_id,
            "group_id": self.group_id,
            "node_id": self.node_id,
            "account_id": self.whose or self.account_id,
        }
        return {name: value for name, value in equal.items() if value is not None}

    def is_foreign(self) -> bool:
        """Asked for of an account whose events the asker may not see."""
        return self.whose is not None and self.account_id not in (None, self.whose)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    account_id: str | None = None
    group_id: str | None = None
    states: Sequence[str] = ()
    kind: str | None = None
    node_id: str | None = None
    since_id: str | None = None  #: ids sort by time
    until_id: str | None = None
    text: str = ""  #: a part of its name or key, or its id
