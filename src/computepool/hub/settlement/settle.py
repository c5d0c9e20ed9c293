"""Settles reports: what a node says about its attempts becomes the jobs' outcome, exactly once, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from computepool.core.errors import Forbidden
from computepool.core.jobs import settlement as rules
from computepool.core.jobs.lifecycle import AttemptState, JobState, Outcome, Reason, Verdict
from computepool.core.jobs.settlement import AttemptFacts, NextStep, Settlement
from computepool.core.trust.reputation import NARROW_ACTION, REFUTED_ACTION
from computepool.core.trust.verification import Ruling, VerificationVerdict, parse
from computepool.hub.artifacts import rows as artifact_rows, storage_quota
from computepool.hub.context import Hub
from computepool.hub.groups import rows as group_rows
from computepool.hub.identity import authenticator
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.jobs import attempt_rows, rows as job_rows, transitions
from computepool.hub.jobs.attempt_rows import OwnedAttempt, job_id_of
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import checkpoints, migration, usage
from computepool.hub.jobs.running.checkpoints import Contribution
from computepool.hub.jobs.running.logs import Arrivals
from computepool.hub.jobs.transactions import JobTx, attempt_event
from computepool.hub.money import holds
from computepool.hub.money.holds import RunCharge
from computepool.hub.nodes import rows as node_rows
from computepool.hub.settlement import (
    after_commit,
    follow_ups,
    node_faults,
    odd_reports,
    printed_output,
    report_checks,
    retries,
)
from computepool.hub.settlement.odd_reports import OddReport
from computepool.hub.settlement.runs import Run, waiting_runs
from computepool.hub.settlement.verification import compare_jobs, sampling, verification
from computepool.hub.settlement.verification.sampling import Checks
from computepool.hub.snapshot import take_for
from computepool.hub.trust import hardware
from computepool.hub.volumes import publication
from computepool.protocol.nodes.nodes import CompleteReply, CompleteRequest, Report, ReportAnswer

#: New columns that are empty unless the report is a success.
_OF_SUCCESS: dict[str, Any] = dict.fromkeys(
    f"new_{name}"
    for name in ("billed_ms", "lane_billed_ms", "charge", "outcome", "result", "result_artifact", "outputs")
)


async def complete(hub: Hub, node: NodePrincipal, request: CompleteRequest) -> CompleteReply:
    digests = [report.digest() for report in request.reports]
    if not authenticator.is_signed_by_node(node, request.signature, request.signed_text(digests)):
        raise Forbidden("The reports are not signed with this node's key.")
    await usage.observe(hub, node.node_id, request.reports)
    jitter = hub.clock.entropy(1)[0] / 256
    ids = [report.attempt_id for report in request.reports]
    checks = sampling.draw(hub, node.node_id, ids)
    snapshot = take_for(hub, node.node_id, ids).with_answers(hub, checks.questions)

    def unit(tx: JobTx) -> tuple[list[ReportAnswer], list[OddReport]]:
        return _Settling(tx, node, jitter=jitter, checks=checks).run(request, digests)

    (answers, odd), changed = await follow_ups.write(hub, unit, snapshot)
    hardware.observe(hub, node.node_id, request.reports)
    _learn_run_lengths(hub, node.node_id, request.reports)
    await after_commit.follow(hub, changed)
    await odd_reports.note(hub, node, odd)
    return CompleteReply(answers=answers)


def _learn_run_lengths(hub: Hub, node_id: str, reports: Sequence[Report]) -> None:
    """While it is known which attempts the node holds."""
    session = hub.nodes.registry.get(node_id)
    for report in reports:
        attempt = session.attempts.get(report.attempt_id) if session is not None else None
        if attempt is not None and report.reason is Reason.COMPLETED:
            hub.jobs.run_lengths.learn(attempt.grant.spec, float(report.ran_ms))


@dataclass(slots=True)
class _LaneTime:
    """The attempts of a lane run one after the other, so together they cannot have run for longer than it was held."""

    held_ms: int
    billed_ms: int


_UNSETTLED = Settlement(verdict=Verdict.FOREIGN)


@dataclass(slots=True)
class _Case:
    """One report, with what it is about and what comes of it."""

    report: Report
    attempt: OwnedAttempt
    job: JobRow
    bill: RunCharge | None = None  #: of a success
    parts: tuple[Contribution, ...] = ()  #: earlier attempts that it resumed from
    settlement: Settlement = _UNSETTLED
    row: dict[str, Any] = field(default_factory=dict)  #: the new columns of the attempt


class _Settling:
    """One batch in one transaction. Rows are collected per statement, so that a thousand reports cost a few statements."""

    def __init__(self, tx: JobTx, node: NodePrincipal, *, jitter: float, checks: Checks) -> None:
        self.tx, self.node, self.jitter, self.checks = tx, node, jitter, checks
        self.odd: list[OddReport] = []
        self.reported: list[dict[str, Any]] = []
        self.accepted: list[dict[str, Any]] = []
        self.outputs: list[dict[str, Any]] = []
        self.unsuccessful: list[_Case] = []
        self.differing: list[tuple[JobRow, int]] = []  #: jobs that fail, with the number of their results
        self.done: set[str] = set()  #: jobs with a result earlier in this batch
        self.good = self.bad = 0

    def run(self, request: CompleteRequest, digests: Sequence[str]) -> tuple[list[ReportAnswer], list[OddReport]]:
        tx, ids = self.tx, [report.attempt_id for report in request.reports]
        # Jobs before attempts, both in sorted order, as everywhere: so two hubs never wait for each other in a circle.
        jobs = job_rows.lock_jobs(tx, {job_id_of(id_) for id_ in ids})
        attempts = attempt_rows.lock_attempts(tx, [*ids, *(text.attempt_id for text in request.logs)])
        self.arrivals = Arrivals(tx.snapshot, attempts, request.logs, node_id=self.node.node_id)
        tx.unsaved_output = self.arrivals.new_stdout()
        self.uploaded = self._find_uploads(request.reports)
        self.lanes = self._find_lanes(attempts.values())
        if changing := [job_id_of(report.attempt_id) for report in request.reports if report.volumes]:
            publication.lock(tx, changing)
        seen: dict[str, str] = {}
        answers = []
        for report, digest in zip(request.reports, digests, strict=True):
            attempt = attempts.get(report.attempt_id)
            job = None if attempt is None or attempt.node_id != self.node.node_id else jobs.get(attempt.job_id)
            if attempt is None or job is None:
                verdict = Verdict.FOREIGN
                self.odd.append((odd_reports.FOREIGN, report.attempt_id))
            else:
                verdict = self._settle(_Case(report, attempt, job), digest=digest, seen=seen)
            answers.append(ReportAnswer.from_trusted(attempt_id=report.attempt_id, verdict=verdict))
        attempt_rows.report_attempts(tx, self.reported)
        job_rows.accept(tx, self.accepted)
        artifact_rows.refer(tx, self.outputs)
        for case in self.unsuccessful:
            self._go_on(case)
        for job, runs in self.differing:
            verification.give_up(tx, job, runs=runs, actor=self.node.node_id)
        if self.accepted:
            transitions.release_dependents(tx, [row["job"] for row in self.accepted])
        self._update_health()
        self.arrivals.write(tx)
        return answers, self.odd

    def _find_uploads(self, reports: Sequence[Report]) -> dict[str, int]:
        """Sizes of the reported artifacts that this node uploaded: it must not hand out others of which it knows the name."""
        digests = {digest for report in reports for digest in report_checks.named_artifacts(report)}
        digests |= {digest for report in reports for digest in publication.named_artifacts(report.volumes)}
        if not digests:
            return {}
        own = artifact_rows.readable_of(self.tx.connection, sorted(digests), account_id=self.node.node_id)
        return artifact_rows.get_sizes(self.tx.connection, sorted(own))

    def _find_lanes(self, attempts: Iterable[OwnedAttempt]) -> dict[str, _LaneTime]:
        """With the node locked: whether its reports come at once or one by one, here or at another hub, a second is paid once."""
        node_rows.lock_node(self.tx, self.node.node_id)
        opened = {attempt.lane: attempt.lane_since_ms or attempt.leased_at_ms for attempt in attempts}
        billed = attempt_rows.lanes_billed(self.tx.connection, opened)
        return {
            lane: _LaneTime(held_ms=self.tx.now_ms - since_ms, billed_ms=billed.get(lane, 0))
            for lane, since_ms in opened.items()
        }

    def _settle(self, case: _Case, *, digest: str, seen: dict[str, str]) -> Verdict:
        attempt = case.attempt
        reported = seen.get(attempt.id, attempt.report_digest)
        if reported is None:
            self._check(case)
        report, facts = case.report, self._facts(case, reported)
        settlement = rules.settle(facts, report_digest=digest, outcome=report.outcome, reason=report.reason)
        self.tx.memory.reported.append((attempt.node_id, attempt.id))
        if settlement.verdict is Verdict.CONFLICT:
            self.odd.append((odd_reports.CONFLICT, attempt.id))
        if settlement.attempt is not None:
            seen[attempt.id], case.settlement = digest, settlement
            self._apply(case, state=settlement.attempt, digest=digest)
        return settlement.verdict

    def _facts(self, case: _Case, reported: str | None) -> AttemptFacts:
        attempt, job = case.attempt, case.job
        return AttemptFacts(
            state=AttemptState(attempt.state),
            report_digest=reported,
            job_state=JobState(job.state),
            job_accepted=job.accepted_attempt is not None or job.id in self.done,
            attempts=job.attempt_no,
            is_own=attempt.owner_id == job.account_id,
            before_start=attempt.leased_at_ms < self.tx.snapshot.started_at_ms,
            resumed=bool(attempt.covered_ms or attempt.spent),
            in_gang=job.gang is not None,
            can_move=job.checkpoint_no == attempt.number and case.report.move_to is not None,
        )

    def _apply(self, case: _Case, *, state: AttemptState, digest: str) -> None:
        job, settlement = case.job, case.settlement
        case.row = self._new_columns(case, state, digest)
        self.reported.append(case.row)
        self.good += settlement.good
        self.bad += settlement.bad
        if settlement.verdict is Verdict.SUPERSEDED and job.watched and job.group_id:
            group_rows.add_duplicates(self.tx, job.group_id, 1)
        if settlement.fault is not None:
            self._record_fault(case, settlement.fault, state)
        if settlement.next_step is NextStep.TAKE_RESULT:
            self._take_result(case)
        elif settlement.next_step is not NextStep.NOTHING:
            # They wait for the successes: a late one of the same batch may end the job first.
            self.unsuccessful.append(case)

    def _record_fault(self, case: _Case, action: str, after: AttemptState) -> None:
        attempt, actor, reason = case.attempt, self.node.node_id, case.report.reason.value
        states = {"before": attempt.state, "after": after.value}
        attempt_event(self.tx, case.job, attempt, action=action, actor=actor, reason=reason, **states)
        if action == REFUTED_ACTION:
            self.tx.penalised.append(actor)

    def _check(self, case: _Case) -> None:
        """Compare the report with what the hub itself knows; it may turn into a failure."""
        report, attempt, job = case.report, case.attempt, case.job
        if report.outcome is Outcome.SUCCEEDED:
            case.bill = self._bill(case)
            # Nodes stop a job when its money ends, but check their clocks only now and then.
            if holds.is_overspent(job, [case.bill, *(part.bill for part in case.parts)]):
                error = "It ran for longer than its budget lasts at its price."
                case.report = report_checks.fail(report, Reason.BUDGET_SPENT, error)
                return
        report = printed_output.check_output(self.tx, report, attempt=attempt, log=self.arrivals.of(attempt))
        case.report = report_checks.check(self.tx, report, job=job, uploaded=self.uploaded)
        if case.report.volumes and case.report.outcome is Outcome.SUCCEEDED:
            refusal = publication.check(self.tx, job, attempt, report=report, uploaded=self.uploaded)
            if refusal is not None:
                reason = Reason.FALSE_REPORT if refusal.is_nodes else Reason.OUTPUT_LIMIT
                case.report = report_checks.fail(report, reason, refusal.error)

    def _bill(self, case: _Case) -> RunCharge:
        """For as long as the node says it ran, but for no longer than its lane had time left."""
        attempt, lane = case.attempt, self.lanes[case.attempt.lane]
        aside_ms = attempt.checkpoint_ms or 0  # its own time, which the lane counted when it saved a checkpoint
        ran_ms = min(case.report.ran_ms, lane.held_ms - lane.billed_ms + aside_ms)
        case.parts = checkpoints.contributions(self.tx, case.job, attempt)
        before = [part.bill for part in case.parts]
        return holds.bill(self.tx, case.job, attempt=attempt, ran_ms=ran_ms, before=before)

    def _new_columns(self, case: _Case, state: AttemptState, digest: str) -> dict[str, Any]:
        report, attempt = case.report, case.attempt
        finished = max(attempt.leased_at_ms, self.tx.now_ms - report.ended_ago_ms)
        # A node that stopped it because the hub said so does not know why.
        was_stopped = attempt.state == AttemptState.CANCELLED and report.outcome is Outcome.CANCELLED
        return {
            "attempt": attempt.id,
            "new_state": state.value,
            "new_reason": attempt.reason if was_stopped else report.reason.value,
            "new_report_digest": digest,
            "new_exit_code": report.exit_code,
            "new_error": report.error,
            "new_usage": None if report.usage is None else report.usage.model_dump_json(),
            "new_started_at_ms": max(attempt.leased_at_ms, finished - report.ran_ms),
            "new_finished_at_ms": finished,
            "new_streak": 0,
            **_OF_SUCCESS,
            "new_printed": report.printed,
            "new_printed_chars": report.printed_chars,
            "new_items_failed": report.items_failed,
        }

    def _take_result(self, case: _Case) -> None:
        job, run = case.job, self._run(case)
        self.done.add(job.id)
        verdict = None if job.results else sampling.judge_first(self.tx, job, run, checks=self.checks)
        if verdict is not None:
            self._accept(case, run, verdict)
        else:
            self._compare(case, run)

    def _run(self, case: _Case) -> Run:
        """What was reported, with its bill, which is fixed now, whenever and whether it is paid."""
        attempt, lane, bill = case.attempt, self.lanes[case.attempt.lane], case.bill
        assert bill is not None
        lane.billed_ms += max(0, bill.billed_ms - (attempt.checkpoint_ms or 0))
        log, streak = self.arrivals.of(attempt), self.checks.streak
        run = Run.from_report(case.report, attempt, log=log, bill=bill, columns=case.row, streak=streak)
        run.parts = case.parts
        case.row |= {
            "new_billed_ms": bill.billed_ms,
            "new_lane_billed_ms": lane.billed_ms,
            "new_outcome": run.outcome,
            "new_streak": run.streak,
        }
        return run

    def _accept(self, case: _Case, run: Run, verdict: VerificationVerdict) -> None:
        """The usual case, for many jobs in few statements: the first result is the job's."""
        job = case.job
        if run.attempt.narrow:
            verification.emit_about(self.tx, job, run.attempt, action=NARROW_ACTION)
        actor = self.node.node_id
        self.accepted.append(
            verification.accept(self.tx, job, [run], actor=actor, why=case.settlement.why, verdict=verdict)
        )
        self.outputs += run.references(job)
        if case.report.volumes:
            publication.publish_of_job(self.tx, job, case.attempt, changes=case.report.volumes)
        case.row["new_charge"] = run.bill.charge
        if case.settlement.is_late:
            self._supersede_others(case)

    def _compare(self, case: _Case, run: Run) -> None:
        """Compare the result with those of other owners' nodes. An owner counts once, with however many nodes."""
        job, attempt, actor = case.job, case.attempt, self.node.node_id
        newest = job.attempt_no == attempt.number and job.state != JobState.QUEUED
        earlier = waiting_runs(self.tx, job)
        if any(known.shares_work_with(run) for known in earlier):
            case.row |= {"new_state": AttemptState.SUPERSEDED.value, "new_outcome": None}
            if newest:
                verification.wait_for_another(self.tx, job, attempt_no=attempt.number, actor=actor)
            return
        runs = sorted([*earlier, run], key=lambda known: known.attempt.number)
        decision, changes = compare_jobs.decide(self.tx, job, runs, may_ask=newest)
        if decision.ruling is Ruling.MORE:
            case.row |= {
                "new_result": run.result,
                "new_result_artifact": run.result_artifact,
                "new_outputs": json.dumps(run.files),
            }
            verification.keep(self.tx, job, run, actor=actor, newest=newest, **changes)
            return
        if decision.ruling is Ruling.DIFFER and parse(job.verify).strict:
            self.differing.append((job, len(runs)))
            return
        ends = verification.conclude(self.tx, job, runs, decision=decision, actor=actor, why=case.settlement.why)
        state, cost = ends[run.attempt.id]
        case.row |= {"new_state": state.value, "new_charge": cost, "new_billed_ms": run.bill.billed_ms}
        if case.settlement.is_late:
            self._supersede_others(case)

    def _supersede_others(self, case: _Case) -> None:
        for other in attempt_rows.live_attempts_of_job(self.tx.connection, case.job.id):
            if other.id != case.attempt.id:
                attempt_rows.end_attempt(self.tx, other.id, state=AttemptState.SUPERSEDED, reason=Reason.SUPERSEDED)
                transitions.stop(self.tx, other.node_id, other.id)

    def _go_on(self, case: _Case) -> None:
        """What becomes of a job whose attempt did not succeed."""
        tx, report, attempt, job, actor = self.tx, case.report, case.attempt, case.job, self.node.node_id
        settlement = case.settlement
        if settlement.drops_checkpoint:
            checkpoints.drop(tx, job)
        if settlement.next_step is NextStep.MOVE:
            assert report.move_to is not None
            migration.move(tx, job, host=report.move_to, attempt_no=attempt.number, actor=actor)
        elif settlement.next_step is NextStep.REQUEUE:
            transitions.requeue(
                tx,
                job,
                attempt_no=attempt.number,
                reason=settlement.why,
                actor=actor,
                ready_at_ms=tx.now_ms + settlement.delay_ms,
                avoid_node="",
                waits_on=job.started_at_ms is None,
            )
        else:
            self._retry(case)

    def _retry(self, case: _Case) -> None:
        tx, report, job = self.tx, case.report, case.job
        checkpoints.count_failure(tx, job, attempt_no=case.attempt.number)
        given_up = retries.retry_or_fail(
            tx,
            job,
            case.attempt,
            reason=case.settlement.why,
            actor=self.node.node_id,
            jitter=self.jitter,
            error=report.error,
            exit_code=report.exit_code,
        )
        if given_up and report.outputs:
            sizes, changes = self.uploaded, tx.memory.storage
            storage_quota.keep_of_failed(
                tx, job, files=report.outputs, sizes=sizes, snapshot=tx.snapshot, changes=changes
            )

    def _update_health(self) -> None:
        """After three node faults in a row the node cools off; any success clears the count."""
        if not self.good and not self.bad:
            return
        row = node_rows.get_node(self.tx.connection, self.node.node_id)
        if row is None or (self.good and row.consecutive_faults == 0):
            return
        faults = 0 if self.good else row.consecutive_faults + self.bad
        until_ms = node_faults.cool_off_until(self.tx.snapshot.settings, faults, self.tx.now_ms)
        node_rows.set_node(self.tx, self.node.node_id, consecutive_faults=faults, cool_off_until_ms=until_ms)
        self.tx.memory.cool_offs[self.node.node_id] = until_ms
