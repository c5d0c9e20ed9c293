"""Hub jobs: jobs that the hub runs about another job, to check a result or to compare two.

For leases, money and settlement they are ordinary jobs. They belong to the account that pays for them, so all rules of money
apply as they are. To nodes they belong to the account whose job they are about (`on_behalf_of`), so that no node can tell one
from the job itself. People do not see them: they are in no list, no group and no quote. What follows when one has ended is in
follow_ups.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.core.money import ledger
from computepool.core.trust.verification import Mode
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.clock import new_id
from computepool.hub.db.session import Tx
from computepool.hub.identity import access, rows as account_rows
from computepool.hub.jobs import dependency_rows, rows as job_rows, views
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transactions import JobTx
from computepool.hub.money import booking, holds

POOL_ACCOUNT = access.POOL_ACCOUNT
_POOL_NAME = "(pool)"
_POOL_ROLE = "pool"  #: which allows nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a hub job runs, at which price: columns of its row. The spec must be in the store."""

    spec_digest: str
    payload: str | None = None
    payload_artifact: str | None = None
    name: str
    kind: str  #: of job: function or command
    longest_ms: int
    hold: int
    ceiling: int


def start(
    tx: JobTx,
    job: JobRow,
    *,
    kind: str,
    number: int,
    payer: str,
    avoid_owners: Iterable[str],
    ttl_ms: int,
    work: Work | None = None,
    hold_max: int | None = None,
    pinned: str = "",
) -> str | None:
    """Queue a hub job about `job`, with its price set aside; None if something that it needs is gone.

    `work`: what it runs, if not the same as `job`. `pinned`: the only node that may run it. There is one hub job of each
    kind and number about a job, ever: the database refuses the second. Raises InsufficientCredits if the payer has too
    little, which never happens to the pool's own account.
    """
    work = work or _same_work(tx, job)
    if work is None:
        return None
    if hold_max is not None and hold_max < work.hold:
        work = replace(work, hold=hold_max)
    needed = _needed_artifacts(tx, job, work)
    if needed is None or not needed <= _readable(tx, needed, job=job, payer=payer):
        return None
    hub_job_id = new_id(tx.snapshot.clock, "job")
    if payer == POOL_ACCOUNT:
        _fund(tx, hub_job_id, work.hold)
    [earned] = holds.place(tx, payer, [hub_job_id], each=work.hold)
    row = _row(tx, job, work, payer=payer, avoid_owners=avoid_owners, ttl_ms=ttl_ms)
    row |= {"id": hub_job_id, "hub_job": f"{kind}:{job.id}:{number}", "hold_earned": earned, "pinned": pinned}
    job_rows.insert_jobs(tx, [row])
    shared = {"account_id": payer, "job_id": hub_job_id, "role": "input"}
    artifact_rows.refer(tx, [{"digest": digest, "name": digest, **shared} for digest in sorted(needed)])
    tx.emit(
        actor="hub",
        action="job.queued",
        account_id=payer,
        job_id=hub_job_id,
        after=JobState.QUEUED.value,
        reason=Reason.SUBMITTED.value,
    )
    tx.touch("queue", "events")
    tx.memory.requeued.append(hub_job_id)
    return hub_job_id


def parts(reference: str | None) -> tuple[str, str, int]:
    """The kind, the id of the job that it is about, and the number."""
    kind, job_id, number = (reference or "").split(":")
    return kind, job_id, int(number)


def _same_work(tx: Tx, job: JobRow) -> Work | None:
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


def _needed_artifacts(tx: JobTx, job: JobRow, work: Work) -> set[str] | None:
    """Digests of what a node has to fetch for it. None: a result that is one of its arguments is not to be had."""
    spec = tx.spec(work.spec_digest)
    named = [file.digest for file in spec.inputs] + [spec.function_artifact, work.payload_artifact]
    if spec.takes_results:
        used = job_rows.get_jobs(tx.connection, dependency_rows.argument_ids(tx.connection, job.id))
        if any(views.unusable(row) for row in used):
            return None
        named += [row.result_artifact for row in used]
    return {digest for digest in named if digest}


def _readable(tx: Tx, needed: set[str], *, job: JobRow, payer: str) -> set[str]:
    """Those that are still stored: a node must not be blamed for what the submitter has removed."""
    return {
        digest
        for who in (payer, job.account_id)
        for digest in artifact_rows.readable_of(tx.connection, needed, account_id=who)
    }


def _fund(tx: Tx, hub_job_id: str, hold: int) -> None:
    """Top up the pool's account with what this hub job needs beyond what is left of earlier ones."""
    account_rows.insert_account(tx, account_id=POOL_ACCOUNT, name=_POOL_NAME, roles=[_POOL_ROLE])
    missing = hold - booking.balance(tx, ledger.user(POOL_ACCOUNT))
    if missing > 0:
        legs = ledger.top_up(POOL_ACCOUNT, missing, source=ledger.PROMO)
        booking.post(tx, f"topup:{hub_job_id}", legs, ref="to check results")


def _row(tx: Tx, job: JobRow, work: Work, *, payer: str, avoid_owners: Iterable[str], ttl_ms: int) -> dict[str, Any]:
    return {
        **job_rows.new_row(tx, Reason.WAITING_FOR_NODE),
        **asdict(work),
        "account_id": payer,
        "on_behalf_of": None if payer == job.account_id else job.account_id,
        "group_id": None,
        "item": job.item,
        "item_count": job.item_count,
        "priority": job.priority,
        "retries": job.retries,
        "deps_pending": 0,
        "expires_at_ms": tx.now_ms + ttl_ms,
        "verify": Mode.NONE.value,
        "runs": 1,
        "avoid_owners": ",".join(sorted(set(avoid_owners))),
    }
