"""Transactions. One writer thread commits together all writes that arrived while it flushed the commit before.

A *unit of work* is a function of a `Tx`. It may only read and write through it, because it may run more than once: if one
unit of a shared transaction fails, everything is rolled back, and each unit runs again in a savepoint of its own.

Rows are locked in one order: jobs, attempts, nodes, groups, each sorted by id; then the order of events, then balances.
Some writes (transfers, storage used, groups that may be complete) are only collected while units run, and made once at the
end of the transaction: its units do not know of each other, and two hubs that end jobs of the same two groups must not lock
those groups in opposite orders. The store does not interpret these writes; the domains make them (`CommitHooks`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypedDict, TypeVar, Unpack

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from computepool.core.backoff import double
from computepool.core.errors import Unavailable
from computepool.core.trust.reputation import Reputation
from computepool.core.trust.submitter_reputation import SubmitterReputation
from computepool.hub.clock import Clock
from computepool.hub.db import dialect, failures
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.crashpoints import crash_point
from computepool.hub.db.tables import events

__all__ = [
    "Commit",
    "CommitHooks",
    "Connection",
    "EventFields",
    "Store",
    "Tx",
]  # use cases take SQLAlchemy's types from here

logger = logging.getLogger(__name__)
_TRIES = 5
#: The longest pause before the second try; it doubles with each. A transaction that lost a deadlock and retries at once may
#: lose it again.
_PAUSE_MS = 10
T = TypeVar("T")
P = ParamSpec("P")

_EVENTS = Prepared(events.insert())


@dataclass(slots=True)
class PendingWrites:
    """Writes that wait for the end of the transaction. The comments name the modules that make them."""

    events: list[dict[str, Any]] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    transfers: list[dict[str, Any]] = field(default_factory=list)  #: money/booking.py
    balances: Counter[str] = field(default_factory=Counter)  #: change by ledger account
    inline_bytes: Counter[str] = field(default_factory=Counter)  #: change by account, artifacts/inline_rows.py
    changed_groups: set[str] = field(default_factory=set)  #: they may be complete, groups/collector.py

    def add(self, more: PendingWrites) -> None:
        self.events += more.events
        self.topics |= more.topics
        self.transfers += more.transfers
        self.balances.update(more.balances)
        self.inline_bytes.update(more.inline_bytes)
        self.changed_groups |= more.changed_groups


class EventFields(TypedDict, total=False):
    """What an event is about. A field that is not given is NULL, or false."""

    account_id: str | None
    job_id: str | None
    attempt_id: str | None
    node_id: str | None
    group_id: str | None
    before: str | None
    after: str | None
    reason: str | None
    final: bool


_ABOUT_NOTHING: dict[str, Any] = {**dict.fromkeys(EventFields.__annotations__), "final": False}


@dataclass(slots=True)
class Tx(PendingWrites):
    """A transaction as one unit sees it, or, for the hooks at its end, as a whole."""

    connection: Connection = field(kw_only=True)
    now_ms: int = field(kw_only=True)
    before: PendingWrites = field(default_factory=PendingWrites, kw_only=True)  #: of the units before this one

    def emit(
        self, *, actor: str, action: str, data: str | Mapping[str, object] | None = None, **about: Unpack[EventFields]
    ) -> None:
        """Record a state transition, in the same transaction as the rows it describes."""
        text = data if data is None or isinstance(data, str) else json.dumps(data)
        event = {"at_ms": self.now_ms, "actor": actor, "action": action, **_ABOUT_NOTHING, **about, "data": text}
        self.events.append(event)
        self.topics.add("events")

    def emit_own(self, account_id: str, action: str, **data: object) -> None:
        """Record what an account did with its own objects."""
        self.emit(actor=account_id, action=action, account_id=account_id, data=data)

    def touch(self, *topics: str) -> None:
        """After the commit, wake all who wait for these topics, here and on the other hubs."""
        self.topics.update(topics)


@dataclass(slots=True)
class Commit:
    """What a commit changes in the hub's memory."""

    topics: set[str] = field(default_factory=set)
    reputations: dict[str, Reputation] = field(default_factory=dict)  #: by node
    submitters: dict[str, SubmitterReputation] = field(default_factory=dict)  #: by account

    def __bool__(self) -> bool:
        return bool(self.topics or self.reputations or self.submitters)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitHooks:
    """Functions that run once at the end of every transaction, in this order, with what all of its units collected."""

    before_numbering: tuple[Callable[[Tx], None], ...] = ()  #: may emit events
    #: Run while no other hub numbers anything, just before the events are written.
    while_numbering: tuple[Callable[[Tx, Commit], None], ...] = ()


@dataclass(slots=True)
class _Write:
    unit: Callable[[Tx], Any]
    future: asyncio.Future[Any] | None = None
    result: Any = None
    error: BaseException | None = None


class Store:
    """The database: reads on a few threads, writes on one."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        hub_id: str,
        hooks: CommitHooks,
        group_commit_max: int = 256,
        read_threads: int = 4,
    ) -> None:
        self.url = url
        self.hub_id = hub_id
        self._clock = clock
        self._hooks = hooks
        self._group_commit_max = group_commit_max
        self._writer: Engine = dialect.make_writer(url)
        self._reader: Engine = dialect.make_reader(url, read_threads)
        #: The event loop's own connection, where a query does not wait for a server.
        self._prompt_reader = dialect.make_reader(url, 1) if dialect.is_sqlite(url) else None
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(read_threads, thread_name_prefix="store-read")
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_commit: Callable[[Commit], None]
        self._stopped = False

    def start(self, on_commit: Callable[[Commit], None] = lambda _commit: None) -> None:
        """`on_commit` is called after each commit, on the event loop, before its units get their results."""
        self._loop, self._on_commit = asyncio.get_running_loop(), on_commit
        self._thread = threading.Thread(target=self._run, name="store-write", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Finish the writes that are queued, and refuse any later one."""
        self._stopped = True
        self._queue.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        self._readers.shutdown(wait=True, cancel_futures=True)
        self.close()

    def close(self) -> None:
        """Close the connections. A store that was never started needs nothing else."""
        self._writer.dispose()
        self._reader.dispose()
        if self._prompt_reader is not None:
            self._prompt_reader.dispose()

    async def write(self, unit: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a unit of work. Returns its result, or raises its error, once the shared commit is on disk."""
        future: asyncio.Future[T] = self._running_loop().create_future()
        self._queue.put(_Write(lambda tx: unit(tx, *args, **kwargs), future))
        return await future

    async def read(self, unit: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._running_loop().run_in_executor(
            self._readers, self.read_now, lambda connection: unit(connection, *args, **kwargs)
        )

    async def read_few(self, unit: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read a few rows for which somebody waits. On SQLite this takes less time than to change threads, so it is done
        here; the event loop must not wait for more."""
        if self._prompt_reader is not None:
            self._running_loop()
            with contextlib.suppress(DBAPIError), self._prompt_reader.begin() as connection:
                return unit(connection, *args, **kwargs)
        return await self.read(unit, *args, **kwargs)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._stopped:
            raise Unavailable("The hub is stopping.", retry_after_s=1)
        return self._loop

    def write_now(self, unit: Callable[[Tx], T]) -> T:
        """`write` without an event loop: for start-up, the operator's commands and tests."""
        write = _Write(unit)
        self._notify(self._commit([write]), [write])
        if write.error is not None:
            raise failures.public_error(write.error)
        result: T = write.result
        return result

    def read_now(self, unit: Callable[[Connection], T]) -> T:
        try:
            with self._reader.begin() as connection:
                return unit(connection)
        except DBAPIError as error:
            raise failures.public_error(error) from error

    # the writer thread

    def _run(self) -> None:
        ended = False
        while not ended:
            write = self._queue.get()
            if write is None:
                return
            batch, ended = self._gather(write)
            commits = self._commit(batch)
            crash_point("before_reply")
            self._notify(commits, batch)

    def _gather(self, first: _Write) -> tuple[list[_Write], bool]:
        """Also whether the store is to stop after them."""
        batch = [first]
        while len(batch) < self._group_commit_max:
            try:
                write = self._queue.get_nowait()
            except queue.Empty:
                break
            if write is None:
                return batch, True
            batch.append(write)
        return batch, False

    def _commit(self, batch: Sequence[_Write]) -> list[Commit]:
        """Set the result or the error of every write. Never raises: the writer outlives any failing unit."""
        for isolated in (False, True):
            try:
                return self._transact(batch, isolated=isolated)
            except BaseException as error:  # noqa: BLE001 - each caller gets its own error
                if len(batch) == 1 or failures.is_outage(error):
                    for write in batch:
                        write.error = error
                    if failures.is_outage(error):
                        self._writer.dispose()  # the next transaction connects again
                    return []
        return [commit for write in batch for commit in self._commit([write])]

    def _transact(self, batch: Sequence[_Write], *, isolated: bool) -> list[Commit]:
        for tries in range(1, _TRIES + 1):
            try:
                return self._transact_once(batch, isolated=isolated)
            except DBAPIError as error:
                # Another hub may just have inserted the same key: the next try finds its row.
                raced = isinstance(error, IntegrityError) and len(batch) == 1
                if tries == _TRIES or not (raced or failures.is_transient(error)):
                    raise
                logger.warning("store.retry: %s", error.orig)
                self._pause(tries)
        raise AssertionError("the last try returns or raises")

    def _pause(self, tries: int) -> None:
        share = self._clock.entropy(1)[0] / 256
        time.sleep(share * double(_PAUSE_MS, tries - 1, most=1_000) / 1_000)

    def _transact_once(self, batch: Sequence[_Write], *, isolated: bool) -> list[Commit]:
        now_ms, xid, commit = self._clock.now_ms(), None, Commit()
        try:
            with self._writer.begin() as connection:
                whole = Tx(connection=connection, now_ms=now_ms)
                for write in batch:
                    write.result = write.error = None
                    tx = Tx(connection=connection, now_ms=now_ms, before=whole)
                    if isolated and not self._run_isolated(write, tx):
                        continue
                    if not isolated:
                        write.result = write.unit(tx)
                    whole.add(tx)
                xid = self._end(whole, commit)
                crash_point("before_commit")
        except DBAPIError as error:
            # If the connection was lost during COMMIT, only the database knows how it ended. Running the units again could
            # do things twice.
            if xid is None or not error.connection_invalidated or not dialect.was_committed(self._writer, xid):
                raise
        crash_point("after_commit")
        return [commit] if commit else []

    def _end(self, whole: Tx, commit: Commit) -> str | None:
        """Make the collected writes. Returns the transaction's id, where the database has one.

        Transfers and events come last, because hubs take turns to number them.
        """
        xid = None
        for hook in self._hooks.before_numbering:
            hook(whole)
        if whole.transfers or whole.events:
            xid = dialect.lock_event_order(whole.connection)
        for numbering_hook in self._hooks.while_numbering:
            numbering_hook(whole, commit)
        if whole.events:
            _EVENTS.execute(whole.connection, whole.events)
        commit.topics = whole.topics
        payload = _payload(self.hub_id, whole.topics)
        return dialect.notify(whole.connection, payload) if payload else xid

    def _run_isolated(self, write: _Write, tx: Tx) -> bool:
        """Run one unit in a savepoint, so that its failure undoes nothing but its own work."""
        try:
            with tx.connection.begin_nested():
                write.result = write.unit(tx)
        except Exception as error:
            if failures.is_transient(error) or failures.is_outage(error) or not tx.connection.in_transaction():
                raise
            write.error = error
            return False
        return True

    def _notify(self, commits: Sequence[Commit], batch: Sequence[_Write]) -> None:
        """Wake the event loop once: it updates the hub's memory, then resolves the writes."""
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._notify_now, commits, batch)
        except RuntimeError:
            logger.warning("store.loop_closed: a committed write was not reported to its caller")

    def _notify_now(self, commits: Sequence[Commit], batch: Sequence[_Write]) -> None:
        for commit in commits:
            try:
                self._on_commit(commit)
            except Exception:
                logger.exception("cache_sync.failed")  # the writes are committed all the same
        _resolve(batch)


def _resolve(batch: Sequence[_Write]) -> None:
    for write in batch:
        if write.future is None or write.future.done():
            continue  # the caller was cancelled; its write is committed all the same
        if write.error is None:
            write.future.set_result(write.result)
        else:
            write.future.set_exception(failures.public_error(write.error))


_PAYLOAD_MAX = 7_000


def _payload(hub_id: str, topics: set[str]) -> str:
    """`hub topic topic …`, or `hub *` for everything where the list is too long for a notification. Empty without topics."""
    if not topics:
        return ""
    text = " ".join((hub_id, *sorted(topics)))
    return text if len(text) <= _PAYLOAD_MAX else f"{hub_id} *"
