"""The hub's memory of jobs: specs, the queue, and what accounts and attempts use."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from computepool.core.series import Series
from computepool.hub.jobs.queue import Queue
from computepool.hub.jobs.running.gang_run import GangRun
from computepool.hub.jobs.specs import RunLengths, SpecCache
from computepool.protocol.nodes.nodes import LoadModel

#: Fewer than the store's reader threads, so that other reads can go on.
_SEARCHES_MAX = 2
#: Submitters choose the registries, and so how long they take to answer.
_LOOKUPS_MAX = 16


@dataclass(slots=True, kw_only=True)
class QuotaUse:
    """What an account uses of its quotas: as last counted, plus what was submitted since."""

    jobs: int  #: unfinished
    cost: int  #: of the jobs of the last day, in microcredits; of unfinished ones, their holds
    jobs_max: int
    cost_max: int


@dataclass(slots=True)
class WatchedAttempt:
    """The resource usage of an attempt."""

    node_id: str
    job_id: str
    series: Series
    last: LoadModel | None = None
    last_ms: int = 0
    saved_ms: int = 0
    changed: bool = False  #: since it was saved
    merged: bool = False  #: with the usage that was saved before this hub knew the attempt


@dataclass(slots=True)
class JobsState:
    specs: SpecCache
    queue: Queue
    run_lengths: RunLengths = field(default_factory=RunLengths)
    quota_uses: dict[str, QuotaUse] = field(default_factory=dict)  #: by account
    #: By account: jobs and cost of submissions that are being written. Apart from the uses, which may be counted anew.
    submitting_jobs: Counter[str] = field(default_factory=Counter)
    submitting_cost: Counter[str] = field(default_factory=Counter)
    gang_runs: dict[tuple[str, int], GangRun] = field(default_factory=dict)  #: by gang and number of the attempts
    #: Registries that are asked at the same time.
    image_lookups: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LOOKUPS_MAX))
    #: By the name of an image: its digest, and until when that is not looked up again.
    image_digests: OrderedDict[str, tuple[str, int]] = field(default_factory=OrderedDict)
    usages: dict[str, WatchedAttempt] = field(default_factory=dict)  #: by attempt
    #: Queries that read rows one by one take turns.
    searches: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_SEARCHES_MAX))
