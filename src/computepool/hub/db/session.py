"""Transactions. One writer thread shares a commit among all writes that arrive while the last one became durable.

A *unit* is a function of a `Tx`. It must do nothing but read and write through it, because it may run more than once:
when a unit of a shared transaction fails, everything is rolled back and run again with a savepoint around each.

Rows are locked in one order: jobs, attempts, nodes, groups, each sorted by id; then the turn to number events, and balances.
What units only note (transfers, sizes, groups that may be complete) is written once, at the end of the whole transaction:
its units know nothing of each other, and two hubs that each end jobs of the same two groups must not meet them in
opposite orders. The store knows none of it: the domains write it, as `AtEnd` says.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from computepool.core.backoff import doubled
from computepool.core.errors import Unavailable
from computepool.core.trust.reputation import Reputation
from computepool.core.trust.submitter_reputation import SubmitterReputation
from computepool.hub.clock import Clock
from computepool.hub.db import dialect, failures
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.crashpoints import crash_point
from computepool.hub.db.tables import events

__all__ = ["AtEnd", "Commit", "Connection", "Store", "Tx"]  # services name SQLAlchemy's types only from here

logger = logging.getLogger(__name__)
_TRIES = 5
#: The longest pause before a second try, doubling with each: who lost a deadlock and comes back at once may lose it again.
_PAUSE_MS = 10
T = TypeVar("T")

_EVENTS = Prepared(events.insert())
_EVENT_COLUMNS = tuple(column.name for column in events.columns if column.name != "seq")


@dataclass(slots=True)
class Noted:
    """What is to be written at the end of a transaction; see the domains' functions for each."""

    events: list[dict[str, Any]] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    transfers: list[dict[str, Any]] = field(default_factory=list)  #: money/booking.py
    balances: dict[str, int] = field(default_factory=dict)  #: by how much they change
    inline: dict[str, int] = field(default_factory=dict)  #: bytes more of accounts, artifacts/inline_rows.py
    closing: set[str] = field(default_factory=set)  #: groups of which something ended, groups/collector.py

    def add(self, more: Noted) -> None:
        self.events += more.events
        self.topics |= more.topics
        self.transfers += more.transfers
        _add_up(self.balances, more.balances)
        _add_up(self.inline, more.inline)
        self.closing |= more.closing


@dataclass(slots=True)
class Tx(Noted):
    """One unit's view of a transaction; at its end, that of the whole."""

    connection: Connection = field(kw_only=True)
    now_ms: int = field(kw_only=True)
    before: Noted = field(default_factory=Noted, kw_only=True)  #: by units before it, and not written yet

    def emit(self, *, actor: str, action: str, final: bool = False, **columns: Any) -> None:
        """Record a state transition; it is written with the rows it describes, in the same transaction."""
        row = dict.fromkeys(_EVENT_COLUMNS)
        row.update(columns, at_ms=self.now_ms, actor=actor, action=action, final=final)
        self.events.append(row)
        self.topics.add("events")

    def touch(self, *topics: str) -> None:
        """After the commit, wake whoever waits for these topics, here and on the other hubs."""
        self.topics.update(topics)


@dataclass(slots=True)
class Commit:
    """What follows from a commit for the hub's memory."""

    topics: set[str] = field(default_factory=set)
    reputations: dict[str, Reputation] = field(default_factory=dict)  #: of nodes, that it changed
    submitters: dict[str, SubmitterReputation] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.topics or self.reputations or self.submitters)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtEnd:
    """Writers at the end of every transaction, in this order, each called once with what all units noted."""

    first: tuple[Callable[[Tx], None], ...] = ()  #: they may emit events
    #: While no other hub numbers anything, just before the events are written.
    last: tuple[Callable[[Tx, Commit], None], ...] = ()


@dataclass(slots=True)
class _Job:
    unit: Callable[[Tx], Any]
    future: asyncio.Future[Any] | None = None
    result: Any = None
    error: BaseException | None = None


def _nobody(_commit: Commit) -> None:
    """Nothing in memory follows."""


class Store:
    """Reads on a few threads, writes on one."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        hub_id: str,
        at_end: AtEnd,
        group_commit_max: int = 256,
        read_threads: int = 4,
    ) -> None:
        self.url = url
        self.hub_id = hub_id
        self._clock = clock
        self._at_end = at_end
        self._group_commit_max = group_commit_max
        self._writer: Engine = dialect.make_writer(url)
        self._reader: Engine = dialect.make_reader(url, read_threads)
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(read_threads, thread_name_prefix="store-read")
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._follow: Callable[[Commit], None] = _nobody
        self._stopped = False

    def start(self, follow: Callable[[Commit], None] = _nobody) -> None:
        """`follow`: called after each commit, on the event loop, before its units have their results."""
        self._loop, self._follow = asyncio.get_running_loop(), follow
        self._thread = threading.Thread(target=self._run, name="store-write", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """What was asked before is still written and answered; what comes later is refused."""
        self._stopped = True
        self._queue.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        self._readers.shutdown(wait=True, cancel_futures=True)
        self.close()

    def close(self) -> None:
        """Give the connections back; for a store that was never started, this is all."""
        self._writer.dispose()
        self._reader.dispose()

    async def write(self, unit: Callable[[Tx], T]) -> T:
        """Run the unit durably; returns (or raises) its own verdict when the shared commit is on disk."""
        loop = self._running_loop()
        job = _Job(unit, loop.create_future())
        self._queue.put(job)
        assert job.future is not None
        result: T = await job.future
        return result

    async def read(self, unit: Callable[[Connection], T]) -> T:
        return await self._running_loop().run_in_executor(self._readers, self.read_now, unit)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._stopped:
            raise Unavailable("The hub is stopping.", retry_after_s=1)
        return self._loop

    def write_now(self, unit: Callable[[Tx], T]) -> T:
        """The same without an event loop: start-up, the operator's commands, tests."""
        job = _Job(unit)
        self._notify(self._commit([job]), [job])
        if job.error is not None:
            raise failures.as_refusal(job.error)
        result: T = job.result
        return result

    def read_now(self, unit: Callable[[Connection], T]) -> T:
        try:
            with self._reader.begin() as connection:
                return unit(connection)
        except DBAPIError as error:
            raise failures.as_refusal(error) from error

    # the writer thread

    def _run(self) -> None:
        ended = False
        while not ended:
            job = self._queue.get()
            if job is None:
                return
            batch, ended = self._gather(job)
            commits = self._commit(batch)
            crash_point("before_reply")
            self._notify(commits, batch)

    def _gather(self, first: _Job) -> tuple[list[_Job], bool]:
        batch = [first]
        while len(batch) < self._group_commit_max:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return batch, True
            batch.append(job)
        return batch, False

    def _commit(self, batch: Sequence[_Job]) -> list[Commit]:
        """Give every job its result or its error. Never raises: the writer outlives any failing unit."""
        for isolated in (False, True):
            try:
                return self._transact(batch, isolated=isolated)
            except BaseException as error:  # noqa: BLE001 - each caller gets it as its own verdict
                if len(batch) == 1 or failures.is_outage(error):
                    for job in batch:
                        job.error = error
                    if failures.is_outage(error):
                        self._writer.dispose()  # the next one connects anew
                    return []
        return [commit for job in batch for commit in self._commit([job])]

    def _transact(self, batch: Sequence[_Job], *, isolated: bool) -> list[Commit]:
        for tries in range(1, _TRIES + 1):
            try:
                return self._transact_once(batch, isolated=isolated)
            except DBAPIError as error:
                # Another hub may have inserted the same key this instant: looking again finds its row.
                raced = isinstance(error, IntegrityError) and len(batch) == 1
                if tries == _TRIES or not (raced or failures.is_transient(error)):
                    raise
                logger.warning("store.retry: %s", error.orig)
                self._pause(tries)
        raise AssertionError("the last try returns or raises")

    def _pause(self, tries: int) -> None:
        share = self._clock.entropy(1)[0] / 256
        time.sleep(share * doubled(_PAUSE_MS, tries - 1, most=1_000) / 1_000)

    def _transact_once(self, batch: Sequence[_Job], *, isolated: bool) -> list[Commit]:
        now_ms, seal, commit = self._clock.now_ms(), None, Commit()
        try:
            with self._writer.begin() as connection:
                whole = Tx(connection=connection, now_ms=now_ms)
                for job in batch:
                    job.result = job.error = None
                    tx = Tx(connection=connection, now_ms=now_ms, before=whole)
                    if isolated and not self._run_isolated(job, tx):
                        continue
                    if not isolated:
                        job.result = job.unit(tx)
                    whole.add(tx)
                seal = self._end(whole, commit)
                crash_point("before_commit")
        except DBAPIError as error:
            # Lost in the middle of COMMIT: only the database knows. Running the units again could do things twice.
            if seal is None or not error.connection_invalidated:
                raise
            if not dialect.was_committed(self._writer, seal):
                raise
        crash_point("after_commit")
        return [commit] if commit else []

    def _end(self, whole: Tx, commit: Commit) -> str | None:
        """Money and events last, because hubs take turns to number them. Returns what names the transaction afterwards."""
        seal = None
        for write in self._at_end.first:
            write(whole)
        if whole.transfers or whole.events:
            seal = dialect.order_events(whole.connection)
        for write_last in self._at_end.last:
            write_last(whole, commit)
        if whole.events:
            _EVENTS.execute(whole.connection, whole.events)
        commit.topics = whole.topics
        notice = _payload(self.hub_id, whole.topics)
        return dialect.notify(whole.connection, notice) if notice else seal

    def _run_isolated(self, job: _Job, tx: Tx) -> bool:
        """Run one unit in a savepoint, so that its failure takes back only what it did itself."""
        try:
            with tx.connection.begin_nested():
                job.result = job.unit(tx)
        except Exception as error:
            if (
                failures.is_transient(error)
                or failures.is_outage(error)
                or not tx.connection.in_transaction()
            ):
                raise
            job.error = error
            return False
        return True

    def _notify(self, commits: Sequence[Commit], batch: Sequence[_Job]) -> None:
        """On the event loop, woken once: first memory follows, then the verdicts.

        What was committed stays committed even when nobody is left to hear of it.
        """
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._notify_now, commits, batch)
        except RuntimeError:
            logger.warning("store.loop_closed: an answer was dropped")

    def _notify_now(self, commits: Sequence[Commit], batch: Sequence[_Job]) -> None:
        for commit in commits:
            try:
                self._follow(commit)
            except Exception:
                logger.exception("cache_sync.failed")  # the callers get their verdicts all the same
        _resolve(batch)


def _add_up(total: dict[str, int], more: dict[str, int]) -> None:
    for name, delta in more.items():
        total[name] = total.get(name, 0) + delta


def _resolve(batch: Sequence[_Job]) -> None:
    for job in batch:
        if job.future is None or job.future.done():
            continue  # the caller went away; what was written stays written
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(failures.as_refusal(job.error))


_PAYLOAD_MAX = 7_000


def _payload(hub_id: str, topics: set[str]) -> str:
    """`hub topic topic …`; a list too long for a notification becomes `*`: look at everything. Empty: nothing to tell."""
    if not topics:
        return ""
    text = " ".join((hub_id, *sorted(topics)))
    return text if len(text) <= _PAYLOAD_MAX else f"{hub_id} *"
