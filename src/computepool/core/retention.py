"""Retention of artifacts by references. An artifact is kept for as long as the longest of its references."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReferenceRole(StrEnum):
    """Roles with a rule of their own; every other one belongs to a job (input, output, result, payload, function …)."""

    UPLOAD = "upload"  #: a person sent it
    KEPT = "kept"  #: a person asked to keep it
    NODE = "node"  #: a node sent it, and no report has handed it on yet
    PENDING = "pending"  #: of a result that waits to be compared with others


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactReference:
    role: str
    created_at_ms: int
    kept_until_ms: int | None = None  #: of role kept
    job_open: bool = False
    job_ended_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRules:
    keep_ms: int  #: the account's
    unreported_ms: int


def kept_until_ms(ref: ArtifactReference, rules: KeepRules) -> int | None:
    """None: nobody can say yet, or for ever."""
    if ref.role == ReferenceRole.KEPT:
        return ref.kept_until_ms
    if ref.job_open:
        return None
    since_ms = ref.created_at_ms if ref.job_ended_ms is None else max(ref.created_at_ms, ref.job_ended_ms)
    return since_ms + (
        rules.unreported_ms if ref.role in (ReferenceRole.NODE, ReferenceRole.PENDING) else rules.keep_ms
    )


def is_over(ref: ArtifactReference, rules: KeepRules, *, now_ms: int) -> bool:
    until_ms = kept_until_ms(ref, rules)
    return until_ms is not None and until_ms <= now_ms
