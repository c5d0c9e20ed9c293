"""Results that are compared before they are believed: who has to confirm them, what follows, and who is paid.

A job to be checked goes back to the queue. Its result is kept on the attempt's row, and the job may be placed only on a node
of an owner who has reported none. Whether a result is checked is drawn when it arrives, in a way that no node can foresee:
before it answers, a node knows nothing that would help it to cheat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from computepool.core.jobs.lifecycle import AttemptState, JobState, Reason
from computepool.core.trust import verification as rules
from computepool.core.trust.reputation import NARROW_ACTION, PADDED_ACTION, REFUTED_ACTION, VERIFIED_ACTION
from computepool.core.trust.verification import (
    CHECK_QUORUM,
    Decision,
    Delivery,
    Mode,
    Ruling,
    VerificationVerdict,
    parse,
)
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.context import Hub
from computepool.hub.jobs import rows as job_rows, transitions
from computepool.hub.jobs.attempt_rows import AttemptRow
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import checkpoint_rows, checkpoints
from computepool.hub.jobs.transactions import JobTx, attempt_event, job_event
from computepool.hub.money import holds
from computepool.hub.nodes.known_nodes import AbleOwners
from computepool.hub.settlement import fair_time, node_faults, result_rows
from computepool.hub.settlement.printed_output import false_texts, printed_text
from computepool.hub.settlement.runs import Run, waiting_runs
from computepool.hub.settlement.verification import violations

#: By attempt: its final state, and what is paid for it.
Ends = dict[str, tuple[AttemptState, int | None]]
_FIRST_ALONE = Decision(ruling=Ruling.ACCEPT, agreeing=(0,))


# the job waits for further results


def keep(tx: JobTx, job: JobRow, run: Run, *, actor: str, newest: bool, **changes: Any) -> None:
    """The result stays on its attempt's row, and the job waits for another owner's node, or for a comparison.

    `newest`: no later attempt has the job, and it is not queued again already.
    """
    owners = ",".join(sorted({*filter(None, job.avoid_owners.split(",")), *run.owners}))
    counted: dict[str, Any] = {"results": job.results + 1, "avoid_owners": owners}
    # Nobody may read the files yet, but they must be kept until somebody may.
    artifact_rows.refer(
        tx, [row | {"account_id": run.attempt.node_id, "role": "pending"} for row in run.references(job)]
    )
    if newest:
        wait_for_another(tx, job, attempt_no=run.attempt.number, actor=actor, **counted, **changes)
    else:
        checkpoints.drop(tx, job)
        result_rows.count(tx, job.id, **counted)


def wait_for_another(tx: JobTx, job: JobRow, *, attempt_no: int, actor: str, **changes: Any) -> None:
    checkpoints.drop(tx, job)  # it belongs to the run that reported; the next run starts from the beginning
    transitions.requeue(
        tx,
        job,
        attempt_no=attempt_no,
        reason=Reason.VERIFYING,
        actor=actor,
        ready_at_ms=tx.now_ms,
        avoid_node="",
        pinned="",
        **changes,
    )


# several results decide


def conclude(
    tx: JobTx, job: JobRow, runs: Sequence[Run], *, decision: Decision, actor: str, why: Reason = Reason.COMPLETED
) -> Ends:
    """The first of the runs that count becomes the job's result, and these runs are paid."""
    found = rules.conclude(decision, _deliveries(tx, runs), runs=job.runs)
    agreeing, paid = ([runs[place] for place in places] for places in (found.agreeing, found.paid))
    padded = fair_time.cap_bills(tx, job, agreeing)
    ends: Ends = {run.attempt.id: (AttemptState.SUCCEEDED, None) for run in runs}
    ends |= {run.attempt.id: (AttemptState.SUCCEEDED, run.bill.charge) for run in paid}
    ends |= {runs[place].attempt.id: (AttemptState.REFUTED, None) for place in found.refuted}
    ends |= {runs[place].attempt.id: (AttemptState.SUPERSEDED, None) for place in found.unblamed}
    if found.verdict is VerificationVerdict.CONFIRMED:
        tx.memory.ties.append(((job.account_id, job.spec_digest), ()))
        narrow = any(run.attempt.narrow for run in agreeing)
        for run in agreeing:
            emit_about(tx, job, run.attempt, action=NARROW_ACTION if narrow else VERIFIED_ACTION)
        for run in padded:
            emit_about(tx, job, run.attempt, action=PADDED_ACTION)
    refuters = {owner for run in agreeing for owner in run.owners}
    for place in found.refuted:
        attempt = runs[place].attempt
        data = violations.evidence(tx, job, refuters=refuters)
        emit_about(tx, job, attempt, action=REFUTED_ACTION, data=data)
        tx.penalised.append(attempt.node_id)
    if found.verdict is VerificationVerdict.VARIES:
        _mark_varying(tx, job)
    job_rows.accept(tx, [accept(tx, job, paid, actor=actor, why=why, verdict=found.verdict)])
    artifact_rows.refer(tx, paid[0].references(job))
    _store_ends(tx, runs, ends)
    transitions.release_dependents(tx, [job.id])
    return ends


def _deliveries(tx: JobTx, runs: Sequence[Run]) -> list[Delivery]:
    false = false_texts(tx, runs)
    return [
        Delivery(
            one_owner=run.has_one_owner,
            whole=len(runs) == 1 or run.printed is None or printed_text(tx, run) is not None,
            false=place in false,
        )
        for place, run in enumerate(runs)
    ]


def accept(
    tx: JobTx, job: JobRow, paid: Sequence[Run], *, actor: str, why: Reason, verdict: VerificationVerdict
) -> dict[str, Any]:
    """Pay the runs, and record that the first of them is the job's result; returns the columns for `job_rows.accept`."""
    chosen = paid[0]
    event: dict[str, Any] = {"actor": actor, "attempt": chosen.attempt.id, "node": chosen.attempt.node_id}
    before = JobState(job.state)
    if before is JobState.LEASED:
        job_event(tx, job, JobState.RUNNING, reason=Reason.STARTED, **event)
        before = JobState.RUNNING
    job_event(tx, job, JobState.SUCCEEDED, reason=why, before=before, **event)
    if job.node_faults:
        checked = verdict in {VerificationVerdict.UNCHECKED, VerificationVerdict.CONFIRMED}
        node_faults.blame_unable(tx, job, done_by=chosen, trusted=checked and parse(job.verify).mode is not Mode.NONE)
    bills = [bill for run in paid for bill in run.bills]
    holds.settle(tx, job, bills=bills, ref=chosen.attempt.id, table=tx.snapshot.table)
    checkpoint_rows.pay(tx, [part.row() for run in paid for part in run.parts])
    checkpoints.drop(tx, job)
    tx.memory.finished.append(job.id)
    if job.hub_job is not None:
        tx.ended_hub_jobs.append(job.id)
    return chosen.accepted_row(tx, job, why=why, verdict=verdict, cost=sum(run.cost for run in paid))


def _store_ends(tx: JobTx, runs: Sequence[Run], ends: Ends) -> None:
    rows = []
    for run in runs:
        state, cost = ends[run.attempt.id]
        if run.is_stored:
            new = {"new_state": state.value, "new_charge": cost, "new_billed_ms": run.bill.billed_ms}
            rows.append({"attempt": run.attempt.id, **new})
    result_rows.conclude(tx, rows)


def emit_about(
    tx: JobTx, job: JobRow, attempt: AttemptRow, *, action: str, reason: str | None = None, data: str | None = None
) -> None:
    after = AttemptState.REFUTED if action == REFUTED_ACTION else AttemptState.SUCCEEDED
    states = {"before": AttemptState.SUCCEEDED.value, "after": after.value}
    attempt_event(tx, job, attempt, action=action, reason=reason, data=data, **states)


def _mark_varying(tx: JobTx, job: JobRow) -> None:
    """For this submitter alone: with another one's inputs the program may not vary."""
    result_rows.mark_varying(tx, account_id=job.account_id, spec_digest=job.spec_digest)
    tx.memory.varying.add((job.account_id, job.spec_digest))


def give_up(tx: JobTx, job: JobRow, *, runs: int, actor: str) -> None:
    """Every run came to another result. Nobody is to blame, but a submitter who insists on agreement gets no result."""
    _mark_varying(tx, job)
    error = f"{runs} runs on different owners' nodes came to different results."
    transitions.finish(tx, job, JobState.FAILED, actor=actor, reason=Reason.RESULTS_DIFFER, error=error)


# nobody else can check
#
# Results of two owners' nodes that differ are a tie: without a third owner nobody can tell which is right. If the results of
# a program tie repeatedly, either they vary by nature or one owner is always wrong, and asking the same two again proves
# neither. So nobody is blamed, nobody is asked again, and pay is held until another owner can break the tie.


def could_check(tx: JobTx, job: JobRow, owners: frozenset[str]) -> bool:
    """Whether a node of another owner than these could run the job as it was submitted, if it had nothing else to do."""
    known = tx.snapshot.specs.peek(job.spec_digest)
    requirements = tx.spec(job.spec_digest).requirements() if known is None else known.requirements
    return not tx.snapshot.ask(AbleOwners(requirements, job.account_id, job.ceiling)) <= owners


def is_tied(tx: JobTx, job: JobRow, runs: Sequence[Run]) -> bool:
    """The results differ, and no other owner could tell which is right: there is nothing to wait for."""
    if len(runs) < CHECK_QUORUM or parse(job.verify).strict:
        return False
    return not could_check(tx, job, _all_owners(runs))


def _all_owners(runs: Sequence[Run]) -> frozenset[str]:
    return frozenset(owner for run in runs for owner in run.owners)


def end_tie(tx: JobTx, job: JobRow, runs: Sequence[Run]) -> Decision:
    """Give out the first result and hold its pay. Owners who have reported are not asked again."""
    owners = sorted(_all_owners(runs))
    result_rows.count(tx, job.id, results=len(runs), avoid_owners=",".join(owners))
    if not false_texts(tx, runs):  # else it is known who is wrong
        tx.memory.ties.append(((job.account_id, job.spec_digest), owners))
    return _FIRST_ALONE


def believe_first(tx: JobTx, job: JobRow) -> bool:
    """Give out the first result although nobody confirmed it. False: there is none, or the submitter insists on a check."""
    runs = waiting_runs(tx, job)
    if not runs or parse(job.verify).strict:
        return False
    conclude(tx, job, runs, decision=_FIRST_ALONE, actor="hub")
    return True


async def load_varying(hub: Hub) -> None:
    hub.settlement.varying |= await hub.store.read(result_rows.varying_programs)
