"""Filters of lists of events, jobs and transfers. Not part of the wire format, but used by the hub's routes and rows alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """None and empty mean anything."""

    only_account_id: str | None = None  #: the account whose events the caller may see, in addition to all other fields
    account_id: str | None = None
    job_id: str | None = None
    node_id: str | None = None
    group_id: str | None = None
    actor: str | None = None
    action: str = ""  #: the beginning of its name
    since_ms: int | None = None
    until_ms: int | None = None
    text: str = ""  #: a part of its name, reason or data, or an id

    def indexed_columns(self) -> dict[str, str]:
        """The conditions on columns with an index, by column."""
        equal = {
            "job_id": self.job_id,
            "group_id": self.group_id,
            "node_id": self.node_id,
            "account_id": self.only_account_id or self.account_id,
        }
        return {name: value for name, value in equal.items() if value is not None}

    def is_foreign(self) -> bool:
        """Whether it asks for an account whose events the caller may not see."""
        return self.only_account_id is not None and self.account_id not in (None, self.only_account_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """None and empty mean anything."""

    account_id: str | None = None
    group_id: str | None = None
    states: Sequence[str] = ()
    kind: str | None = None
    node_id: str | None = None
    since_id: str | None = None  #: ids sort by time
    until_id: str | None = None
    text: str = ""  #: a part of its name or key, or its id


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementFilter:
    """None and empty mean anything."""

    job_id: str | None = None
    kinds: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None  #: exclusive
