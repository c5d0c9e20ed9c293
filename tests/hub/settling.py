"""The real use cases of a hub, called directly in any order, without routes or loops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.core.jobs.lifecycle import JobState, Outcome, Reason, may_become
from computepool.hub.app import assemble, build_hub, open_store
from computepool.hub.db.event_rows import EventRow
from computepool.hub.db.session import Connection, Tx
from computepool.hub.db.tables import events
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.jobs import attempt_rows, rows as job_rows
from computepool.hub.jobs.attempt_rows import NamedAttempt
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transactions import JobTx
from computepool.hub.scheduling import leases
from computepool.hub.settings import Settings
from computepool.hub.settlement import cancel, follow_ups, settle
from computepool.protocol.nodes.nodes import CompleteRequest, Report, signed_text
from computepool.protocol.tokens import b64, public_text
from computepool.testing.clock import FakeClock
from computepool.testing.factories import LEASE_MS, add_account, add_attempt, add_jobs, add_node

OPEN = {JobState.QUEUED, JobState.LEASED, JobState.RUNNING}
HELD = {JobState.LEASED, JobState.RUNNING}


@dataclass
class Picture:
    """A job as stored."""

    job: JobRow
    attempts: list[NamedAttempt]
    events: list[EventRow] = field(default_factory=list)

    @property
    def state(self) -> JobState:
        return JobState(self.job.state)

    def check(self) -> None:
        """Check what must hold for every job at every moment."""
        assert [attempt.number for attempt in self.attempts] == list(range(1, self.job.attempt_no + 1))
        live = [attempt.number for attempt in self.attempts if attempt.state in HELD]
        assert live == ([self.job.attempt_no] if self.state in HELD else [])
        accepted = [attempt.number for attempt in self.attempts if attempt.number == self.job.accepted_attempt]
        assert len(accepted) == (self.state is JobState.SUCCEEDED)
        assert all(self.attempts[number - 1].state == "succeeded" for number in accepted)
        # The events are an unbroken chain of allowed transitions from the submission to the current state.
        before = JobState.QUEUED
        for event in self.events:
            assert event.before == before, [(row.before, row.after) for row in self.events]
            after = JobState(event.after)
            assert may_become(before, after)
            assert event.final == (after not in OPEN)
            before = after
        assert before is self.state


class Bench:
    """A hub on SQLite with a few nodes of different owners, and a fake clock."""

    def __init__(self, folder: Path, *, nodes: int = 3) -> None:
        self.clock = FakeClock()
        self.settings = Settings(data_dir=folder, DATABASE_URL="", verify="none")
        self.hub = build_hub(self.settings, self.clock)
        self.keys = [Ed25519PrivateKey.generate() for _ in range(nodes)]
        self.nodes, self.submitter = self.hub.store.write_now(self._people)

    def _people(self, tx: Tx) -> tuple[list[NodePrincipal], Principal]:
        nodes = []
        for key in self.keys:
            owner = add_account(tx)
            public = public_text(key)
            node_id = add_node(tx, account_id=owner, public_key=public)
            nodes.append(NodePrincipal(node_id=node_id, owner=owner, public_key=public))
        account = add_account(tx)
        return nodes, Principal(account_id=account, name=account, roles=frozenset({"submitter"}))

    async def start(self) -> None:
        self.hub.store.start()
        await leases.on_boot(self.hub)

    async def restart(self) -> None:
        """Replace the hub by a new one on the same database."""
        await self.hub.store.stop()
        store = open_store(self.settings.url, clock=self.clock, hub_id=self.hub.process.hub_id)
        self.hub = assemble(self.settings, self.clock, store)
        await self.start()

    async def stop(self) -> None:
        await self.hub.store.stop()

    # what happens to a job

    async def submit(self, count: int = 1, *, retries: int = 0) -> list[str]:
        account = self.submitter.account_id
        return await self.hub.store.write(lambda tx: add_jobs(tx, count, account_id=account, retries=retries))

    async def lease(self, job_id: str, node: int) -> str | None:
        """Lease the job. Returns the attempt, or None if the job is not queued."""
        principal = self.nodes[node]

        def unit(tx: Tx) -> str | None:
            job = job_rows.get_job(tx.connection, job_id)
            if job is None or job.state != JobState.QUEUED:
                assert job_rows.lease_jobs(tx, [job_id]) == {}
                return None
            attempt = add_attempt(tx, job_id, node_id=principal.node_id, owner_id=principal.owner)
            tx.emit(actor="hub", action="job.leased", job_id=job_id, before=job.state, after=JobState.LEASED.value)
            return attempt

        return await self.hub.store.write(unit)

    async def report(self, node: int, *reports: Report) -> list[str]:
        text = signed_text(reports)
        request = CompleteRequest(reports=list(reports), signature=b64(self.keys[node].sign(text)))
        reply = await settle.complete(self.hub, self.nodes[node], request)
        return [answer.verdict.value for answer in reply.answers]

    async def expire(self, *attempt_ids: str) -> None:
        """Let the leases of these attempts expire, and no others."""

        def unit(tx: JobTx) -> None:
            tx.now_ms += 10 * LEASE_MS
            leases.end_attempts(tx, attempt_ids=attempt_ids, reason=Reason.LEASE_LOST)

        await follow_ups.write(self.hub, unit)

    async def silence(self, *speaking: str) -> None:
        """Let a whole lease pass in which only these attempts are renewed, and sweep."""
        self.clock.advance(10 * LEASE_MS)
        until_ms = self.clock.now_ms() + LEASE_MS
        await self.hub.store.write(lambda tx: attempt_rows.renew_leases(tx, speaking, until_ms=until_ms))
        await leases.expire_overdue(self.hub)

    async def cancel(self, job_id: str) -> None:
        await cancel.cancel(self.hub, self.submitter, job_id)

    async def pictures(self, job_ids: Iterable[str]) -> list[Picture]:
        wanted = list(job_ids)
        return await self.hub.store.read(lambda connection: [_picture(connection, id_) for id_ in wanted])


def _picture(connection: Connection, job_id: str) -> Picture:
    job = job_rows.get_job(connection, job_id)
    assert job is not None
    trail = EventRow.fetch(connection, events.c.job_id == job_id, order=events.c.seq)
    return Picture(
        job,
        list(attempt_rows.get_attempts(connection, job_id)),
        [event for event in trail if event.action.startswith("job.")],
    )


def success(attempt_id: str, value: str = "1") -> Report:
    return Report(attempt_id=attempt_id, outcome=Outcome.SUCCEEDED, reason=Reason.COMPLETED, result=value)


def failure(attempt_id: str, reason: Reason = Reason.EXIT_NONZERO) -> Report:
    return Report(attempt_id=attempt_id, outcome=Outcome.FAILED, reason=reason, exit_code=1)


def returned(attempt_id: str) -> Report:
    return Report(attempt_id=attempt_id, outcome=Outcome.RETURNED, reason=Reason.GIVEN_BACK)
