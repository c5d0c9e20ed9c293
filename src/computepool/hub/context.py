"""The context of every service: built once, in app.py, and passed as the first argument."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from computepool.core.fleet.fleet import Fleet
from computepool.core.money.market import Market
from computepool.core.money.run_times import RunTimes
from computepool.core.money.terms import Ceilings
from computepool.core.trust.relative_speed import Peers, TimedRun
from computepool.core.trust.ties import Program, Ties
from computepool.hub.artifacts.storage.base import Blobs
from computepool.hub.clock import Clock
from computepool.hub.db.session import Store
from computepool.hub.db.signals import Signals
from computepool.hub.identity.hub_secrets import Secrets
from computepool.hub.jobs.queue import Queue
from computepool.hub.jobs.run_lengths import RunLengths
from computepool.hub.jobs.specs import SpecCache
from computepool.hub.memory.live_view import MeshMemory, Watched
from computepool.hub.memory.loop_health import LoopHealth
from computepool.hub.memory.registry import Registry
from computepool.hub.memory.submitters import Submitters
from computepool.hub.settings import Settings
from computepool.protocol.health import CheckView
from computepool.protocol.money.credits import LeaderboardView
from computepool.protocol.money.market import MarketChart

_BLOB_THREADS = 16
#: Fewer than there are threads for reading, so that everything else can be read meanwhile.
_SEARCHES_MAX = 2


@dataclass(slots=True, kw_only=True)
class Use:
    """What an account uses of its quotas, at most."""

    jobs: int  #: unfinished
    cost: int  #: of the jobs of the last day, in microcredits; what is held for those that are unfinished
    jobs_max: int
    cost_max: int


@dataclass(slots=True)
class StorageUsage:
    """What an account, or a node, keeps at the hub, as it was counted and with what came since."""

    bytes: int
    bytes_max: int
    counted_at_ms: int


@dataclass(slots=True)
class RemoteNodes:
    """Nodes that the store knows, and that do not poll this hub: offline a while, or at another hub."""

    fleet: Fleet = field(default_factory=Fleet)
    said: dict[str, str] = field(default_factory=dict)  #: by node, what its row said


@dataclass(slots=True)
class Sweeps:
    """How far collecting what nothing keeps any more has come; it starts anew after a restart."""

    refs: tuple[int, str] = (-1, "")
    rows: str = ""
    places: str = ""
    jobs: str = ""


def _blob_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_BLOB_THREADS, thread_name_prefix="blobs")


def no_check() -> CheckView:
    return CheckView(state="never", sentence="The rules were not checked since this hub started.")


@dataclass(slots=True)
class Hub:
    hub_id: str
    settings: Settings
    clock: Clock
    store: Store
    registry: Registry
    signals: Signals
    secrets: Secrets
    blobs: Blobs
    market: Market
    specs: SpecCache = field(init=False)
    queue: Queue = field(init=False)
    run_lengths: RunLengths = field(default_factory=RunLengths)
    submitters: Submitters = field(init=False)
    uses: dict[str, Use] = field(default_factory=dict)  #: by account, for its quotas
    ceilings: Ceilings = field(default_factory=Ceilings)  #: of jobs that name none
    matured: int | None = (
        None  #: the transfer up to which all earnings were looked at; none: look at everybody's
    )
    matured_soon: int | None = None  #: the same for owners whose earnings mature sooner
    boards: dict[str, tuple[int, LeaderboardView]] = field(
        default_factory=dict
    )  #: by order; when made, and what
    group_owners: dict[str, str] = field(default_factory=dict)
    peers: Peers = field(default_factory=Peers)  #: run times of the same jobs on different nodes
    runs: list[TimedRun] = field(default_factory=list)  #: not compared yet
    speeds_touched: set[str] = field(default_factory=set)  #: nodes whose pace is not stored yet
    speeds_saved_ms: int = 0
    run_times: RunTimes = field(default_factory=RunTimes)  #: of programs whose runs agreed
    varying: frozenset[Program] = frozenset()  #: whose results are never the same twice
    ties: Ties = field(default_factory=Ties)
    suspects: set[str] = field(default_factory=set)  #: nodes that were here, and are on probation
    elsewhere: RemoteNodes = field(default_factory=RemoteNodes)  #: nodes that do not poll this hub
    held_looked_at: str = ""  #: the last job with held pay that was looked at for a check
    kept: dict[str, StorageUsage] = field(default_factory=dict)  #: by account or node
    submitting: Counter[str] = field(
        default_factory=Counter
    )  #: by account, bytes of submissions that are being written
    coming: dict[str, list[tuple[str, int]]] = field(
        default_factory=dict
    )  #: by account or node: digests that are being sent to this hub, and how long they say they are
    sweeps: Sweeps = field(default_factory=Sweeps)
    charts: dict[str, tuple[int, MarketChart]] = field(default_factory=dict)  #: by span; when made, and what
    mesh: MeshMemory = field(default_factory=MeshMemory)  #: as people who watch it are told
    usages: dict[str, Watched] = field(default_factory=dict)  #: by attempt
    listening: Counter[str] = field(default_factory=Counter)  #: open streams, by account
    odd_reports: Counter[str] = field(default_factory=Counter)  #: that changed nothing, by kind
    odd_reports_told: dict[tuple[str, str], int] = field(
        default_factory=dict
    )  #: by node and kind, when an event was written about them
    searches: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(_SEARCHES_MAX)
    )  #: who looks at rows one by one takes turns, window by window
    placing: asyncio.Lock = field(
        default_factory=asyncio.Lock
    )  #: while jobs are on their way to nodes: chosen for them, and not yet in their sessions
    blob_threads: ThreadPoolExecutor = field(default_factory=_blob_threads)
    loop_health: LoopHealth = field(init=False)  #: of the loops
    check: CheckView = field(default_factory=no_check)  #: the last look at the database's rules, or this one
    tasks: set[asyncio.Task[None]] = field(
        default_factory=set
    )  #: that somebody asked for; kept until they end
    started_at_ms: int = field(init=False)
    signed_in_before: bool = False  #: somebody has; then it is not asked again
    stopping: bool = False

    def __post_init__(self) -> None:
        self.specs = SpecCache(self.store)
        self.queue = Queue(self.store, self.clock, self.specs, most=self.settings.backlog_max)
        self.submitters = Submitters(self.clock)
        self.loop_health = LoopHealth(self.clock)
        self.started_at_ms = self.clock.now_ms()

    def now_ms(self) -> int:
        return self.clock.now_ms()
