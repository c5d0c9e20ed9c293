"""Rechecks after a wrong result: earlier unchecked results of the node are run again, and wrong ones are taken back.

A result is wrong if the nodes of two other owners came to one and the same other result. Everything happens in the
transaction of the report that decides it. A job is rechecked once, ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from computepool.core.ids import make_id
from computepool.core.jobs.lifecycle import JobState
from computepool.core.money.money import CREDIT
from computepool.core.trust import verification as rules
from computepool.core.trust.reputation import PADDED_ACTION, RECHECKED, REFUTED_ACTION, VERIFIED_ACTION
from computepool.core.trust.verification import Mode, Result, Ruling, VerificationPolicy, VerificationVerdict
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.jobs import rows as job_rows, views
from computepool.hub.jobs.rows import FullJobRow, JobRow
from computepool.hub.jobs.transactions import JobTx, attempt_event
from computepool.hub.money import holds
from computepool.hub.settlement import fair_time, hub_jobs
from computepool.hub.settlement.verification import comparators, recheck_rows, verification, violations
from computepool.hub.settlement.verification.comparators import AcceptedResult
from computepool.hub.settlement.verification.recheck_rows import KIND, RECHECKS_MAX, UncheckedResult

REFUTED_RESULT_ACTION = "result.refuted"
#: A recheck may cost so many times what the first run did, because its node may be slower or dearer, and this much more.
_DEARER_MAX = 2
_SMALL = CREDIT // 100
_BELIEVED = (VerificationVerdict.UNCHECKED.value, VerificationVerdict.ALONE.value)
_POLICY = VerificationPolicy(Mode.ADAPTIVE)


def start(tx: JobTx, node_id: str) -> None:
    """A result of this node was proven wrong: recheck those that were believed, also if their pay has matured."""
    if not _find_unchecked(tx, node_id):
        return
    # Another hub may do the same for another violation at this moment: with the jobs locked, look again.
    jobs = job_rows.lock_jobs(tx, [row.id for row in _find_unchecked(tx, node_id)])
    for row in _find_unchecked(tx, node_id):
        if row.id in jobs:
            send(tx, jobs[row.id], number=1, owners=[row.owner_id], charge=row.charge)


def _find_unchecked(tx: JobTx, node_id: str) -> list[UncheckedResult]:
    settings = tx.snapshot.settings
    since_ms = tx.now_ms - round(settings.recheck_age_s * 1000)
    return recheck_rows.unchecked_results(
        tx.connection, node_id, verdicts=_BELIEVED, since_ms=since_ms, limit=settings.recheck_max
    )


def send(tx: JobTx, job: JobRow, *, number: int, owners: Sequence[str], charge: int) -> None:
    """Recheck the job, unless the pool has spent enough on the first of these owners lately.

    The pool pays. Without a limit, an owner could be wrong on purpose about expensive jobs of friends, and another friend
    would be paid for the rechecks.
    """
    settings = tx.snapshot.settings
    most = min(_DEARER_MAX * charge + _SMALL, holds.for_one_run(job))
    since_id = make_id("job", max(0, tx.now_ms - round(settings.recheck_age_s * 1000)), bytes(10))
    spent = recheck_rows.spent_on(tx.connection, owners[0], payer=hub_jobs.POOL_ACCOUNT, since_id=since_id)
    if spent + most > settings.recheck_spend:
        return
    hub_jobs.start(
        tx,
        job,
        kind=KIND,
        number=number,
        payer=hub_jobs.POOL_ACCOUNT,
        hold_max=most,
        avoid_owners=owners,
        ttl_ms=settings.holdback_ms,
    )


def on_ended(tx: JobTx, hub_job: FullJobRow) -> None:
    """A recheck that did not succeed says nothing about the result that it checked."""
    _, job_id, number = hub_jobs.parts(hub_job.hub_job)
    job = job_rows.lock_jobs(tx, [job_id])[job_id]
    if hub_job.state != JobState.SUCCEEDED or job.verdict not in _BELIEVED:
        return
    accepted = _load(tx, job, number)
    kinds = comparators.classes_of_accepted(tx, accepted)
    if kinds is None:
        return
    results = [Result(kind=kind, streak=each.attempt.streak) for kind, each in zip(kinds, accepted, strict=True)]
    decision = rules.judge(_POLICY, results)
    if decision.ruling is not Ruling.ACCEPT:
        if number < RECHECKS_MAX:
            owners = [each.attempt.owner_id for each in accepted]
            send(tx, job, number=number + 1, owners=owners, charge=accepted[0].attempt.charge or 0)
        return
    agreeing = [accepted[place] for place in decision.agreeing]
    # If the job's wishes left no choice of nodes, nobody's record is made by it.
    counts = not any(each.attempt.narrow for each in agreeing)
    for each in agreeing:
        _confirm(tx, each, counts=counts)
    if counts and 0 in decision.agreeing:
        _cap_bill(tx, agreeing)
    for place in decision.wrong:
        _refute(tx, accepted[place], refuters=agreeing)


def _load(tx: JobTx, job: JobRow, number: int) -> list[AcceptedResult]:
    """The job's own result, then those of its rechecks up to this number."""
    found = [comparators.accepted_result(tx, job)]
    for each in range(1, number + 1):
        hub_job = recheck_rows.find_recheck(tx.connection, job.id, each)
        assert hub_job is not None
        found.append(comparators.accepted_result(tx, hub_job))
    return found


def _confirm(tx: JobTx, result: AcceptedResult, *, counts: bool) -> None:
    job = result.job
    recheck_rows.change_verdict(tx, job.id, before=_BELIEVED, after=VerificationVerdict.CONFIRMED.value)
    if job.held_until_ms:  # from now on its pay waits no longer than any other
        matures_ms = (job.finished_at_ms or 0) + tx.snapshot.settings.holdback_ms
        recheck_rows.hold_until(tx, job.id, min(job.held_until_ms, max(1, matures_ms)))
    if counts:
        verification.emit_about(tx, job, result.attempt, action=VERIFIED_ACTION, reason=RECHECKED)


def _cap_bill(tx: JobTx, agreeing: Sequence[AcceptedResult]) -> None:
    """The accepted result is right, but it may have been paid for longer than it takes. What is held of that goes back."""
    accepted = agreeing[0]
    kept, is_padded = fair_time.cap_held(tx, accepted.job, [each.attempt for each in agreeing])
    if kept is not None:
        holds.take_back(tx, accepted.job, attempt=accepted.attempt, kept=kept)
    if is_padded:
        verification.emit_about(tx, accepted.job, accepted.attempt, action=PADDED_ACTION, reason=RECHECKED)


def _refute(tx: JobTx, result: AcceptedResult, *, refuters: Sequence[AcceptedResult]) -> None:
    """Record a violation, take the money back, and tell the submitter, who gets the refuters' result instead."""
    job, attempt = result
    recheck_rows.change_verdict(tx, job.id, before=_BELIEVED, after=VerificationVerdict.REFUTED.value)
    back = holds.take_back(tx, job, attempt=attempt)
    if job.held_until_ms:
        recheck_rows.hold_until(tx, job.id, 0)
    data = violations.evidence(tx, job, refuters=[other.attempt.owner_id for other in refuters])
    verification.emit_about(tx, job, attempt, action=REFUTED_ACTION, reason=RECHECKED, data=data)
    tx.penalised.append(attempt.node_id)
    if job.hub_job is not None:
        return
    _hand_over(tx, job, refuters[0].job)
    notice = {"sentence": views.wrong_sentence(back), "taken_back": back}
    attempt_event(tx, job, attempt, action=REFUTED_RESULT_ACTION, data=notice)
    tx.touch(f"job:{job.id}", "events")


def _hand_over(tx: JobTx, job: JobRow, right: JobRow) -> None:
    """Let the submitter read the files of the right result."""
    files = {row.name: row.digest for row in artifact_rows.outputs_of(tx.connection, [right.id]).get(right.id, [])}
    if right.result_artifact is not None:
        files["result"] = right.result_artifact
    owner = {"account_id": job.account_id, "job_id": job.id, "role": "corrected"}
    artifact_rows.refer(tx, [owner | {"name": name, "digest": digest} for name, digest in files.items()])
