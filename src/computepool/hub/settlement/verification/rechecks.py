"""Rechecks after a wrong result: earlier unchecked results of the node are run again; what was wrong is taken back.

A result is wrong when two other owners' nodes came to one and the same other result. Everything happens in the
transaction of the report that decides it. A job is checked so once, ever.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from computepool.core.ids import make_id
from computepool.core.jobs.lifecycle import AttemptState, JobState
from computepool.core.money.money import CREDIT
from computepool.core.trust import verification as rules
from computepool.core.trust.reputation import PADDED_ACTION, RECHECKED, REFUTED_ACTION, VERIFIED_ACTION
from computepool.core.trust.verification import Mode, Result, Ruling, VerificationPolicy
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.db.session import Connection, Tx
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs import views
from computepool.hub.jobs.attempt_rows import AttemptRow
from computepool.hub.jobs.rows import FullJobRow, JobRow
from computepool.hub.jobs.transitions import Effects
from computepool.hub.money import holds
from computepool.hub.settlement import fair_time, hub_jobs
from computepool.hub.settlement.verification import comparators, recheck_rows, violations
from computepool.hub.settlement.verification.recheck_rows import KIND, RECHECKS_MAX, UncheckedResult
from computepool.hub.settlement.verification.verification import VerificationVerdict
from computepool.hub.snapshot import Snapshot

REFUTED_RESULT_ACTION = "result.refuted"
#: A slower or dearer node may take its time, within reason.
_DEARER_MAX = 2
_SMALL = CREDIT // 100
_BELIEVED = (VerificationVerdict.UNCHECKED.value, VerificationVerdict.ALONE.value)
_POLICY = VerificationPolicy(Mode.ADAPTIVE)


@dataclass(frozen=True, slots=True)
class _Word:
    """What one owner's node came to, for the job itself or for a hub job about it."""

    job: JobRow
    attempt: AttemptRow


def start(tx: Tx, snapshot: Snapshot, node_id: str, *, effects: Effects) -> None:
    """A result of this node was proven wrong: check those that were believed, also where their pay has matured."""
    if not _find_unchecked(tx, snapshot, node_id):
        return
    # Another hub may be about to do the same for another violation: each job is looked at by one after the other.
    jobs = job_rows.lock_jobs(tx, [row.id for row in _find_unchecked(tx, snapshot, node_id)])
    for row in _find_unchecked(tx, snapshot, node_id):
        if row.id in jobs:
            send(
                tx,
                snapshot,
                jobs[row.id],
                number=1,
                owners=[row.owner_id],
                charge=row.charge,
                effects=effects,
            )


def _may_cost(tx: Tx, snapshot: Snapshot, job: JobRow, *, owner_id: str, charge: int) -> int | None:
    """What running it again may cost; None: the pool has spent enough on this owner lately.

    The pool pays: without a bound an owner could be wrong on purpose, about dear jobs of his own friends, and another
    friend would be paid for looking at them again.
    """
    most = min(_DEARER_MAX * charge + _SMALL, holds.for_one_run(job))
    since_ms = max(0, tx.now_ms - round(snapshot.settings.recheck_age_s * 1000))
    spent = recheck_rows.spent_on(
        tx.connection, owner_id, payer=hub_jobs.POOL_ACCOUNT, since_id=make_id("job", since_ms, bytes(10))
    )
    return most if spent + most <= snapshot.settings.recheck_spend else None


def _find_unchecked(tx: Tx, snapshot: Snapshot, node_id: str) -> list[UncheckedResult]:
    return recheck_rows.unchecked(
        tx.connection,
        node_id,
        kind=KIND,
        verdicts=_BELIEVED,
        since_ms=tx.now_ms - round(snapshot.settings.recheck_age_s * 1000),
        limit=snapshot.settings.recheck_max,
    )


def send(
    tx: Tx,
    snapshot: Snapshot,
    job: JobRow,
    *,
    number: int,
    owners: Sequence[str],
    charge: int,
    effects: Effects,
) -> None:
    most = _may_cost(tx, snapshot, job, owner_id=owners[0], charge=charge)
    if most is None:
        return
    hub_jobs.start(
        tx,
        snapshot,
        job,
        kind=KIND,
        number=number,
        payer=hub_jobs.POOL_ACCOUNT,
        hold_max=most,
        avoid_owners=owners,
        ttl_ms=snapshot.settings.holdback_ms,
        effects=effects,
    )


def on_ended(tx: Tx, snapshot: Snapshot, hub_job: FullJobRow, *, effects: Effects) -> None:
    """One that did not succeed says nothing about the result that it was to check."""
    _, job_id, number = hub_jobs.parts(hub_job.hub_job)
    job = job_rows.lock_jobs(tx, [job_id])[job_id]
    if hub_job.state != JobState.SUCCEEDED or job.verdict not in _BELIEVED:
        return
    words = _words(tx.connection, job, number)
    kinds = comparators.of_accepted(tx, snapshot, job, words=[(word.job, word.attempt) for word in words])
    if kinds is None:
        return
    results = [Result(kind=kind, streak=word.attempt.streak) for kind, word in zip(kinds, words, strict=True)]
    decision = rules.judge(_POLICY, results)
    if decision.ruling is not Ruling.ACCEPT:
        if number < RECHECKS_MAX:
            owners = [word.attempt.owner_id for word in words]
            charge = words[0].attempt.charge or 0
            send(tx, snapshot, job, number=number + 1, owners=owners, charge=charge, effects=effects)
        return
    # Where the job's wishes left no choice of nodes, nobody's record is made by it.
    counts = not any(words[place].attempt.narrow for place in decision.agreeing)
    for place in decision.agreeing:
        _confirm(tx, snapshot, words[place], counts=counts)
    if counts and 0 in decision.agreeing:
        _cap_bill(tx, snapshot, [words[place] for place in decision.agreeing])
    refuters = [words[place] for place in decision.agreeing]
    for place in decision.wrong:
        _refute(tx, snapshot, words[place], refuters=refuters, effects=effects)


def _words(connection: Connection, job: JobRow, number: int) -> list[_Word]:
    candidates = [job]
    for each in range(1, number + 1):
        hub_job = recheck_rows.find_recheck(connection, job.id, each)
        assert hub_job is not None
        candidates.append(hub_job)
    return [_Word(row, recheck_rows.accepted_attempt(connection, row)) for row in candidates]


def _confirm(tx: Tx, snapshot: Snapshot, word: _Word, *, counts: bool) -> None:
    recheck_rows.change_verdict(tx, word.job.id, before=_BELIEVED, after=VerificationVerdict.CONFIRMED.value)
    if word.job.held_until_ms:  # from now on its pay waits no longer than any other
        matures_ms = (word.job.finished_at_ms or 0) + snapshot.settings.holdback_ms
        recheck_rows.hold_until(tx, word.job.id, min(word.job.held_until_ms, max(1, matures_ms)))
    if counts:
        _emit(tx, word, action=VERIFIED_ACTION, after=AttemptState.SUCCEEDED)


def _cap_bill(tx: Tx, snapshot: Snapshot, agreeing: Sequence[_Word]) -> None:
    """The accepted result is right, but was it paid for longer than it takes? What is held of that goes back."""
    accepted = agreeing[0]
    attempts = [word.attempt for word in agreeing]
    kept, is_padded = fair_time.cap_held(tx, snapshot, accepted.job, agreeing=attempts)
    if kept is not None:
        holds.take_back(tx, accepted.job, attempt=accepted.attempt, kept=kept)
    if is_padded:
        _emit(tx, accepted, action=PADDED_ACTION, after=AttemptState.SUCCEEDED)


def _refute(tx: Tx, snapshot: Snapshot, word: _Word, *, refuters: Sequence[_Word], effects: Effects) -> None:
    """A violation, the money back, and a word to whom the result was given. `refuters`: they have the right one."""
    job, right = word.job, refuters[0].job
    recheck_rows.change_verdict(tx, job.id, before=_BELIEVED, after=VerificationVerdict.REFUTED.value)
    back = holds.take_back(tx, job, attempt=word.attempt)
    if job.held_until_ms:
        recheck_rows.hold_until(tx, job.id, 0)
    data = violations.evidence(tx, snapshot, job, refuters=[other.attempt.owner_id for other in refuters])
    _emit(tx, word, action=REFUTED_ACTION, after=AttemptState.REFUTED, data=data)
    effects.penalised.append(word.attempt.node_id)
    if job.hub_job is not None:
        return
    _hand_over(tx, job, right)
    tx.emit(
        actor="hub",
        action=REFUTED_RESULT_ACTION,
        account_id=job.account_id,
        job_id=job.id,
        attempt_id=word.attempt.id,
        node_id=word.attempt.node_id,
        data=json.dumps({"sentence": views.wrong_sentence(back), "taken_back": back}),
    )
    tx.touch(f"job:{job.id}", "events")


def _emit(tx: Tx, word: _Word, *, action: str, after: AttemptState, data: str | None = None) -> None:
    tx.emit(
        actor="hub",
        action=action,
        account_id=word.job.account_id,
        job_id=word.job.id,
        attempt_id=word.attempt.id,
        node_id=word.attempt.node_id,
        before=AttemptState.SUCCEEDED.value,
        after=after.value,
        reason=RECHECKED,
        data=data,
    )


# the right result


def _hand_over(tx: Tx, job: JobRow, right: JobRow) -> None:
    """Its files may be read by the submitter from now on."""
    files = {
        row.name: row.digest for row in artifact_rows.outputs_of(tx.connection, [right.id]).get(right.id, [])
    }
    if right.result_artifact is not None:
        files["result"] = right.result_artifact
    owner = {"account_id": job.account_id, "job_id": job.id, "role": "corrected"}
    artifact_rows.refer(tx, [owner | {"name": name, "digest": digest} for name, digest in files.items()])
