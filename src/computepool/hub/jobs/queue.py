"""The queue in memory: jobs that wait for a node, as the store has them. The dispatcher places them (scheduling/dispatch.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from computepool.core.placement.backlog import Backlog
from computepool.hub.clock import Clock
from computepool.hub.db.session import Store
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.rows import QueuedJob
from computepool.hub.jobs.specs import SpecCache
from computepool.hub.nodes import rows as node_rows

#: A job read back late (another hub's clock, a slow commit) is still found by looking this far behind: a little when
#: another hub says so, more now and then, and at everything once in a while.
_OVERLAP_MS = 1_000
_OVERLAP_SLOW_MS = 30_000


class Queue:
    def __init__(self, store: Store, clock: Clock, specs: SpecCache, *, most: int) -> None:
        """`most`: jobs that are kept here; the others wait in the store alone."""
        self.backlog = Backlog()
        self.changed = asyncio.Event()  #: there may be something to place
        #: While jobs are on their way to nodes: chosen for them, and not yet in their sessions.
        self.placing = asyncio.Lock()
        self._store, self._clock, self._specs, self._most = store, clock, specs, most
        self._spec_of: dict[str, str] = {}  #: job → spec digest
        self._synced_ms = 0

    def wake(self) -> None:
        self.changed.set()

    async def resync(self) -> None:
        """Under notifications: what is younger than the last look, and what was committed late."""
        await self.load(since_ms=self._synced_ms - _OVERLAP_SLOW_MS)

    async def load_all(self) -> None:
        """The safety net under notifications and memory: now and then, whatever happened."""
        await self.load(since_ms=0)

    async def load(self, *, since_ms: int | None = None) -> None:
        """Read queued jobs back from the store: after a start, or when another hub queued some."""
        started_ms, most = self._clock.now_ms(), self._most
        if len(self.backlog) >= most:
            return
        begin_ms = self._synced_ms - _OVERLAP_MS if since_ms is None else since_ms
        rows = await self._store.read(
            lambda connection: job_rows.list_queued(connection, since_ms=begin_ms, limit=most)
        )
        await self.add(rows)
        self._synced_ms = started_ms if len(rows) < most else rows[-1].queued_at_ms

    async def requeue(self, job_ids: Sequence[str]) -> None:
        """These wait again."""
        await self.add(await self._store.read(lambda connection: job_rows.get_queued(connection, job_ids)))

    async def add(self, rows: Iterable[QueuedJob]) -> None:
        backlog = self.backlog
        fresh = [row for row in rows if row.id not in backlog]
        specs = await self._specs.load({row.spec_digest for row in fresh})
        pins = {row.pinned for row in fresh if row.pinned}
        owners = await self._store.read(lambda c: node_rows.owners(c, pins)) if pins else {}
        now_ms = self._clock.now_ms()
        for row in fresh:
            shape = shape_of(
                specs[row.spec_digest].requirements,
                row.shown_account,
                ceiling=row.ceiling,
                avoid_node=row.avoid_node,
                avoid_owners=row.avoid_owners,
                pinned=row.pinned,
                own=owners.get(row.pinned) == row.shown_account,
            )
            self._spec_of[row.id] = row.spec_digest
            backlog.add(row.id, shape, priority=row.priority, age_key=f"{row.queued_at_ms:015d}{row.id}")
            if row.ready_at_ms > now_ms:
                backlog.delay(row.id, row.ready_at_ms)
        if fresh:
            self.wake()

    def submitted(
        self, job_ids: Sequence[str], *, spec_digest: str, account_id: str, priority: int, ceiling: int
    ) -> None:
        """The common case needs no second look at the store."""
        known, backlog = self._specs.peek(spec_digest), self.backlog
        if known is None or len(backlog) >= self._most:
            return  # the periodic load finds them
        shape = shape_of(known.requirements, account_id, ceiling=ceiling)
        age = f"{self._clock.now_ms():015d}"
        for job_id in job_ids:
            if job_id not in backlog:
                self._spec_of[job_id] = spec_digest
                backlog.add(job_id, shape, priority=priority, age_key=age + job_id)
        self.wake()

    def spec_of(self, job_id: str) -> str:
        """The digest of its spec, or nothing."""
        return self._spec_of.get(job_id, "")

    def placed(self, job_id: str) -> None:
        """It left the backlog for a node."""
        self._spec_of.pop(job_id, None)

    def forget(self, job_id: str) -> None:
        self._spec_of.pop(job_id, None)
        self.backlog.remove(job_id)
