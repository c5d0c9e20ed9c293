"""Tests of nodes on probation: jobs that several owners' nodes have done alike, run once more by the suspect.

To the node it is a job of whoever submitted it first, like any other. The hub chooses one that this owner's nodes have never
run, of a submitter who has been here for a while and whose jobs are not what the node is accused of, done alike by nodes
that did not accuse it; each test is of another submitter, so that no one's programs alone decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from computepool.core.ids import make_id
from computepool.core.jobs.lifecycle import JobState
from computepool.core.placement.gates import could_run
from computepool.core.trust.discounting import DAY_MS
from computepool.core.trust.reputation import (
    NEWCOMER,
    PROBE_RIGHT_ACTION,
    PROBE_WRONG_ACTION,
    Reputation,
    number_of,
)
from computepool.core.trust.violations import decode
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.attempt_rows import AttemptRow
from computepool.hub.jobs.rows import FullJobRow, JobRow
from computepool.hub.jobs.specs import KnownSpec
from computepool.hub.jobs.transitions import Effects, Settlement
from computepool.hub.nodes import rows as node_rows
from computepool.hub.settings import Settings
from computepool.hub.settlement import after_commit, hub_jobs
from computepool.hub.settlement.verification import comparators, probe_rows, recheck_rows, violations
from computepool.hub.settlement.verification.probe_rows import ProbeCandidate
from computepool.hub.settlement.verification.verification import VerificationVerdict
from computepool.hub.snapshot import Snapshot, write
from computepool.hub.trust import reputation_rows

KIND = "probe"
_LOOKED_AT_MAX = 200
_OF_ONE_MAX = 10  #: submitter


async def send_due(hub: Hub) -> list[str]:
    """Give every suspect that polls this hub, and has none, a test; returns the hub jobs."""
    started: list[str] = []
    for node_id in sorted(hub.trust.suspects):
        session = hub.nodes.registry.get(node_id)
        if session is None:
            hub.trust.suspects.discard(node_id)  # known again when it comes back
            continue
        owner = session.profile.owner
        found = await hub.store.read(
            partial(_candidates, settings=hub.settings, now_ms=hub.now_ms(), node_id=node_id, owner=owner)
        )
        specs = await hub.jobs.specs.load({row.spec_digest for row in found})
        fitting = [row for row in found if _fits(hub, row, specs[row.spec_digest], node_id=node_id)]
        if fitting:
            picked = _draw(fitting, hub.clock.entropy(8))
            sent = await write(hub, partial(_send, job_id=picked.id, node_id=node_id))
            await after_commit.follow(hub, sent)
            started += sent.requeued
    return started


def _draw(rows: Sequence[ProbeCandidate], entropy: bytes) -> ProbeCandidate:
    """First whose, then which: many jobs do not make a submitter more likely."""
    first, second = (int.from_bytes(part, "big") for part in (entropy[:4], entropy[4:]))
    submitters = sorted({row.account_id for row in rows})
    chosen = submitters[first % len(submitters)]
    own = [row for row in rows if row.account_id == chosen]
    return own[second % len(own)]


def _candidates(
    connection: Connection, *, settings: Settings, now_ms: int, node_id: str, owner: str
) -> list[ProbeCandidate]:
    known = reputation_rows.load(connection, [node_id]).get(node_id, NEWCOMER)
    if not known.probation_at_ms or probe_rows.is_open(connection, node_id, kind=KIND):
        return []
    rows = probe_rows.confirmed(
        connection,
        kind=KIND,
        verdict=VerificationVerdict.CONFIRMED.value,
        owner_id=owner,
        created_before_ms=now_ms - round(settings.ban_submitter_days * DAY_MS),
        since_id=make_id("job", max(0, now_ms - round(settings.probe_age_s * 1000)), bytes(10)),
        cost_max=settings.probe_cost_max,
        each=_OF_ONE_MAX,
        limit=_LOOKED_AT_MAX,
    )
    used = probe_rows.submitters(connection, node_id, kind=KIND, since_ms=known.probation_at_ms)
    suspect = _accusers(known)
    judges = probe_rows.owners_of(connection, [row.id for row in rows])
    return [
        row
        for row in rows
        if row.account_id not in used
        and number_of(row.account_id) not in suspect
        and not suspect & {number_of(judge) for judge in judges.get(row.id, ())}
    ]


def _accusers(known: Reputation) -> set[int]:
    """Who submitted the jobs that it is accused of, and whose nodes said so."""
    found = decode(known.violations)
    return {each.submitter for each in found} | {number for each in found for number in each.refuters}


def _fits(hub: Hub, row: ProbeCandidate, spec: KnownSpec, *, node_id: str) -> bool:
    fleet = hub.nodes.registry.fleet
    place = fleet.row_of(node_id)
    if place is None or spec.spec.net:  # what a program finds on the network changes
        return False
    shape = shape_of(spec.requirements, row.account_id, ceiling=row.ceiling, pinned=node_id)
    return bool(could_run(fleet, shape, slice(place, place + 1)).all())


def _send(tx: Tx, snapshot: Snapshot, *, job_id: str, node_id: str) -> Settlement:
    effects, job = Effects(), job_rows.lock_jobs(tx, [job_id]).get(job_id)
    if job is None or probe_rows.is_open(tx.connection, node_id, kind=KIND):
        return effects.settlement()
    if job_id not in recheck_rows.without_hub_job(tx.connection, [job_id], kind=KIND):
        return effects.settlement()  # another hub has used it
    hub_jobs.start(
        tx,
        snapshot,
        job,
        kind=KIND,
        number=1,
        payer=hub_jobs.POOL_ACCOUNT,
        avoid_owners=(),
        ttl_ms=snapshot.settings.holdback_ms,
        effects=effects,
        pinned=node_id,
    )
    return effects.settlement()


def on_ended(tx: Tx, snapshot: Snapshot, hub_job: FullJobRow) -> None:
    """One that did not succeed says nothing: there will be another."""
    _, job_id, _ = hub_jobs.parts(hub_job.hub_job)
    job = job_rows.lock_jobs(tx, [job_id])[job_id]
    if hub_job.state != JobState.SUCCEEDED or job.verdict != VerificationVerdict.CONFIRMED:
        return
    words: Sequence[tuple[JobRow, AttemptRow]] = [
        (row, recheck_rows.accepted_attempt(tx.connection, row)) for row in (job, hub_job)
    ]
    kinds = comparators.of_accepted(tx, snapshot, job, words=words)
    if kinds is None:
        return
    attempt = words[1][1]
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
