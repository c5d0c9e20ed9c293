"""Tests of nodes on probation: the suspect runs jobs again on which nodes of several owners have agreed.

To the node a test is a job of its first submitter, like any other. The hub chooses a job that this owner's nodes never ran, of
a submitter with an old enough account, and avoids the node's accusers: neither their jobs, nor jobs on which their nodes
agreed. Each test is of another submitter, so that nobody's programs decide alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from computepool.core.ids import make_id
from computepool.core.jobs.lifecycle import JobState
from computepool.core.placement.gates import could_run
from computepool.core.trust.discounting import DAY_MS
from computepool.core.trust.reputation import PROBE_RIGHT_ACTION, PROBE_WRONG_ACTION, number_of
from computepool.core.trust.verification import VerificationVerdict
from computepool.core.trust.violations import decode
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.rows import FullJobRow
from computepool.hub.jobs.specs import KnownSpec
from computepool.hub.jobs.transactions import JobTx, MemoryChanges, write
from computepool.hub.nodes import rows as node_rows
from computepool.hub.settings import Settings
from computepool.hub.settlement import after_commit, hub_jobs
from computepool.hub.settlement.verification import comparators, probe_rows, recheck_rows, violations
from computepool.hub.settlement.verification.probe_rows import KIND, ProbeCandidate
from computepool.hub.trust import reputation_rows

_LOOKED_AT_MAX = 200
_OF_ONE_MAX = 10  #: submitter


async def send_due(hub: Hub) -> list[str]:
    """Give a test to every suspect that polls this hub and has none; returns the hub jobs."""
    started: list[str] = []
    for node_id in sorted(hub.trust.suspects):
        session = hub.nodes.registry.get(node_id)
        if session is None:
            hub.trust.suspects.discard(node_id)  # known again when it comes back
            continue
        owner = session.profile.owner
        found = await hub.store.read(
            _candidates, settings=hub.settings, now_ms=hub.now_ms(), node_id=node_id, owner=owner
        )
        specs = await hub.jobs.specs.load({row.spec_digest for row in found})
        fitting = [row for row in found if _fits(hub, row, specs[row.spec_digest], node_id=node_id)]
        if fitting:
            picked = _draw(fitting, hub.clock.entropy(8))
            changed = await write(hub, partial(_start, job_id=picked.id, node_id=node_id))
            await after_commit.follow(hub, changed)
            started += changed.requeued
    return started


def _draw(rows: Sequence[ProbeCandidate], entropy: bytes) -> ProbeCandidate:
    """First the submitter, then the job: many jobs do not make a submitter more likely."""
    first, second = (int.from_bytes(part, "big") for part in (entropy[:4], entropy[4:]))
    submitters = sorted({row.account_id for row in rows})
    chosen = submitters[first % len(submitters)]
    own = [row for row in rows if row.account_id == chosen]
    return own[second % len(own)]


def _candidates(
    connection: Connection, *, settings: Settings, now_ms: int, node_id: str, owner: str
) -> list[ProbeCandidate]:
    known = reputation_rows.of_node(connection, node_id)
    if not known.probation_at_ms or probe_rows.is_open(connection, node_id):
        return []
    rows = probe_rows.probe_candidates(
        connection,
        owner_id=owner,
        created_before_ms=now_ms - round(settings.ban_submitter_days * DAY_MS),
        since_id=make_id("job", max(0, now_ms - round(settings.probe_age_s * 1000)), bytes(10)),
        cost_max=settings.probe_cost_max,
        each=_OF_ONE_MAX,
        limit=_LOOKED_AT_MAX,
    )
    used = probe_rows.submitters(connection, node_id, since_ms=known.probation_at_ms)
    wrong = decode(known.violations)
    # Submitters of the jobs on which it was found to be wrong, and the owners whose nodes refuted it.
    accusers = {each.submitter for each in wrong} | {number for each in wrong for number in each.refuters}
    judges = probe_rows.owners_of(connection, [row.id for row in rows])
    return [
        row
        for row in rows
        if row.account_id not in used
        and number_of(row.account_id) not in accusers
        and not accusers & {number_of(judge) for judge in judges.get(row.id, ())}
    ]


def _fits(hub: Hub, row: ProbeCandidate, spec: KnownSpec, *, node_id: str) -> bool:
    fleet = hub.nodes.registry.fleet
    node = fleet.get(node_id)
    if node is None or spec.spec.net:  # what a program finds on the network changes
        return False
    shape = shape_of(spec.requirements, row.account_id, ceiling=row.ceiling, pinned=node_id)
    return bool(could_run(fleet, shape, slice(node.row, node.row + 1)).all())


def _start(tx: JobTx, *, job_id: str, node_id: str) -> MemoryChanges:
    job = job_rows.lock_jobs(tx, [job_id]).get(job_id)
    # Another hub may have sent the node a test, or tested another node with this job.
    unused = job is not None and recheck_rows.without_hub_job(tx.connection, [job_id], kind=KIND)
    if job is not None and unused and not probe_rows.is_open(tx.connection, node_id):
        hub_jobs.start(
            tx,
            job,
            kind=KIND,
            number=1,
            payer=hub_jobs.POOL_ACCOUNT,
            avoid_owners=(),
            ttl_ms=tx.snapshot.settings.holdback_ms,
            pinned=node_id,
        )
    return tx.memory


def on_ended(tx: JobTx, hub_job: FullJobRow) -> None:
    """A test that did not succeed says nothing; there will be another."""
    _, job_id, _ = hub_jobs.parts(hub_job.hub_job)
    job = job_rows.lock_jobs(tx, [job_id])[job_id]
    if hub_job.state != JobState.SUCCEEDED or job.verdict != VerificationVerdict.CONFIRMED:
        return
    results = [comparators.accepted_result(tx, row) for row in (job, hub_job)]
    kinds = comparators.classes_of_accepted(tx, results)
    if kinds is None:
        return
    attempt = results[1].attempt
    node = node_rows.get_node(tx.connection, attempt.node_id)
    assert node is not None
    tx.emit(
        actor="hub",
        action=PROBE_RIGHT_ACTION if kinds[0] == kinds[1] else PROBE_WRONG_ACTION,
        account_id=node.account_id,
        job_id=hub_job.id,
        attempt_id=attempt.id,
        node_id=attempt.node_id,
    )
    violations.notify_probed(tx, attempt.node_id, tx.events[-1])
