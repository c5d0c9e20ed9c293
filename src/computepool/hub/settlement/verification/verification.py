"""Results that are compared before they are believed: who has to confirm them, what follows, who is paid for it.

A job that is to be checked goes back to the queue with its result kept on the attempt's row, and may then be placed
only on the node of an owner who has not reported one. Whether it is checked is decided when the result is there, by a
draw that no node can foresee: there is nothing a node could know, or wait for, before it answers honestly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from computepool.core.jobs.lifecycle import AttemptState, JobState, Reason
from computepool.core.money.pricing import charge_of
from computepool.core.trust.reputation import NARROW_ACTION, PADDED_ACTION, REFUTED_ACTION, VERIFIED_ACTION
from computepool.core.trust.verification import (
    CHECK_QUORUM,
    Decision,
    Mode,
    Ruling,
    parse,
)
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs import transitions
from computepool.hub.jobs.attempt_rows import AttemptRow
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import checkpoint_rows, checkpoints
from computepool.hub.jobs.running.checkpoints import Contribution
from computepool.hub.jobs.running.logs import Arrivals, Log
from computepool.hub.jobs.transitions import Effects
from computepool.hub.money import holds
from computepool.hub.money.holds import RunCharge
from computepool.hub.settlement import fair_time, node_faults, result_rows
from computepool.hub.settlement.printed_output import false_texts, printed_fields, printed_text
from computepool.hub.settlement.verification import checkers, violations
from computepool.hub.settlement.verification.comparators import ComparedRun
from computepool.hub.snapshot import Snapshot
from computepool.protocol.nodes.nodes import Report

#: By attempt: how it ended, and what is paid for it.
Ends = dict[str, tuple[AttemptState, int | None]]


class VerificationVerdict(StrEnum):
    """Why a result is believed."""

    UNCHECKED = "unchecked"  #: nobody asked for a check, or none was drawn
    OWN = "own"  #: the submitter's own node
    CONFIRMED = "confirmed"  #: several owners' nodes came to the same
    ALONE = "alone"  #: it was to be checked, and nobody could: its pay is held until somebody has
    VARIES = "varies"  #: every run came to something else
    REFUTED = "refuted"  #: it was believed unchecked, and proven wrong afterwards (rechecks.py)


_FIRST_ALONE = Decision(ruling=Ruling.ACCEPT, agreeing=(0,))


@dataclass(slots=True, kw_only=True)
class ReportedRun(ComparedRun):
    """One reported result, with all that is needed to make it the job's."""

    number: int
    node_id: str
    bill: RunCharge
    streak: int
    started_ms: int
    finished_ms: int
    items_failed: int = 0
    tier: str = ""  #: of the hardware that it paid for
    narrow: bool = False  #: its submitter's wishes decided who ran it
    waited: bool = True  #: it is on its attempt's row already; else the caller writes that
    parts: tuple[Contribution, ...] = ()  #: by the attempts that it went on from, oldest first

    @property
    def bills(self) -> list[RunCharge]:
        """The one that reported the result comes first."""
        return [self.bill, *(part.bill for part in self.parts)]

    @property
    def cost(self) -> int:
        return sum(bill.charge for bill in self.bills)

    @property
    def owners(self) -> set[str]:
        return {bill.owner_id for bill in self.bills}

    def is_one_with(self, other: ReportedRun) -> bool:
        """They are no two opinions: an owner has a hand in both, or they went on from the same work."""
        mine, theirs = ({run.number, *(part.number for part in run.parts)} for run in (self, other))
        return bool(self.owners & other.owners) or not mine.isdisjoint(theirs)

    @property
    def is_its_own(self) -> bool:
        """No other owner's work is in it, so that what is wrong with it is its node's doing."""
        return len(self.owners) == 1

    def accepted_row(
        self, job: JobRow, *, why: Reason, verdict: VerificationVerdict, cost: int, held_until_ms: int | None
    ) -> dict[str, Any]:
        return {
            "job": job.id,
            "account": job.account_id,
            "why": why.value,
            "number": self.number,
            "node": self.node_id,
            "started": self.started_ms,
            "finished": self.finished_ms,
            "code": self.exit_code,
            "value": self.result,
            "artifact": self.result_artifact,
            "cost": cost,
            "believed": verdict.value,
            "held": held_until_ms,
            "raised": min(self.items_failed, job.bundled) if job.bundled > 1 else 0,
        }

    def references(self, job: JobRow) -> list[dict[str, Any]]:
        """What the submitter may read from now on."""
        files = [("output", name, digest) for name, digest in self.files.items()]
        if self.result_artifact is not None:
            files.append(("result", "result", self.result_artifact))
        return [
            {"digest": digest, "account_id": job.account_id, "job_id": job.id, "role": role, "name": name}
            for role, name, digest in files
        ]


def run_of(
    report: Report, attempt: AttemptRow, *, log: Log, bill: RunCharge, times: Mapping[str, Any], streak: int
) -> ReportedRun:
    return ReportedRun(
        attempt_id=attempt.id,
        number=attempt.number,
        node_id=attempt.node_id,
        bill=bill,
        outcome=report.result_digest(),
        streak=streak,
        started_ms=times["started"],
        finished_ms=times["finished"],
        exit_code=report.exit_code,
        result=report.result,
        result_artifact=report.result_artifact,
        printed=report.printed,
        printed_chars=report.printed_chars,
        kept_chars=log.stdout_chars,
        sent_bytes=log.bytes,
        resumed_no=attempt.resumed_no,
        files={output.name: output.digest for output in report.outputs},
        items_failed=report.items_failed,
        tier=attempt.zone_tier,
        narrow=attempt.narrow,
        waited=False,
    )


def _run_from(row: AttemptRow) -> ReportedRun:
    return ReportedRun(
        **printed_fields(row),
        number=row.number,
        node_id=row.node_id,
        bill=RunCharge(
            owner_id=row.owner_id,
            price_version=row.price_version,
            price=row.price,
            billed_ms=row.billed_ms or 0,
            charge=charge_of(row.price, row.billed_ms or 0),
        ),
        outcome=row.outcome or "",
        streak=row.streak,
        started_ms=row.started_at_ms or 0,
        finished_ms=row.finished_at_ms or 0,
        exit_code=row.exit_code,
        result=row.result,
        result_artifact=row.result_artifact,
        files=json.loads(row.outputs or "{}"),
        items_failed=row.items_failed,
        tier=row.zone_tier,
        narrow=row.narrow,
    )


def waiting(tx: Tx, job: JobRow) -> list[ReportedRun]:
    runs = []
    for row in result_rows.waiting(tx.connection, job.id):
        run = _run_from(row)
        run.parts = checkpoints.contributions(tx, job, row)
        runs.append(run)
    return runs


def pay_parts(tx: Tx, job: JobRow, paid: Sequence[ReportedRun]) -> None:
    """The result counts, so what it went on from is paid, too; and nobody needs the checkpoint any more."""
    checkpoint_rows.pay(tx, [part.row() for run in paid for part in run.parts])
    checkpoints.drop(tx, job)


# what follows from several


def keep(
    tx: Tx, job: JobRow, run: ReportedRun, *, actor: str, newest: bool, effects: Effects, **changes: Any
) -> None:
    """The result stays on its attempt's row, and the job waits for another owner's node, or for a comparison."""
    owners = ",".join(sorted({*filter(None, job.avoid_owners.split(",")), *run.owners}))
    counted: dict[str, Any] = {"results": job.results + 1, "avoid_owners": owners}
    _keep_files(tx, job, run)
    if not newest:  # a late one: another attempt has the job, or it waits already
        checkpoints.drop(tx, job)
        result_rows.count(tx, job.id, **counted)
        return
    wait_for_another(tx, job, attempt_no=run.number, actor=actor, effects=effects, **counted, **changes)


def wait_for_another(
    tx: Tx, job: JobRow, *, attempt_no: int, actor: str, effects: Effects, **changes: Any
) -> None:
    checkpoints.drop(tx, job)  # it was of the run that reported; another one starts from nothing
    transitions.requeue(
        tx,
        job,
        attempt_no=attempt_no,
        reason=Reason.VERIFYING,
        actor=actor,
        effects=effects,
        ready_at_ms=tx.now_ms,
        avoid_node="",
        pinned="",
        **changes,
    )


def _keep_files(tx: Tx, job: JobRow, run: ReportedRun) -> None:
    """Nobody may read them yet, but they must still be there when somebody may."""
    rows = [row | {"account_id": run.node_id, "role": "pending"} for row in run.references(job)]
    artifact_rows.refer(tx, rows)


def conclude(
    tx: Tx,
    snapshot: Snapshot,
    job: JobRow,
    *,
    runs: Sequence[ReportedRun],
    decision: Decision,
    arrivals: Arrivals | None = None,
    why: Reason = Reason.COMPLETED,
    actor: str,
    effects: Effects,
) -> Ends:
    """The first of the runs that count becomes the job's result, and they are paid for."""
    decision = _without_false(decision, len(runs), false=false_texts(tx, snapshot, runs, arrivals=arrivals))
    # Where every run came to something else nobody is to blame: the first counts, and as many are paid as were agreed on.
    right = decision.agreeing or [place for place in range(len(runs)) if place not in decision.wrong]
    counting = _whole_first(tx, runs, right, arrivals=arrivals)
    verdict, program = _verdict_of(decision), (job.account_id, job.spec_digest)
    agreeing = [runs[place] for place in decision.agreeing]
    padded = fair_time.cap_bills(tx, snapshot, job, agreeing=agreeing, effects=effects)
    paid = [runs[place] for place in counting][: job.runs]
    ends: Ends = {run.attempt_id: (AttemptState.SUCCEEDED, None) for run in runs}
    ends |= {run.attempt_id: (AttemptState.SUCCEEDED, run.bill.charge) for run in paid}
    ends |= {runs[place].attempt_id: (_wrong_state(runs[place]), None) for place in decision.wrong}
    chosen, cost = paid[0], sum(run.cost for run in paid)
    if verdict is VerificationVerdict.CONFIRMED:
        effects.ties.append((program, ()))
        narrow = any(run.narrow for run in agreeing)
        for run in agreeing:
            emit_about(tx, job, run, action=NARROW_ACTION if narrow else VERIFIED_ACTION)
        for run in padded:
            emit_about(tx, job, run, action=PADDED_ACTION)
    refuters = {owner for run in agreeing for owner in run.owners}
    for place in decision.wrong:
        if runs[place].is_its_own:
            data = violations.evidence(tx, snapshot, job, refuters=refuters)
            emit_about(tx, job, runs[place], action=REFUTED_ACTION, data=data)
            effects.penalised.append(runs[place].node_id)
    if verdict is VerificationVerdict.VARIES:
        _mark_varying(tx, job, effects)
    emit_succeeded(tx, snapshot, job, chosen=chosen, actor=actor, why=why, verdict=verdict, effects=effects)
    bills = [bill for run in paid for bill in run.bills]
    holds.settle(tx, job, bills=bills, ref=chosen.attempt_id, table=snapshot.table)
    pay_parts(tx, job, paid)
    alone, wait_ms = verdict is VerificationVerdict.ALONE, snapshot.settings.unconfirmed_ms
    held = holds.held_until_ms(tx, cost=cost, alone=alone, unconfirmed_ms=wait_ms)
    job_rows.accept(tx, [chosen.accepted_row(job, why=why, verdict=verdict, cost=cost, held_until_ms=held)])
    artifact_rows.refer(tx, chosen.references(job))
    result_rows.conclude(tx, _conclusions(runs, ends))
    effects.finished.append(job.id)
    transitions.release_dependents(tx, [job.id], effects)
    return ends


def _conclusions(runs: Sequence[ReportedRun], ends: Ends) -> list[dict[str, Any]]:
    return [
        {
            "attempt": run.attempt_id,
            "new_state": ends[run.attempt_id][0].value,
            "cost": ends[run.attempt_id][1],
            "billed": run.bill.billed_ms,
        }
        for run in runs
        if run.waited
    ]


def _without_false(decision: Decision, count: int, *, false: frozenset[int]) -> Decision:
    """Who sent another text than it reported is wrong whatever else is known, also where the first was to be believed."""
    if not false:
        return decision
    agreeing = tuple(place for place in decision.agreeing if place not in false)
    if decision.agreeing and not agreeing:
        agreeing = (next(place for place in range(count) if place not in false),)
    return replace(decision, agreeing=agreeing, wrong=tuple(sorted(false.union(decision.wrong))))


def _wrong_state(run: ReportedRun) -> AttemptState:
    """Where several owners' nodes made it, nobody can tell whose work was wrong: nobody is paid, and nobody blamed."""
    return AttemptState.REFUTED if run.is_its_own else AttemptState.SUPERSEDED


def _whole_first(
    tx: Tx, runs: Sequence[ReportedRun], counting: Sequence[int], *, arrivals: Arrivals | None
) -> list[int]:
    """First those of whose output the hub has the very text that was compared: else a node could vouch for one text
    and deliver another. Output that was too long, or lost on its way, does not make a result wrong."""

    def text_differs(place: int) -> bool:
        run = runs[place]
        return run.printed is not None and printed_text(tx, run, arrivals) is None

    return sorted(counting, key=text_differs) if len(counting) > 1 else list(counting)


def _verdict_of(decision: Decision) -> VerificationVerdict:
    if decision.ruling is Ruling.DIFFER:
        return VerificationVerdict.VARIES
    return VerificationVerdict.CONFIRMED if len(decision.agreeing) > 1 else VerificationVerdict.ALONE


def emit_succeeded(
    tx: Tx,
    snapshot: Snapshot,
    job: JobRow,
    *,
    chosen: ReportedRun,
    actor: str,
    why: Reason,
    verdict: VerificationVerdict,
    effects: Effects,
) -> None:
    event: dict[str, Any] = {"actor": actor, "attempt": chosen.attempt_id, "node": chosen.node_id}
    before = JobState(job.state)
    if before is JobState.LEASED:
        transitions.job_event(tx, job, JobState.RUNNING, reason=Reason.STARTED, **event)
        before = JobState.RUNNING
    transitions.job_event(tx, job, JobState.SUCCEEDED, reason=why, before=before, **event)
    if job.node_faults:
        checked = (
            verdict in {VerificationVerdict.UNCHECKED, VerificationVerdict.CONFIRMED}
            and parse(job.verify).mode is not Mode.NONE
        )
        node_faults.blame_unable(
            tx,
            snapshot,
            job,
            owners=chosen.owners,
            chosen_by_pool=not chosen.narrow,
            trusted=checked,
            effects=effects,
        )


def emit_about(tx: Tx, job: JobRow, run: ReportedRun, *, action: str, data: str | None = None) -> None:
    tx.emit(
        actor="hub",
        action=action,
        account_id=job.account_id,
        job_id=job.id,
        attempt_id=run.attempt_id,
        node_id=run.node_id,
        before=AttemptState.SUCCEEDED.value,
        after=(AttemptState.REFUTED if action == REFUTED_ACTION else AttemptState.SUCCEEDED).value,
        data=data,
    )


def _mark_varying(tx: Tx, job: JobRow, effects: Effects) -> None:
    """For this submitter alone: another may run the same program on what makes it vary."""
    result_rows.mark_varying(tx, account_id=job.account_id, spec_digest=job.spec_digest)
    effects.varying.add((job.account_id, job.spec_digest))


def give_up(tx: Tx, job: JobRow, *, runs: Sequence[ReportedRun], actor: str, effects: Effects) -> None:
    """Every run came to something else. Nobody is to blame, but who insists on agreement gets no result."""
    _mark_varying(tx, job, effects)
    error = f"{len(runs)} runs on different owners' nodes came to different results."
    reason = Reason.RESULTS_DIFFER
    transitions.finish(tx, job, JobState.FAILED, actor=actor, reason=reason, effects=effects, error=error)


# when nobody comes


def is_tied(tx: Tx, snapshot: Snapshot, job: JobRow, *, runs: Sequence[ReportedRun]) -> bool:
    """Results differ, and no further owner could tell which is right: there is nothing to wait for."""
    if len(runs) < CHECK_QUORUM or parse(job.verify).strict:
        return False
    return not checkers.could_check(tx, snapshot, job, owners=_all_owners(runs))


def _all_owners(runs: Sequence[ReportedRun]) -> frozenset[str]:
    return frozenset(owner for run in runs for owner in run.owners)


def end_tie(
    tx: Tx,
    snapshot: Snapshot,
    job: JobRow,
    *,
    runs: Sequence[ReportedRun],
    arrivals: Arrivals | None,
    effects: Effects,
) -> Decision:
    """The first result is given out, and its pay held. Who spoke already is not asked again."""
    owners = sorted(_all_owners(runs))
    result_rows.count(tx, job.id, results=len(runs), avoid_owners=",".join(owners))
    if not false_texts(tx, snapshot, runs, arrivals=arrivals):  # else it is known who is wrong
        effects.ties.append(((job.account_id, job.spec_digest), owners))
    return _FIRST_ALONE


def believe_first(tx: Tx, snapshot: Snapshot, job: JobRow, *, effects: Effects) -> bool:
    """Whether there was a result to believe."""
    runs = waiting(tx, job)
    if not runs or parse(job.verify).strict:
        return False
    conclude(tx, snapshot, job, runs=runs, decision=_FIRST_ALONE, actor="hub", effects=effects)
    return True


async def load_varying(hub: Hub) -> None:
    hub.settlement.varying |= await hub.store.read(result_rows.varying)
