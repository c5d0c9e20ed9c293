"""Transactions. One writer thread shares a commit among all writes that arrive while the last one became durable.

A *unit* is a function of a `Tx`. It must do nothing but read and write through it, because it may run more than once:
when a unit of a shared transaction fails, everything is rolled back and run again with a savepoint around each.

Rows are locked in one order: jobs, attempts, nodes, groups, each sorted by id; then the turn to number events, and balances.
Groups that may be complete are looked at once, at the end of the whole transaction: its units know nothing of each other,
and two hubs that each end jobs of the same two groups must not meet them in opposite orders.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from computepool.core.errors import Unavailable
from computepool.core.money import ledger
from computepool.core.money.ledger import Leg
from computepool.core.trust.reputation import Reputation
from computepool.core.trust.submitter_reputation import SubmitterReputation
from computepool.hub.artifacts import inline_rows
from computepool.hub.clock import Clock
from computepool.hub.db import dialect, failures
from computepool.hub.db.compiled_statements import Prepared
from computepool.hub.db.crashpoints import crash_point
from computepool.hub.db.tables import events
from computepool.hub.money import booking
from computepool.hub.trust import reputation_rows, submitter_reputation_rows

__all__ = ["Connection", "Store", "Tx"]  # services name SQLAlchemy's types only from here

logger = logging.getLogger(__name__)
_TRIES = 3
T = TypeVar("T")

#: What follows from a commit: who is told, and of what.
_News: TypeAlias = tuple[Callable[[Any], None], Any]

_EVENTS = Prepared(events.insert())
_EVENT_COLUMNS = tuple(column.name for column in events.columns if column.name != "seq")


@dataclass(slots=True)
class Tx:
    """One unit's view of a transaction."""

    connection: Connection
    now_ms: int
    events: list[dict[str, Any]] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)
    transfers: list[dict[str, Any]] = field(default_factory=list)
    changes: dict[str, int] = field(default_factory=dict)  #: of balances, by this unit
    changed_before: dict[str, int] = field(default_factory=dict)  #: by units before it in the transaction
    posted_before: Sequence[dict[str, Any]] = ()  #: transfers of theirs, not written yet
    inline: dict[str, int] = field(default_factory=dict)  #: bytes more that accounts keep, by this unit
    inline_before: dict[str, int] = field(default_factory=dict)  #: by units before it
    closing: set[str] = field(
        default_factory=set
    )  #: watched groups of which something ended, see Store.on_closing

    def emit(self, *, actor: str, action: str, final: bool = False, **columns: Any) -> None:
        """Record a state transition; it is written with the rows it describes, in the same transaction."""
        row = dict.fromkeys(_EVENT_COLUMNS)
        row.update(columns, at_ms=self.now_ms, actor=actor, action=action, final=final)
        self.events.append(row)
        self.topics.add("events")

    def post(
        self, key: str, legs: Sequence[Leg], *, job_id: str | None = None, ref: str | None = None
    ) -> None:
        """Move money, once per key: the database refuses the same key again. Written when the transaction ends."""
        self.transfers += booking.rows_of(key, legs, job_id=job_id, ref=ref)
        for account, delta in ledger.deltas(legs).items():
            self.changes[account] = self.changes.get(account, 0) + delta

    def balance(self, account: str) -> int:
        """With what this transaction has moved so far. Another hub may be faster: the database has the last word."""
        stored = booking.balance_of(self.connection, account)
        return stored + self.changed_before.get(account, 0) + self.changes.get(account, 0)

    def count_inline(self, account_id: str, delta: int) -> None:
        """The account keeps so many bytes more, or less, in the database. Written when the transaction ends."""
        self.inline[account_id] = self.inline.get(account_id, 0) + delta

    def inline_bytes(self, account_id: str) -> int:
        """With what this transaction has changed so far."""
        changed = self.inline_before.get(account_id, 0) + self.inline.get(account_id, 0)
        return inline_rows.stored(self.connection, account_id) + changed

    def touch(self, *topics: str) -> None:
        """After the commit, wake whoever waits for these topics, here and on the other hubs."""
        self.topics.update(topics)


@dataclass(slots=True)
class _Job:
    unit: Callable[[Tx], Any]
    future: asyncio.Future[Any] | None = None
    result: Any = None
    error: BaseException | None = None


class Store:
    """Reads on a few threads, writes on one. After each commit, on the event loop: `on_commit(topics)`, and
    `on_reputation(changed)` with the nodes and `on_submitter_reputation(changed)` with the submitters whose outcomes it recorded.
    """

    def __init__(
        self, url: str, *, clock: Clock, hub_id: str, group_commit_max: int = 256, read_threads: int = 4
    ) -> None:
        self.url = url
        self.hub_id = hub_id
        self._clock = clock
        self._group_commit_max = group_commit_max
        self._writer: Engine = dialect.make_writer(url)
        self._reader: Engine = dialect.make_reader(url, read_threads)
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(read_threads, thread_name_prefix="store-read")
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self.on_commit: Callable[[set[str]], None] = lambda _topics: None
        self.on_reputation: Callable[[dict[str, Reputation]], None] = lambda _changed: None
        self.on_submitter_reputation: Callable[[dict[str, SubmitterReputation]], None] = lambda _changed: None
        #: Called at the end of a transaction that ended something of watched groups.
        self.on_closing: Callable[[Tx], None] = lambda _tx: None
        self._owners: dict[str, str] = {}  # of nodes; read and written by the writer alone

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
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
        self._tell(self._commit([job]), [job])
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
            news = self._commit(batch)
            crash_point("before_reply")
            self._tell(news, batch)

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

    def _commit(self, batch: Sequence[_Job]) -> list[_News]:
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
        return [told for job in batch for told in self._commit([job])]

    def _transact(self, batch: Sequence[_Job], *, isolated: bool) -> list[_News]:
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._transact_once(batch, isolated=isolated)
            except DBAPIError as error:
                # Another hub may have inserted the same key this instant: looking again finds its row.
                raced = isinstance(error, IntegrityError) and len(batch) == 1
                if not tries_left or not (raced or failures.is_transient(error)):
                    raise
                logger.warning("store.retry: %s", error.orig)
        raise AssertionError("the last try returns or raises")

    def _transact_once(self, batch: Sequence[_Job], *, isolated: bool) -> list[_News]:
        now_ms = self._clock.now_ms()
        done: list[Tx] = []
        topics: set[str] = set()
        seal: str | None = None
        changed = _Changed()
        try:
            with self._writer.begin() as connection:
                changes: dict[str, int] = {}
                kept: dict[str, int] = {}
                posted: list[dict[str, Any]] = []
                for job in batch:
                    job.result = job.error = None
                    tx = Tx(
                        connection, now_ms, changed_before=changes, posted_before=posted, inline_before=kept
                    )
                    if isolated and not self._run_isolated(job, tx):
                        continue
                    if not isolated:
                        job.result = job.unit(tx)
                    done.append(tx)
                    posted += tx.transfers
                    _add_up(changes, tx.changes)
                    _add_up(kept, tx.inline)
                inline_rows.write(connection, kept)
                done += self._close(connection, done, now_ms)
                topics = topics.union(*(tx.topics for tx in done))
                notice = _payload(self.hub_id, topics)
                seal, changed = _flush(connection, done, changes, notice=notice, owners=self._owners)
                crash_point("before_commit")
        except DBAPIError as error:
            # Lost in the middle of COMMIT: only the database knows. Running the units again could do things twice.
            if seal is None or not error.connection_invalidated:
                raise
            if not dialect.was_committed(self._writer, seal):
                raise
        crash_point("after_commit")
        told: list[_News] = [
            (self.on_commit, topics),
            (self.on_reputation, changed.nodes),
            (self.on_submitter_reputation, changed.submitters),
        ]
        return [(tell, news) for tell, news in told if news]

    def _close(self, connection: Connection, done: Sequence[Tx], now_ms: int) -> list[Tx]:
        closing = set[str]().union(*(tx.closing for tx in done))
        if not closing:
            return []
        tx = Tx(connection, now_ms, closing=closing)
        self.on_closing(tx)
        return [tx]

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

    def _tell(self, news: Sequence[_News], batch: Sequence[_Job]) -> None:
        """On the event loop, woken once: first the news, then the verdicts.

        What was committed stays committed even when nobody is left to hear of it.
        """
        if self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(_tell, news, batch)
        except RuntimeError:
            logger.warning("store.loop_closed: an answer was dropped")


@dataclass(frozen=True, slots=True)
class _Changed:
    """What a transaction's events came to."""

    nodes: dict[str, Reputation] = field(default_factory=dict)
    submitters: dict[str, SubmitterReputation] = field(default_factory=dict)


def _add_up(total: dict[str, int], more: dict[str, int]) -> None:
    for name, delta in more.items():
        total[name] = total.get(name, 0) + delta


def _flush(
    connection: Connection,
    done: Sequence[Tx],
    changes: dict[str, int],
    *,
    notice: str,
    owners: dict[str, str],
) -> tuple[str | None, _Changed]:
    """Money and events last, because hubs take turns to number them.

    Returns what names the transaction afterwards, and the reputations that it changed.
    """
    seal, changed = None, _Changed()
    moved = [row for tx in done for row in tx.transfers]
    told = [row for tx in done for row in tx.events]
    if moved or told:
        seal = dialect.order_events(connection)
    if moved:
        booking.write(connection, moved, changes, now_ms=done[0].now_ms)
    if told:
        _EVENTS.execute(connection, told)
        changed = _Changed(
            nodes=reputation_rows.count(connection, told),
            submitters=submitter_reputation_rows.count(connection, told, owners),
        )
    if notice:
        seal = dialect.notify(connection, notice)
    return seal, changed


def _tell(news: Sequence[_News], batch: Sequence[_Job]) -> None:
    for tell, what in news:
        try:
            tell(what)
        except Exception:
            logger.exception("store.follow_failed")  # the callers get their verdicts all the same
    _resolve(batch)


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
