"""Evidence behind a node's reputation, and what a node does now, for its owner."""

from __future__ import annotations

from typing import Literal

from computepool.core.jobs.lifecycle import JobKind
from computepool.protocol.base import Page, Reply

EvidenceKind = Literal[
    "verified",
    "unverified",
    "narrow",
    "confirmed",
    "refuted",
    "probe_right",
    "probe_wrong",
    "pardoned",
    "node_fault",
    "lease_lost",
    "job_fault",
    "inherited",
]


class EvidenceRow(Reply):
    """One outcome. Others' jobs are never named; strangers are told neither the job nor the minute."""

    at_ms: int  #: to the hour, for who neither owns the node nor administers the pool
    evidence: EvidenceKind
    sentence: str
    weight: float  #: what it counts: 1 is a whole outcome; 0: nothing, or only for integrity
    success: bool | None  #: null: neither
    counted: bool  #: false: lost at the same moment as another, which was counted
    verified: bool
    violation: bool
    own: bool  #: a job of the node's owner
    reason: str | None = None
    job_kind: JobKind | None = None
    job_id: str | None = None  #: for the owner of the node, the job's submitter and administrators


class EvidencePage(Page):
    node_id: str
    exact: bool  #: false: without jobs, and times to the hour, because the node is somebody else's
    rows: list[EvidenceRow]


class NodeAttempt(Reply):
    """Something a node holds now, as its owner sees it."""

    attempt_id: str
    job_id: str
    job_name: str | None = None  #: of the owner's own jobs, and for administrators
    kind: JobKind
    state: str  #: leased or running
    own: bool  #: the owner's: nothing is paid for it
    leased_at_ms: int
    started_at_ms: int | None = None
    cores: float
    ram_mb: int
    gpus: int
    price: int  #: microcredits per hour, what the submitter pays
    earns: int  #: microcredits per hour, what of it the owner gets
    earned: int  #: about what it comes to so far, if it succeeds
    ends_at_ms: int | None = None  #: when its time limit ends
    progress: float | None = None
    cpu_percent: int | None = None
    rss_mb: int | None = None
    cpu_ids: list[int] = []  #: where it may run, by the node's own numbers


class NodeWork(Reply):
    node_id: str
    running: int
    leased: int
    attempts: list[NodeAttempt]  #: what runs first, then what waits; the first 200
    earns: int  #: microcredits per hour, of all of them together
