"""Retention of artifacts. An artifact is kept as long as any of its references requires."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReferenceRole(StrEnum):
    """Roles with their own rule. All others belong to a job (input, output, result, payload, function …)."""

    UPLOAD = "upload"  #: uploaded by a person
    KEPT = "kept"  #: kept at a person's request
    NODE = "node"  #: sent by a node, and not yet named by a report
    VOLUME = "volume"  #: part of a version of a volume
    PENDING = "pending"  #: part of a result that waits to be compared with others


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactReference:
    role: str
    created_at_ms: int
    kept_until_ms: int | None = None  #: for the role `kept`
    job_open: bool = False
    job_ended_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRules:
    keep_ms: int  #: the account's
    unreported_ms: int


def find_end_ms(ref: ArtifactReference, rules: KeepRules) -> int | None:
    """When the reference ends; None if that is unknown yet, or never."""
    if ref.role == ReferenceRole.KEPT:
        return ref.kept_until_ms
    if ref.role == ReferenceRole.VOLUME:
        return None
    if ref.job_open:
        return None
    since_ms = ref.created_at_ms if ref.job_ended_ms is None else max(ref.created_at_ms, ref.job_ended_ms)
    return since_ms + (
        rules.unreported_ms if ref.role in (ReferenceRole.NODE, ReferenceRole.PENDING) else rules.keep_ms
    )


def is_over(ref: ArtifactReference, rules: KeepRules, *, now_ms: int) -> bool:
    until_ms = find_end_ms(ref, rules)
    return until_ms is not None and until_ms <= now_ms
