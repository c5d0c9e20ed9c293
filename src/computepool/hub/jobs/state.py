"""The hub's memory of jobs: their specs, those that wait, and what accounts and attempts use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from computepool.core.series import Series
from computepool.hub.jobs.queue import Queue
from computepool.hub.jobs.specs import RunLengths, SpecCache
from computepool.protocol.nodes.nodes import LoadModel

#: Fewer than there are threads for reading, so that everything else can be read meanwhile.
_SEARCHES_MAX = 2


@dataclass(slots=True, kw_only=True)
class QuotaUse:
    """What an account uses of its quotas, at most."""

    jobs: int  #: unfinished
    cost: int  #: of the jobs of the last day, in microcredits; what is held for those that are unfinished
    jobs_max: int
    cost_max: int


@dataclass(slots=True)
class WatchedAttempt:
    """What one attempt uses."""

    node_id: str
    job_id: str
    series: Series
    last: LoadModel | None = None
    last_ms: int = 0
    saved_ms: int = 0
    changed: bool = False  #: since it was saved
    merged: bool = False  #: with what was saved before this hub knew it


@dataclass(slots=True)
class JobsState:
    specs: SpecCache
    queue: Queue
    run_lengths: RunLengths = field(default_factory=RunLengths)
    quota_uses: dict[str, QuotaUse] = field(default_factory=dict)  #: by account
    usages: dict[str, WatchedAttempt] = field(default_factory=dict)  #: by attempt
    group_owners: dict[str, str] = field(default_factory=dict)
    #: Who looks at rows one by one takes turns, window by window.
    searches: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_SEARCHES_MAX))
