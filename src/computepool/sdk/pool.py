"""`connect()` and `Pool`, the entry points for submitters."""

from __future__ import annotations

import atexit
import os
import platform
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from computepool.core.errors import Conflict
from computepool.sdk.client.background import CLOSE_TIMEOUT_S, closer
from computepool.sdk.client.config import hub_url, load_config
from computepool.sdk.client.transport import PAGE_MAX, RETRY_FOR_S, WAIT_MS, Transport

if TYPE_CHECKING:
    from computepool.protocol.accounts import AccountView, EventView
    from computepool.protocol.jobs.groups import GroupRequest
    from computepool.protocol.money.credits import QuoteView
    from computepool.sdk.classes.compute_job import ComputeJobState
    from computepool.sdk.classes.job_classes import JobClass
    from computepool.sdk.client.session import GroupSession
    from computepool.sdk.code.functions import FunctionCache
    from computepool.sdk.files.artifacts import ArtifactApi
    from computepool.sdk.files.images import ImageApi
    from computepool.sdk.files.volumes import VolumeApi
    from computepool.sdk.jobs.executor import PoolExecutor
    from computepool.sdk.jobs.futures import JobFuture
    from computepool.sdk.jobs.mapping import MapRun
    from computepool.sdk.jobs.options import JobOptions, PathLike
    from computepool.sdk.jobs.outcome import JobOutcome
    from computepool.sdk.jobs.submitter import Submitter, Work
    from computepool.sdk.resources.accounts import AccountApi, ApprovalApi, KeyApi
    from computepool.sdk.resources.credits import CreditApi, PriceApi
    from computepool.sdk.resources.groups import GroupApi
    from computepool.sdk.resources.jobs import JobApi
    from computepool.sdk.resources.market import MarketApi
    from computepool.sdk.resources.mesh import MeshApi
    from computepool.sdk.resources.nodes import NodeApi
    from computepool.sdk.resources.payouts import PayoutApi
    from computepool.sdk.resources.schedules import ScheduleApi
    from computepool.sdk.resources.secrets import SecretApi
    from computepool.sdk.resources.webhooks import WebhookApi

#: Cached combinations of options, so that a loop of `pool.submit(fn, x, vram=16)` builds its spec once.
SUBMITTERS_MAX = 64
GROUP_PREFIX = "grp_"
#: Options whose meaning may change between calls: files change, and futures get their IDs later.
_UNCACHED_OPTIONS = frozenset({"inputs", "after"})


def connect(
    url: str | None = None,
    key: str | None = None,
    *,
    retry_for: float = RETRY_FOR_S,
    max_result_bytes: int | None = None,
) -> Pool:
    """Connect to the hub at `url`. The default is COMPUTEPOOL_HUB and COMPUTEPOOL_KEY, or what `pool login` stored.

    `retry_for`: how many seconds a call retries while the hub is unreachable. `max_result_bytes`: larger results are not
    loaded; the default is the largest result that a node may send.

    >>> pool = connect()
    >>> pool.submit(pow, 2, 10).result()
    1024
    """
    config = load_config()
    address = config.hub if url is None else hub_url(url)
    stored = config.key if address == config.hub else None
    current_key = None if key else lambda: _stored_key(address)
    transport = Transport(address, key or stored, retry_for=retry_for, current_key=current_key)
    return Pool(transport, max_result_bytes=max_result_bytes)


connect.__module__ = "computepool"  # so that a function which calls it on a node finds the one in nested.py


def _resource(place: str) -> Any:
    """Part of the API as a lazily loaded attribute; `place`: its `module:class` below `computepool.sdk`."""
    module, _, name = place.partition(":")
    return cached_property(lambda pool: getattr(import_module(f"computepool.sdk.{module}"), name)(pool.transport))


class Pool:
    jobs: JobApi = _resource("resources.jobs:JobApi")
    nodes: NodeApi = _resource("resources.nodes:NodeApi")
    accounts: AccountApi = _resource("resources.accounts:AccountApi")
    keys: KeyApi = _resource("resources.accounts:KeyApi")
    approvals: ApprovalApi = _resource("resources.accounts:ApprovalApi")
    credits: CreditApi = _resource("resources.credits:CreditApi")
    prices: PriceApi = _resource("resources.credits:PriceApi")
    market: MarketApi = _resource("resources.market:MarketApi")
    mesh: MeshApi = _resource("resources.mesh:MeshApi")
    payouts: PayoutApi = _resource("resources.payouts:PayoutApi")
    secrets: SecretApi = _resource("resources.secrets:SecretApi")
    webhooks: WebhookApi = _resource("resources.webhooks:WebhookApi")

    def __init__(self, transport: Transport, *, max_result_bytes: int | None = None) -> None:
        self.transport = transport
        self._max_result_bytes = max_result_bytes
        self._lock = threading.Lock()
        self._session: GroupSession | None = None
        self._by_group: dict[str, GroupSession] = {}
        self._named: dict[str, str] = {}  #: ids of groups
        self._unshared: weakref.WeakSet[GroupSession] = weakref.WeakSet()  #: of maps and executors
        self._submitters: OrderedDict[str, Submitter] = OrderedDict()
        weakref.finalize(self, transport.close).atexit = False  # closing twice does no harm
        # A script that submits and ends must not lose what is still queued.
        reference = weakref.ref(self)
        self._at_exit: Callable[[], None] = lambda: _close(reference)
        atexit.register(self._at_exit)

    @cached_property
    def images(self) -> ImageApi:
        from computepool.sdk.files.images import ImageApi

        return ImageApi(self.artifacts)

    @cached_property
    def artifacts(self) -> ArtifactApi:
        from computepool.sdk.files.artifacts import ArtifactApi

        return ArtifactApi(self.transport, max_result_bytes=self._max_result_bytes)

    @cached_property
    def volumes(self) -> VolumeApi:
        from computepool.sdk.files.volumes import VolumeApi

        return VolumeApi(self.transport, self.artifacts)

    @cached_property
    def groups(self) -> GroupApi:
        from computepool.sdk.resources.groups import GroupApi

        return GroupApi(self.transport, self.artifacts)

    @cached_property
    def schedules(self) -> ScheduleApi:
        from computepool.sdk.resources.schedules import ScheduleApi

        return ScheduleApi(self)

    @cached_property
    def functions(self) -> FunctionCache:
        from computepool.sdk.code.functions import FunctionCache

        return FunctionCache()

    # ------------------------------------------------------------ work
    def options(self, **options: Unpack[JobOptions]) -> Submitter:
        """A submitter with these options: `pool.options(vram=16).submit(fn, x, keyword=1)`."""
        from computepool.sdk.jobs.submitter import Submitter

        return Submitter(self, options)

    def submit(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[JobOptions],
    ) -> JobFuture:
        """Run `fn(*args, **kwargs)` on a node that satisfies the options.

        >>> pool.submit(train, "data.csv", kwargs={"epochs": 3}, vram=16, timeout="2h")
        """
        return self._submitter(options).submit(fn, *args, **(kwargs or {}))

    def submit_job(self, job_class: JobClass, state: ComputeJobState, **options: Unpack[JobOptions]) -> JobFuture:
        """Run one job of a job class; its result is a JobReport. For many jobs, use submit_compute_job_group.

        >>> pool.submit_job(Count, CountState(text="three short words")).result()["words"]
        3
        """
        return self._submitter(options).submit_job(job_class, state)

    def map(
        self,
        fn: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        progress: bool | None = None,
        ordered: bool = True,
        return_exceptions: bool = False,
        in_flight_max: int | None = None,
        chunksize: int | None = None,
        **options: Unpack[JobOptions],
    ) -> MapRun:
        """Apply `fn` to the items and iterate over the results, with a progress bar on a terminal or in a notebook.

        Short items share a job; their number follows from the run time of the first ones, unless `chunksize` sets it.

        >>> for picture in pool.map(render, range(1000), cores=2): ...
        """
        return self._submitter(options).map(
            fn,
            *iterables,
            progress=progress,
            ordered=ordered,
            return_exceptions=return_exceptions,
            in_flight_max=in_flight_max,
            chunksize=chunksize,
        )

    @overload
    def run(
        self,
        path: PathLike,
        args: Sequence[object] = (),
        *,
        wait: Literal[True] = True,
        slices: None = None,
        **options: Unpack[JobOptions],
    ) -> JobOutcome: ...
    @overload
    def run(
        self,
        path: PathLike,
        args: Sequence[object] = (),
        *,
        wait: Literal[False],
        slices: None = None,
        **options: Unpack[JobOptions],
    ) -> JobFuture: ...
    @overload
    def run(
        self,
        path: PathLike,
        args: Sequence[object] = (),
        *,
        wait: Literal[True] = True,
        slices: int,
        **options: Unpack[JobOptions],
    ) -> list[JobOutcome]: ...
    @overload
    def run(
        self,
        path: PathLike,
        args: Sequence[object] = (),
        *,
        wait: Literal[False],
        slices: int,
        **options: Unpack[JobOptions],
    ) -> list[JobFuture]: ...
    def run(
        self,
        path: PathLike,
        args: Sequence[object] = (),
        *,
        wait: bool = True,
        slices: int | None = None,
        **options: Unpack[JobOptions],
    ) -> JobOutcome | JobFuture | list[JobOutcome] | list[JobFuture]:
        """Run a script file and return its outcome, with the files that it wrote to `outputs/`.

        `slices`: run it that many times, as one group.

        >>> pool.run("train.py", ["--epochs", 3], inputs=["data.csv"], vram=16).download("results")
        """
        work = self._submitter(options)
        if slices is None:
            return work.start(work.script(path, args), wait=wait)
        futures = work.slices(path, slices, args=args)
        return [future.result() for future in futures] if wait else futures

    @overload
    def command(
        self, argv: Sequence[object], *, wait: Literal[True] = True, **options: Unpack[JobOptions]
    ) -> JobOutcome: ...
    @overload
    def command(self, argv: Sequence[object], *, wait: Literal[False], **options: Unpack[JobOptions]) -> JobFuture: ...
    def command(
        self, argv: Sequence[object], *, wait: bool = True, **options: Unpack[JobOptions]
    ) -> JobOutcome | JobFuture:
        """Run a program with arguments, without a shell.

        >>> pool.command(["ffmpeg", "-i", "in.mp4", "outputs/out.webm"], inputs=["in.mp4"])
        """
        work = self._submitter(options)
        return work.start(work.program(argv), wait=wait)

    def slices(
        self, path: PathLike, count: int, *, args: Sequence[object] = (), **options: Unpack[JobOptions]
    ) -> list[JobFuture]:
        """Run the same script `count` times as one group; COMPUTEPOOL_SLICE is the number of each run."""
        return self._submitter(options).slices(path, count, args=args)

    def quote(
        self, what: Work | None = None, args: Sequence[object] = (), *, items: int = 1, **options: Unpack[JobOptions]
    ) -> QuoteView:
        """Estimate the cost of a function, a script, a command, or anything with these requirements.

        >>> pool.quote("train.py", vram=16, timeout="2h").sentences
        """
        return self._submitter(options).quote(what, args, items=items)

    def executor(self, **options: Unpack[JobOptions]) -> PoolExecutor:
        """A concurrent.futures.Executor: `with pool.executor(cores=2) as executor: …`."""
        return self._submitter(options).executor()

    def future(self, job_id: str, *, allow_pickle: bool = False) -> JobFuture:
        """Attach to a job submitted by this process or another one."""
        from computepool.sdk.jobs.futures import follow_single_job
        from computepool.sdk.jobs.outcome import ResultReader

        job = self.jobs.get(job_id)
        read = ResultReader(self, job.kind, allow_pickle)
        if job.group_id is None:
            return follow_single_job(self, job_id, read)
        session = self.session(job.group_id)
        future = session.attach(job_id, read)
        with suppress(Conflict):  # not finished: its result will come through the group
            session.settle(self.jobs.result_now(job_id))
        return future

    def events(
        self,
        *,
        follow: bool = False,
        newest: bool = False,
        after: int = 0,
        limit: int | None = None,
        **filters: str | int | None,
    ) -> Iterator[EventView]:
        """Iterate over state transitions: oldest first and, with `follow`, as they happen; or `newest` first.

        `filters`: action (a prefix), actor, account_id, job_id, node_id, group_id, since_ms, until_ms, q.
        """
        from computepool.protocol.accounts import EventPage

        at: dict[str, str | int | None] = {"newest": "true"} if newest else {"after": after}
        left, end = sys.maxsize if limit is None else limit, None
        while left > 0:
            params = {**filters, **at, "limit": min(left, PAGE_MAX)}
            page = self.transport.get("/events", EventPage, params=params, wait_ms=WAIT_MS if follow else 0)
            yield from page.events
            left -= len(page.events)
            if newest and page.next is None:
                return
            if not newest and not follow and not page.events:
                # The cursor also passes events that the filters exclude, of which a busy pool always has more.
                newest_one: dict[str, str | int | None] = {"newest": "true", "limit": 1}
                end = self.transport.get("/events", EventPage, params=newest_one).cursor if end is None else end
                if page.cursor >= end or page.cursor == at["after"]:
                    return
            at = {"before": page.next} if newest else {"after": page.cursor}

    def whoami(self) -> AccountView:
        return self.accounts.me()

    # ------------------------------------------------------------ life
    def flush(self, timeout: float = CLOSE_TIMEOUT_S) -> bool:
        """Wait until the hub has acknowledged every submitted job. False if that takes more than `timeout` seconds."""
        return not [session for session in self._sessions() if not session.flush(timeout)]

    def close(self) -> None:
        """Send what is still queued, then disconnect. Jobs keep running."""
        atexit.unregister(self._at_exit)
        end = time.monotonic() + CLOSE_TIMEOUT_S
        closer.flush(CLOSE_TIMEOUT_S)  # cancellations
        for session in self._sessions():
            session.close(max(0.0, end - time.monotonic()))
        self.transport.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------------ internal
    def session(self, group_id: str | None = None) -> GroupSession:
        """The session of a group, by ID or name; by default the session that all single jobs of this pool share."""
        from computepool.protocol.jobs.groups import GroupRequest
        from computepool.sdk.client.session import GroupSession

        if group_id is not None and not group_id.startswith(GROUP_PREFIX):
            if group_id not in self._named:
                self._named[group_id] = self.groups.find_or_create(group_id).id
            group_id = self._named[group_id]
        with self._lock:
            if group_id is not None:
                if group_id not in self._by_group:
                    self._by_group[group_id] = GroupSession(self, group_id=group_id)
                return self._by_group[group_id]
            if self._session is None:
                name = f"{platform.node() or 'somewhere'} {os.getpid()}"
                self._session = GroupSession(self, request=GroupRequest(name=name, kind="session"), lingers=True)
            return self._session

    def new_session(self, request: GroupRequest) -> GroupSession:
        from computepool.sdk.client.session import GroupSession

        session = GroupSession(self, request=request)
        with self._lock:
            self._unshared.add(session)
        return session

    def _sessions(self) -> list[GroupSession]:
        with self._lock:
            shared = [] if self._session is None else [self._session]
            return [*shared, *self._by_group.values(), *self._unshared]

    def _submitter(self, options: JobOptions) -> Submitter:
        if _UNCACHED_OPTIONS & options.keys() or callable(options.get("compare")):
            return self.options(**options)
        key = repr(sorted(options.items()))
        known = self._submitters.get(key)
        if known is None:
            known = self.options(**options)
            with self._lock:
                self._submitters[key] = known
                if len(self._submitters) > SUBMITTERS_MAX:
                    self._submitters.popitem(last=False)
        return known


def _stored_key(address: str) -> str | None:
    config = load_config()
    return config.key if config.hub == address else None


def _close(reference: weakref.ref[Pool]) -> None:
    pool = reference()
    if pool is not None:
        pool.close()
