"""Hub jobs: jobs that the hub runs about another job, to check a result or to compare two.

For leases, money and settlement they are ordinary jobs. Their payer's account is theirs, so all rules of money hold as
they are; to nodes they are jobs of whoever they are about (`on_behalf_of`), so that no node can tell one from the job itself.
People do not see them: they are in no list, no group and no quote. What follows when one is over is in follow_ups.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.core.money import ledger
from computepool.core.trust.verification import Mode
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.clock import new_id
from computepool.hub.db.session import Tx
from computepool.hub.identity import access
from computepool.hub.identity import rows as account_rows
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transitions import Effects
from computepool.hub.money import booking, holds
from computepool.hub.snapshot import Snapshot
from computepool.protocol.jobs.jobs import JobSpec

POOL_ACCOUNT = access.POOL_ACCOUNT
_POOL_NAME = "(pool)"
_POOL_ROLE = "pool"  #: which allows nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a hub job runs, where that is not what its job ran. The spec must be in the store."""

    spec_digest: str
    payload: str | None = None
    payload_artifact: str | None = None
    name: str
    kind: str  #: of job: function or command
    longest_ms: int
    hold: int
    ceiling: int


def start(
    tx: Tx,
    snapshot: Snapshot,
    job: JobRow,
    *,
    kind: str,
    number: int,
    payer: str,
    avoid_owners: Iterable[str],
    ttl_ms: int,
    effects: Effects,
    work: Work | None = None,
    hold_max: int | None = None,
    pinned: str = "",
) -> str | None:
    """Queue it, with its price set aside; None where what it would need is gone. `job`: the one it is about.

    There is one hub job of each kind and number about a job, ever: the database refuses the second. Raises
    InsufficientCredits where the payer has too little; the pool's own account never has. `pinned`: the node to run it.
    """
    known = work or _the_same(tx, job)
    if known is None:
        return None
    if hold_max is not None and hold_max < known.hold:
        known = replace(known, hold=hold_max)
    needed = _needs(tx, known)
    if not needed <= _readable(tx, needed, job=job, payer=payer):
        return None
    hub_job_id = new_id(snapshot.clock, "job")
    if payer == POOL_ACCOUNT:
        _fund(tx, hub_job_id, known.hold)
    [earned] = holds.place(tx, payer, [hub_job_id], each=known.hold)
    row = _row(tx, job, known, payer=payer, avoid_owners=avoid_owners, ttl_ms=ttl_ms)
    row |= {"id": hub_job_id, "hub_job": f"{kind}:{job.id}:{number}", "hold_earned": earned, "pinned": pinned}
    job_rows.insert_jobs(tx, [row])
    artifact_rows.refer(tx, [_reference(hub_job_id, payer, digest) for digest in sorted(needed)])
    tx.emit(
        actor="hub",
        action="job.queued",
        account_id=payer,
        job_id=hub_job_id,
        after=JobState.QUEUED.value,
        reason=Reason.SUBMITTED.value,
    )
    tx.touch("queue", "events")
    effects.requeued.append(hub_job_id)
    return hub_job_id


def parts(reference: str | None) -> tuple[str, str, int]:
    """Kind, the job it is about, number."""
    kind, job_id, number = (reference or "").split(":")
    return kind, job_id, int(number)


def _the_same(tx: Tx, job: JobRow) -> Work | None:
    full = job_rows.get_job_full(tx.connection, job.id)
    assert full is not None
    if full.dropped_at_ms is not None:
        return None
    return Work(
        spec_digest=full.spec_digest,
        payload=full.payload,
        payload_artifact=full.payload_artifact,
        name=full.name,
        kind=full.kind,
        longest_ms=full.longest_ms,
        hold=holds.for_one_run(full),
        ceiling=full.ceiling,
    )


def _needs(tx: Tx, work: Work) -> set[str]:
    """The artifacts a node has to fetch for it."""
    spec = JobSpec.model_validate_json(
        job_rows.get_specs(tx.connection, [work.spec_digest])[work.spec_digest]
    )
    named = [file.digest for file in spec.inputs] + [spec.function_artifact, work.payload_artifact]
    return {digest for digest in named if digest}


def _readable(tx: Tx, needed: set[str], *, job: JobRow, payer: str) -> set[str]:
    """Those that are still here: what a submitter has removed must not be blamed on a node."""
    readers: Sequence[str] = sorted({payer, job.account_id})
    return {
        digest
        for who in readers
        for digest in artifact_rows.readable_of(tx.connection, needed, account_id=who)
    }


def _fund(tx: Tx, hub_job_id: str, hold: int) -> None:
    """The pool's account has what its hub jobs need, and not more: the rest of one pays for the next."""
    account_rows.insert_account(tx, account_id=POOL_ACCOUNT, name=_POOL_NAME, roles=[_POOL_ROLE])
    missing = hold - booking.balance(tx, ledger.user(POOL_ACCOUNT))
    if missing > 0:
        legs = ledger.top_up(POOL_ACCOUNT, missing, source=ledger.PROMO)
        booking.post(tx, f"topup:{hub_job_id}", legs, ref="to check results")


def _row(
    tx: Tx, job: JobRow, work: Work, *, payer: str, avoid_owners: Iterable[str], ttl_ms: int
) -> dict[str, Any]:
    return {
        "account_id": payer,
        "on_behalf_of": None if payer == job.account_id else job.account_id,
        "group_id": None,
        "item": job.item,
        "item_count": job.item_count,
        "name": work.name,
        "kind": work.kind,
        "spec_digest": work.spec_digest,
        "payload": work.payload,
        "payload_artifact": work.payload_artifact,
        "priority": job.priority,
        "retries": job.retries,
        "state": JobState.QUEUED.value,
        "reason": Reason.WAITING_FOR_NODE.value,
        "attempt_no": 0,
        "job_faults": 0,
        "node_faults": 0,
        "deps_pending": 0,
        "ready_at_ms": tx.now_ms,
        "queued_at_ms": tx.now_ms,
        "created_at_ms": tx.now_ms,
        "expires_at_ms": tx.now_ms + ttl_ms,
        "ceiling": work.ceiling,
        "hold": work.hold,
        "longest_ms": work.longest_ms,
        "verify": Mode.NONE.value,
        "runs": 1,
        "avoid_owners": ",".join(sorted(set(avoid_owners))),
    }


def _reference(hub_job_id: str, payer: str, digest: str) -> dict[str, Any]:
    return {"digest": digest, "account_id": payer, "job_id": hub_job_id, "role": "input", "name": digest}
