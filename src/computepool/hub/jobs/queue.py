"""The queue in memory: stored jobs that wait for a node. The dispatcher places them (scheduling/dispatch.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from computepool.core.placement.backlog import Backlog
from computepool.hub.clock import Clock
from computepool.hub.db.session import Store
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.jobs import gang_rows, rows as job_rows
from computepool.hub.jobs.rows import QueuedJob
from computepool.hub.jobs.specs import SpecCache
from computepool.hub.nodes import rows as node_rows

#: How far before the last load the next one begins, because another hub's clock may differ, or its commit may be slow.
_OVERLAP_MS = 1_000
_OVERLAP_SLOW_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJobs:
    """Jobs of one submission, which wait for nothing but a node."""

    job_ids: Sequence[str]
    spec_digest: str
    account_id: str
    priority: int
    ceiling: int
    is_gang: bool = False  #: they are placed together


@dataclass(frozen=True, slots=True)
class QueuedGang:
    """A gang in the backlog, which holds it under the id of its first member."""

    members: tuple[str, ...]  #: by rank
    since_ms: int


class Queue:
    def __init__(self, store: Store, clock: Clock, specs: SpecCache, *, most: int) -> None:
        """`most`: how many jobs it holds; further ones wait in the store."""
        self.backlog = Backlog()
        self.changed = asyncio.Event()  #: there may be something to place
        self.placing = asyncio.Lock()  #: held from the choice of nodes until the jobs are in their sessions
        self._store, self._clock, self._specs, self._most = store, clock, specs, most
        self.gangs: dict[str, QueuedGang] = {}  #: those in the backlog
        self._spec_of: dict[str, str] = {}  #: spec digests by job
        self._loaded_ms = 0

    def wake(self) -> None:
        self.changed.set()

    async def load(self) -> None:
        """Load what was queued since the last load: another hub said that it queued something."""
        await self._load(self._loaded_ms - _OVERLAP_MS)

    async def resync(self) -> None:
        """Load more than that: a notification may have been lost."""
        await self._load(self._loaded_ms - _OVERLAP_SLOW_MS)

    async def load_all(self) -> None:
        """Load everything: after a start, and as a safety net."""
        await self._load(0)

    async def _load(self, since_ms: int) -> None:
        started_ms, most = self._clock.now_ms(), self._most
        if len(self.backlog) >= most:
            return
        rows = await self._store.read(partial(job_rows.list_queued, since_ms=since_ms, limit=most))
        await self._add(rows)
        self._loaded_ms = started_ms if len(rows) < most else rows[-1].queued_at_ms

    async def requeue(self, job_ids: Sequence[str]) -> None:
        await self._add(await self._store.read(partial(job_rows.get_queued, job_ids=job_ids)))

    async def _add(self, rows: Iterable[QueuedJob]) -> None:
        backlog = self.backlog
        fresh = [row for row in rows if row.id not in backlog]
        specs = await self._specs.load({row.spec_digest for row in fresh})
        pins = {row.pinned for row in fresh if row.pinned}
        owners = await self._store.read(lambda c: node_rows.owners(c, pins)) if pins else {}
        gangs = [row.id for row in fresh if row.gang]
        members = await self._store.read(lambda c: gang_rows.member_ids(c, gangs)) if gangs else {}
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
            if row.gang:
                self.gangs[row.id] = QueuedGang(tuple(members[row.id]), row.queued_at_ms)
            backlog.add(row.id, shape, priority=row.priority, age_key=f"{row.queued_at_ms:015d}{row.id}")
            if row.ready_at_ms > now_ms:
                backlog.delay(row.id, row.ready_at_ms)
        if fresh:
            self.wake()

    def add_submitted(self, new: NewJobs) -> None:
        """The usual case, without reading the store."""
        known, backlog = self._specs.peek(new.spec_digest), self.backlog
        if known is None or len(backlog) >= self._most:
            return  # the periodic load finds them
        shape = shape_of(known.requirements, new.account_id, ceiling=new.ceiling)
        now_ms = self._clock.now_ms()
        age = f"{now_ms:015d}"
        if new.is_gang:
            self.gangs[new.job_ids[0]] = QueuedGang(tuple(new.job_ids), now_ms)
        for job_id in new.job_ids[:1] if new.is_gang else new.job_ids:
            if job_id not in backlog:
                self._spec_of[job_id] = new.spec_digest
                backlog.add(job_id, shape, priority=new.priority, age_key=age + job_id)

    def spec_of(self, job_id: str) -> str:
        """The digest of its spec; empty if it is not known."""
        return self._spec_of.get(job_id, "")

    def forget_placed(self, job_id: str) -> None:
        """The dispatcher has taken it from the backlog, and a node has it."""
        self._spec_of.pop(job_id, None)
        self.gangs.pop(job_id, None)

    def forget(self, job_id: str) -> None:
        self._spec_of.pop(job_id, None)
        self.gangs.pop(job_id, None)
        self.backlog.remove(job_id)
