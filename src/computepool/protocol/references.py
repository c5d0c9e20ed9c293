"""References: words that people type instead of an id."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from computepool.protocol.base import Reply

#: The newest of the caller's own objects.
LAST = "last"


class ReferenceKind(StrEnum):
    JOB = "job"
    NODE = "node"
    GROUP = "group"
    ACCOUNT = "account"


class Reference(Reply):
    """The object that a word refers to."""

    kind: ReferenceKind
    id: str
    name: str = Field(description="Its name")
