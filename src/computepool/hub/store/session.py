"""Transactions. One writer thread shares a commit among all writes that arrive while the last one was being made durable.

A *unit* is a function of a `Tx`. It must do nothing but read and write through it, because a unit may be run twice:
when another unit of the same shared transaction fails, everything is rolled back and each unit is run on its own.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection as Connection
from sqlalchemy import Engine, Row
from sqlalchemy.exc import DBAPIError

from computepool.core.errors import ComputePoolError, OutOfSpace, Unavailable
from computepool.hub.clock import Clock
from computepool.hub.store import dialect
from computepool.hub.store.crashpoints import crash_point
from computepool.hub.store.tables import events

logger = logging.getLogger(__name__)
_TRANSIENT_TRIES = 3
T = TypeVar("T")

#: A row of any query; services see rows and connections only under these names.
AnyRow: TypeAlias = Row[*tuple[Any, ...]]


@dataclass(slots=True)
class Tx:
    """One unit's view of a transaction."""

    connection: Connection
    now_ms: int
    events: list[dict[str, Any]] = field(default_factory=list)
    topics: set[str] = field(default_factory=set)

    def emit(self, *, actor: str, action: str, final: bool = False, **columns: Any) -> None:
        """Record a state transition; it is written with the rows it describes, in the same transaction."""
        row = dict.fromkeys(_EVENT_COLUMNS)
        row.update(columns, at_ms=self.now_ms, actor=actor, action=action, final=final)
        self.events.append(row)

    def touch(self, *topics: str) -> None:
        """After the commit, wake whoever waits for these topics, here and on the other hubs."""
        self.topics.update(topics)


_EVENT_COLUMNS = tuple(column.name for column in events.columns if column.name != "seq")


@dataclass(slots=True)
class _Job:
    unit: Callable[[Tx], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class Store:
    """Reads on a few threads, writes on one. `on_commit(topics)` is called on the event loop after each commit."""

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
        self.on_commit: Callable[[set[str]], None] = lambda _topics: None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="store-write", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        self._queue.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
        self._readers.shutdown(wait=True, cancel_futures=True)
        self._writer.dispose()
        self._reader.dispose()

    async def write(self, unit: Callable[[Tx], T]) -> T:
        """Run the unit durably; returns (or raises) its own verdict when the shared commit is on disk."""
        assert self._loop is not None
        job = _Job(unit, self._loop.create_future())
        self._queue.put(job)
        result: T = await job.future
        return result

    async def read(self, unit: Callable[[Connection], T]) -> T:
        assert self._loop is not None
        try:
            return await self._loop.run_in_executor(self._readers, self._read, unit)
        except DBAPIError as error:
            raise _as_refusal(error) from error

    def _read(self, unit: Callable[[Connection], T]) -> T:
        with self._reader.begin() as connection:
            return unit(connection)

    def write_now(self, unit: Callable[[Tx], T]) -> T:
        """The same without an event loop: start-up, the operator's commands, tests."""
        with self._writer.begin() as connection:
            tx = Tx(connection, self._clock.now_ms())
            result = unit(tx)
            self._flush(connection, [tx])
            return result

    def read_now(self, unit: Callable[[Connection], T]) -> T:
        return self._read(unit)

    # the writer thread

    def _run(self) -> None:
        while True:
            job = self._queue.get()
            if job is None:
                return
            batch, ended = self._gather(job)
            self._commit(batch)
            self._answer(batch)
            if ended:
                return

    def _gather(self, first: _Job) -> tuple[list[_Job], bool]:
        batch = [first]
        while len(batch) < self._group_commit_max:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
            if job is None:
                return batch, True
            batch.append(job)
        return batch, False

    def _commit(self, batch: list[_Job]) -> None:
        try:
            self._transact(batch)
        except BaseException as error:  # noqa: BLE001 - the writer must outlive any failing unit; each gets its verdict
            if len(batch) == 1:
                batch[0].error = error
                return
            for job in batch:
                self._commit([job])

    def _transact(self, batch: list[_Job]) -> None:
        for attempt in range(_TRANSIENT_TRIES):
            try:
                self._transact_once(batch)
                return
            except DBAPIError as error:
                if not dialect.is_transient(error) or attempt == _TRANSIENT_TRIES - 1:
                    raise
                logger.warning("store.retry: %s", error.orig)

    def _transact_once(self, batch: list[_Job]) -> None:
        transactions: list[Tx] = []
        now_ms = self._clock.now_ms()
        with self._writer.begin() as connection:
            for job in batch:
                tx = Tx(connection, now_ms)
                job.result = job.unit(tx)
                transactions.append(tx)
            self._flush(connection, transactions)
            crash_point("before_commit")
        crash_point("after_commit")
        topics = set().union(*(tx.topics for tx in transactions))
        if topics and self._loop is not None:
            self._loop.call_soon_threadsafe(self.on_commit, topics)

    def _flush(self, connection: Connection, transactions: list[Tx]) -> None:
        rows = [row for tx in transactions for row in tx.events]
        if rows:
            dialect.order_events(connection)
            connection.execute(events.insert(), rows)
        topics = set().union(*(tx.topics for tx in transactions)) if transactions else set()
        if topics:
            dialect.notify(connection, _payload(self.hub_id, topics))

    def _answer(self, batch: list[_Job]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(_resolve, batch)
        except RuntimeError:
            logger.warning("store.loop_closed: %d answers dropped", len(batch))


def _resolve(batch: list[_Job]) -> None:
    for job in batch:
        if job.future.done():
            continue  # the caller went away; what was written stays written
        if job.error is None:
            job.future.set_result(job.result)
        elif isinstance(job.error, DBAPIError):
            job.future.set_exception(_as_refusal(job.error))
        else:
            job.future.set_exception(job.error)


def _as_refusal(error: DBAPIError) -> ComputePoolError:
    if dialect.is_disk_full(error):
        return OutOfSpace("The hub's disk is full; nothing was changed. Free some space and try again.")
    logger.error("store.failed: %s", error)
    return Unavailable(
        "The hub's database cannot be reached right now; nothing was changed.", retry_after_s=1
    )


_PAYLOAD_MAX = 7_000


def _payload(hub_id: str, topics: set[str]) -> str:
    """`hub topic topic …`; a list too long for a notification becomes `*`: look at everything."""
    text = " ".join((hub_id, *sorted(topics)))
    return text if len(text) <= _PAYLOAD_MAX else f"{hub_id} *"
