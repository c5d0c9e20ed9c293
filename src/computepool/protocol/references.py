"""References that people type in the place of an id, and what they stand for."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from computepool.protocol.base import Reply

#: The newest of one's own.
LAST = "last"


class ReferenceKind(StrEnum):
    JOB = "job"
    NODE = "node"
    GROUP = "group"
    ACCOUNT = "account"


class Reference(Reply):
    """The one thing that a word stands for."""

    kind: ReferenceKind
    id: str
    name: str = Field(description="What people call it")
