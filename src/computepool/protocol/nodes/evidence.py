"""Wire models of the evidence behind a node's reputation, and of a node's current work, for its owner."""

from __future__ import annotations

from typing import Literal

from computepool.core.jobs.lifecycle import JobKind
from computepool.protocol.base import Page, Reply

EvidenceKind = Literal[
    "verified", "unverified", "narrow", "confirmed", "refuted", "padded", "probe_right", "probe_wrong", "pardoned",
    "node_fault", "lease_lost", "job_fault", "inherited",
]  # fmt: skip


class EvidenceRow(Reply):
    """One outcome. Other accounts' jobs are never named, and their exact times are only for the owner of the node."""

    at_ms: int  #: rounded to the hour unless you own the node or administer the pool
    evidence: EvidenceKind
    sentence: str
    weight: float  #: 1 is a whole outcome; 0: none, or only for integrity
    success: bool | None  #: null: neither success nor failure
    counted: bool  #: false: lost at the same moment as another outcome, which counted
    verified: bool
    violation: bool
    own: bool  #: a job of the node's owner
    reason: str | None = None
    job_kind: JobKind | None = None
    job_id: str | None = None  #: for the owner of the node, the job's submitter and administrators


class EvidencePage(Page):
    node_id: str
    exact: bool  #: false: without jobs and with times rounded to the hour, because you do not own the node
    rows: list[EvidenceRow]


class NodeAttempt(Reply):
    """An attempt that a node holds now, as its owner sees it."""

    attempt_id: str
    job_id: str
    job_name: str | None = None  #: of the owner's own jobs, and for administrators
    kind: JobKind
    state: str  #: leased or running
    own: bool  #: the owner's own job, which is free
    leased_at_ms: int
    started_at_ms: int | None = None
    cores: float
    ram_mb: int
    gpus: int
    price: int  #: paid by the submitter, in microcredits per hour
    earns: int  #: the owner's part of it
    earned: int  #: the approximate amount so far, if it succeeds
    ends_at_ms: int | None = None  #: when its time limit ends
    progress: float | None = None
    cpu_percent: int | None = None
    rss_mb: int | None = None
    cpu_ids: list[int] = []  #: the CPUs it may use, by the node's numbering


class NodeWork(Reply):
    node_id: str
    running: int
    leased: int
    attempts: list[NodeAttempt]  #: running ones first; at most 200
    earns: int  #: microcredits per hour, for all of them together
