"""Reports: what a node says of its attempts becomes the jobs' outcome, exactly once, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from computepool.core.backoff import doubled
from computepool.core.errors import Forbidden
from computepool.core.jobs.lifecycle import (
    CONTESTED,
    NODE_FAULTS,
    AttemptFacts,
    AttemptState,
    JobState,
    Outcome,
    Reason,
    Verdict,
    judge_report,
)
from computepool.core.trust.reputation import FAULT_ACTION, NARROW_ACTION, REFUTED_ACTION
from computepool.core.trust.verification import Ruling, parse
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.artifacts import storage_quota
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.groups import rows as group_rows
from computepool.hub.identity import authenticator
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.jobs import attempt_rows, transitions
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.attempt_rows import OwnedAttempt
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import checkpoints, migration, usage
from computepool.hub.jobs.running.logs import Arrivals
from computepool.hub.jobs.transitions import Effects, Settlement
from computepool.hub.money import holds
from computepool.hub.nodes import rows as node_rows
from computepool.hub.settlement import (
    after_commit,
    follow_ups,
    lane_time,
    node_faults,
    odd_reports,
    printed_output,
    report_checks,
)
from computepool.hub.settlement.verification import compare_jobs, sampling, verification
from computepool.hub.settlement.verification.sampling import Checks
from computepool.hub.settlement.verification.verification import ReportedRun
from computepool.hub.snapshot import Snapshot, take_for, write
from computepool.hub.trust import hardware
from computepool.protocol.nodes.nodes import CompleteReply, CompleteRequest, LogText, Report, ReportAnswer

#: How long a job given back waits before it is offered again, doubling with every attempt.
_GIVEN_BACK_MS = 10
_GIVEN_BACK_MAX_MS = 5_000
_ATTEMPT_STATE = {
    Outcome.SUCCEEDED: AttemptState.SUCCEEDED,
    Outcome.FAILED: AttemptState.FAILED,
    Outcome.CANCELLED: AttemptState.CANCELLED,
    Outcome.RETURNED: AttemptState.RETURNED,
    Outcome.MOVED: AttemptState.MOVED,
}


#: What a run costs, and what the attempts that it went on from cost of it.
_Bill: TypeAlias = tuple[holds.RunCharge, tuple[checkpoints.Contribution, ...]]


@dataclass(frozen=True, slots=True)
class SettledReports:
    """The outcome of one batch of reports."""

    answers: list[ReportAnswer]
    settlement: Settlement
    odd: list[odd_reports.Odd]


async def complete(hub: Hub, node: NodePrincipal, request: CompleteRequest) -> CompleteReply:
    digests = [report.digest() for report in request.reports]
    if not authenticator.signed_by_node(node, request.signature, request.signed_text(digests)):
        raise Forbidden("The reports are not signed with this node's key.")
    await usage.observe(hub, node.node_id, request.reports)
    jitter = hub.clock.entropy(1)[0] / 256
    ids = [report.attempt_id for report in request.reports]
    checks = sampling.draw(hub, node.node_id, ids)
    known = take_for(hub, node.node_id, ids)
    known = known.with_answers(hub, sampling.questions(hub, node.node_id, ids))

    def unit(tx: Tx, snapshot: Snapshot) -> SettledReports:
        settling = _Settling(tx, snapshot, node, jitter=jitter, checks=checks, logs=request.logs)
        return settling.run(request.reports, digests)

    settled = await write(hub, unit, known)
    hardware.observe(hub, node.node_id, request.reports)
    after_commit.learn(hub, node.node_id, request.reports)
    await after_commit.follow(hub, settled.settlement)
    await odd_reports.note(hub, node, settled.odd)
    return CompleteReply(answers=settled.answers)


class _Settling:
    """One batch inside one transaction. Collects rows per statement, so that a thousand reports cost a few statements."""

    def __init__(
        self,
        tx: Tx,
        snapshot: Snapshot,
        node: NodePrincipal,
        *,
        jitter: float,
        checks: Checks,
        logs: Sequence[LogText],
    ) -> None:
        self.snapshot, self.tx, self.node, self.jitter, self.checks = snapshot, tx, node, jitter, checks
        self.logs = logs
        self.answers: list[ReportAnswer] = []
        self.odd: list[odd_reports.Odd] = []
        self.effects = Effects()
        self.reported: list[dict[str, Any]] = []
        self.accepted: list[dict[str, Any]] = []
        self.unsuccessful: list[tuple[Report, OwnedAttempt, JobRow]] = []
        self.differing: list[tuple[JobRow, list[ReportedRun]]] = []
        self.outputs: list[dict[str, Any]] = []
        self.uploaded: dict[str, int] = {}  #: sizes
        self.lanes: dict[str, lane_time.LaneTime] = {}
        self.bills: dict[str, _Bill] = {}  #: by attempt, of the report that is being settled
        self.done: set[str] = set()  #: jobs with a result earlier in this very batch
        self.good = self.bad = 0

    def run(self, reports: Sequence[Report], digests: Sequence[str]) -> SettledReports:
        ids = [report.attempt_id for report in reports]
        # Jobs before attempts, both in sorted order: the same order everywhere, so nobody waits in a circle.
        jobs = job_rows.lock_jobs(self.tx, {id_.rpartition("-")[0] for id_ in ids})
        attempts = attempt_rows.lock_attempts(self.tx, [*ids, *(text.attempt_id for text in self.logs)])
        self.arrivals = Arrivals(self.snapshot, attempts, self.logs, node_id=self.node.node_id)
        self.uploaded = self._find_uploads(reports)
        self.lanes = lane_time.find(self.tx, self.node.node_id, attempts.values())
        seen: dict[str, str] = {}
        for report, digest in zip(reports, digests, strict=True):
            self._settle_one(report, attempts.get(report.attempt_id), digest=digest, jobs=jobs, seen=seen)
        attempt_rows.report_attempts(self.tx, self.reported)
        job_rows.accept(self.tx, self.accepted)
        artifact_rows.refer(self.tx, self.outputs)
        for report, attempt, job in self.unsuccessful:
            self._try_again(report, attempt, job)
        for job, runs in self.differing:
            verification.give_up(self.tx, job, runs=runs, actor=self.node.node_id, effects=self.effects)
        if self.accepted:
            transitions.release_dependents(self.tx, [row["job"] for row in self.accepted], self.effects)
        self._update_health()
        for account_id, size in self.arrivals.write(self.tx).items():
            self.effects.storage.give(account_id, size)
        settlement = follow_ups.follow(self.tx, self.snapshot, self.effects)
        return SettledReports(self.answers, settlement, self.odd)

    def _settle_one(
        self,
        report: Report,
        attempt: OwnedAttempt | None,
        *,
        digest: str,
        jobs: dict[str, JobRow],
        seen: dict[str, str],
    ) -> None:
        mine = attempt is not None and attempt.node_id == self.node.node_id
        job = jobs.get(attempt.job_id) if attempt is not None and mine else None
        facts = None
        if attempt is not None and job is not None:
            facts = AttemptFacts(
                state=AttemptState(attempt.state),
                report_digest=seen.get(report.attempt_id, attempt.report_digest),
                job_state=JobState(job.state),
                job_accepted=job.accepted_attempt is not None or job.id in self.done,
            )
        report = self._check(report, attempt, job)
        verdict = judge_report(facts, report_digest=digest, outcome=report.outcome)
        self.answers.append(ReportAnswer.trusted(attempt_id=report.attempt_id, verdict=verdict))
        if attempt is None or job is None:
            self.odd.append((odd_reports.FOREIGN, report.attempt_id))
            return
        self.effects.over.append((attempt.node_id, attempt.id))
        if verdict is Verdict.CONFLICT:
            self.odd.append((odd_reports.CONFLICT, report.attempt_id))
        if verdict in (Verdict.REPLAY, Verdict.CONFLICT):
            return
        seen[report.attempt_id] = digest
        self._record(report, attempt, verdict=verdict, digest=digest)
        if verdict is Verdict.SUPERSEDED and job.watched and job.group_id:
            group_rows.add_duplicates(self.tx, job.group_id, 1)
        if verdict in (Verdict.ACCEPTED, Verdict.ACCEPTED_LATE):
            self._apply(report, attempt, job, verdict=verdict)

    def _find_uploads(self, reports: Sequence[Report]) -> dict[str, int]:
        """Of the artifacts they name, those this node uploaded: it must not give away what it only knows the name of."""
        digests = {digest for report in reports for digest in report_checks.named_artifacts(report)}
        if not digests:
            return {}
        own = artifact_rows.readable_of(self.tx.connection, sorted(digests), account_id=self.node.node_id)
        return artifact_rows.get_artifacts(self.tx.connection, sorted(own))

    def _check(self, report: Report, attempt: OwnedAttempt | None, job: JobRow | None) -> Report:
        """What the report makes of the attempt, after it was held against what the hub itself has."""
        if attempt is None or job is None or attempt.report_digest is not None:
            return report
        if self._is_overspent(report, attempt, job):
            return report_checks.fail(
                report, Reason.BUDGET_SPENT, "It ran for longer than its budget lasts at its price."
            )
        report = printed_output.check_output(
            self.tx, self.snapshot, report, attempt=attempt, arrivals=self.arrivals
        )
        return report_checks.check(
            self.tx,
            self.snapshot,
            report,
            job=job,
            uploaded=self.uploaded,
            changes=self.effects.storage,
        )

    def _is_overspent(self, report: Report, attempt: OwnedAttempt, job: JobRow) -> bool:
        """Nodes stop a job when its money ends, but look at their clocks only now and then."""
        if report.outcome is not Outcome.SUCCEEDED:
            return False
        bill, parts = self.bills[attempt.id] = self._bill(report, attempt, job)
        return holds.is_overspent(job, [bill, *(part.bill for part in parts)])

    def _bill(self, report: Report, attempt: OwnedAttempt, job: JobRow) -> _Bill:
        """For as long as the node says it ran, but no longer than its lane had time for."""
        lane = self.lanes[attempt.lane]
        aside_ms = attempt.checkpoint_ms or 0  # its own time, counted already when it saved where it was
        ran_ms = min(report.ran_ms, lane.had_ms - lane.billed_ms + aside_ms)
        parts = checkpoints.contributions(self.tx, job, attempt)
        before = [part.bill for part in parts]
        return holds.bill(self.tx, job, attempt=attempt, ran_ms=ran_ms, before=before), parts

    def _record(self, report: Report, attempt: OwnedAttempt, *, verdict: Verdict, digest: str) -> None:
        state = _ATTEMPT_STATE[report.outcome]
        if verdict is Verdict.SUPERSEDED:
            state = AttemptState.SUPERSEDED
        elif verdict is Verdict.CANCELLED:
            state = AttemptState.CANCELLED
        finished = max(attempt.leased_at_ms, self.tx.now_ms - report.ended_ago_ms)
        self.reported.append(
            {
                "attempt": attempt.id,
                "new_state": state.value,
                "why": report.reason.value,
                "digest": digest,
                "code": report.exit_code,
                "text": report.error,
                "measured": None if report.usage is None else report.usage.model_dump_json(),
                "started": max(attempt.leased_at_ms, finished - report.ran_ms),
                "finished": finished,
                "billed": None,
                "lane_billed": None,
                "cost": None,
                "names": None,
                "known_for": 0,
                "value": None,
                "artifact": None,
                "files": None,
                "shown": report.printed,
                "shown_chars": report.printed_chars,
                "raised": report.items_failed,
            }
        )

    def _apply(self, report: Report, attempt: OwnedAttempt, job: JobRow, *, verdict: Verdict) -> None:
        if report.outcome is Outcome.SUCCEEDED:
            self._succeed(report, attempt, job, verdict=verdict)
            return
        if report.outcome is Outcome.FAILED and self._is_nodes_fault(report, attempt):
            self._blame_node(report, attempt, job)
        # After the successes: a late one of the same batch may end the job first.
        self.unsuccessful.append((report, attempt, job))

    def _is_nodes_fault(self, report: Report, attempt: OwnedAttempt) -> bool:
        """What a node could not renew while this hub was away, it had to stop."""
        was_away = attempt.leased_at_ms < self.snapshot.started_at_ms
        return report.reason in NODE_FAULTS and not (report.reason is Reason.LEASE_LOST and was_away)

    def _blame_node(self, report: Report, attempt: OwnedAttempt, job: JobRow) -> None:
        """The job's own event tells what becomes of the job; this one is about the node. Where the fault may be the job's
        it is told when another node has done it (node_faults.blame_unable).

        Output that is not what it reported is a wrong result like any other, proven by the node's own words.
        """
        self.bad += node_faults.counts_at_once(report.reason, attempt, job)
        if report.reason in CONTESTED:
            return
        action, after = FAULT_ACTION, AttemptState.FAILED
        if report.reason is Reason.OUTPUT_MISMATCH:
            action, after = REFUTED_ACTION, AttemptState.REFUTED
            self.reported[-1]["new_state"] = after.value
            self.effects.penalised.append(self.node.node_id)
        self.tx.emit(
            actor=self.node.node_id,
            action=action,
            account_id=job.account_id,
            job_id=job.id,
            attempt_id=attempt.id,
            node_id=self.node.node_id,
            before=attempt.state,
            after=after.value,
            reason=report.reason.value,
        )

    def _succeed(self, report: Report, attempt: OwnedAttempt, job: JobRow, *, verdict: Verdict) -> None:
        self.good += 1
        late = verdict is Verdict.ACCEPTED_LATE
        run = self._run(report, attempt)
        believed = None
        if not job.results:
            believed = sampling.needs_no_other(self.tx, self.snapshot, job, run=run, checks=self.checks)
        if believed is not None:
            self._accept(run, attempt, job, late=late, believed=believed)
        else:
            self._compare(run, attempt, job, late=late)

    def _run(self, report: Report, attempt: OwnedAttempt) -> ReportedRun:
        """What was reported, with its bill: fixed now, whenever and whether it is paid."""
        times, lane = self.reported[-1], self.lanes[attempt.lane]
        bill, parts = self.bills.pop(attempt.id)
        lane.billed_ms += max(0, bill.billed_ms - (attempt.checkpoint_ms or 0))
        log, streak = self.arrivals.of(attempt), self.checks.streak
        run = verification.run_of(report, attempt, log=log, bill=bill, times=times, streak=streak)
        run.parts = parts
        times |= {
            "billed": bill.billed_ms,
            "lane_billed": lane.billed_ms,
            "names": run.outcome,
            "known_for": run.streak,
        }
        return run

    def _accept(
        self,
        run: ReportedRun,
        attempt: OwnedAttempt,
        job: JobRow,
        *,
        late: bool,
        believed: verification.VerificationVerdict,
    ) -> None:
        """The usual case, in few statements for many: the first result is the job's."""
        self.done.add(job.id)
        why = Reason.ACCEPTED_LATE if late else Reason.COMPLETED
        if run.narrow:
            verification.emit_about(self.tx, job, run, action=NARROW_ACTION)
        verification.emit_succeeded(
            self.tx,
            self.snapshot,
            job,
            chosen=run,
            actor=self.node.node_id,
            why=why,
            verdict=believed,
            effects=self.effects,
        )
        table, wait_ms = self.snapshot.table, self.snapshot.settings.unconfirmed_ms
        holds.settle(self.tx, job, bills=run.bills, ref=run.attempt_id, table=table)
        verification.pay_parts(self.tx, job, [run])
        self.reported[-1]["cost"] = run.bill.charge
        alone, cost = believed is verification.VerificationVerdict.ALONE, run.cost
        held = holds.held_until_ms(self.tx, cost=cost, alone=alone, unconfirmed_ms=wait_ms)
        accepted = run.accepted_row(job, why=why, verdict=believed, cost=cost, held_until_ms=held)
        self.accepted.append(accepted)
        self.effects.finished.append(job.id)
        if job.hub_job is not None:
            self.effects.hub_jobs.append(job.id)
        self.outputs += run.references(job)
        if late:
            self._supersede_others(job, attempt)

    def _compare(self, run: ReportedRun, attempt: OwnedAttempt, job: JobRow, *, late: bool) -> None:
        """With what other owners' nodes came to. An owner has one word in it, however many nodes."""
        self.done.add(job.id)
        newest = job.attempt_no == attempt.number and job.state != JobState.QUEUED
        earlier = verification.waiting(self.tx, job)
        change: dict[str, Any] = {"actor": self.node.node_id, "effects": self.effects}
        if any(known.is_one_with(run) for known in earlier):
            self.reported[-1] |= {"new_state": AttemptState.SUPERSEDED.value, "names": None}
            if newest:
                verification.wait_for_another(self.tx, job, attempt_no=attempt.number, **change)
            return
        runs = sorted([*earlier, run], key=lambda known: known.number)
        decision, changes = compare_jobs.decide(
            self.tx,
            self.snapshot,
            job,
            runs=runs,
            arrivals=self.arrivals,
            may_ask=newest,
            effects=self.effects,
        )
        if decision.ruling is Ruling.MORE:
            self.reported[-1] |= {
                "value": run.result,
                "artifact": run.result_artifact,
                "files": json.dumps(run.files),
            }
            verification.keep(self.tx, job, run, newest=newest, **change, **changes)
            return
        if decision.ruling is Ruling.DIFFER and parse(job.verify).strict:
            self.differing.append((job, runs))
            return
        ends = verification.conclude(
            self.tx,
            self.snapshot,
            job,
            runs=runs,
            decision=decision,
            arrivals=self.arrivals,
            why=Reason.ACCEPTED_LATE if late else Reason.COMPLETED,
            **change,
        )
        state, cost = ends[run.attempt_id]
        self.reported[-1] |= {"new_state": state.value, "cost": cost, "billed": run.bill.billed_ms}
        if late:
            self._supersede_others(job, attempt)

    def _supersede_others(self, job: JobRow, attempt: OwnedAttempt) -> None:
        for other in attempt_rows.live_attempts_of_job(self.tx.connection, job.id):
            if other.id != attempt.id:
                attempt_rows.end_attempt(
                    self.tx, other.id, state=AttemptState.SUPERSEDED, reason=Reason.SUPERSEDED
                )
                self.effects.ended.append((other.node_id, other.id))
                self.tx.touch(f"node:{other.node_id}")

    def _try_again(self, report: Report, attempt: OwnedAttempt, job: JobRow) -> None:
        number = attempt.number
        change: dict[str, Any] = {"actor": self.node.node_id, "effects": self.effects}
        if report.outcome is Outcome.MOVED and migration.move(
            self.tx, self.snapshot, job, report=report, attempt_no=number, **change
        ):
            return
        cut_short = report.outcome is Outcome.FAILED and checkpoints.cut_short(attempt, report.reason)
        if cut_short or report.reason is Reason.OUTPUT_MISMATCH:  # nobody goes on from what a liar saved
            checkpoints.drop(self.tx, job)  # the next one starts from nothing, and has all of the limit
        if cut_short or report.outcome not in (Outcome.FAILED, Outcome.MOVED):
            # Given back, stopped although the job was not cancelled, or short of time that an earlier attempt claimed:
            # it simply waits again, at nobody's cost.
            # Each time a little later: a node that only ever gives back must not keep the hub busy.
            delay_ms = doubled(_GIVEN_BACK_MS, job.attempt_no, most=_GIVEN_BACK_MAX_MS)
            transitions.requeue(
                self.tx,
                job,
                attempt_no=number,
                reason=report.reason,
                **change,
                ready_at_ms=self.tx.now_ms + delay_ms,
                avoid_node="",
                waits_on=job.started_at_ms is None,
            )
            return
        checkpoints.failed(self.tx, self.snapshot, job, attempt_no=number)
        failure = transitions.judge_failure(
            self.tx,
            job,
            # Nothing was saved to go on from: the node moved it without its files.
            reason=Reason.STAGING_FAILED if report.outcome is Outcome.MOVED else report.reason,
            limits=self.snapshot.settings.retry_limits(job.retries),
            jitter=self.jitter,
        )
        effects = self.effects
        if failure.gives_up and verification.believe_first(self.tx, self.snapshot, job, effects=effects):
            return
        change |= {"node_id": self.node.node_id, "error": report.error, "exit_code": report.exit_code}
        given_up = transitions.apply_failure(self.tx, job, failure, attempt_no=number, **change)
        if given_up and report.outputs:
            sizes, changes = self.uploaded, effects.storage
            storage_quota.keep_of_failed(
                self.tx, job, files=report.outputs, sizes=sizes, snapshot=self.snapshot, changes=changes
            )

    def _update_health(self) -> None:
        """Three node faults in a row and the node rests for a while; any success clears the count."""
        if not self.good and not self.bad:
            return
        row = node_rows.get_node(self.tx.connection, self.node.node_id)
        if row is None or (self.good and row.consecutive_faults == 0):
            return
        faults = 0 if self.good else row.consecutive_faults + self.bad
        until_ms = node_faults.cool_off_until(self.snapshot.settings, faults, self.tx.now_ms)
        node_rows.set_health(
            self.tx, node_id=self.node.node_id, consecutive_faults=faults, cool_off_until_ms=until_ms
        )
        self.effects.resting[self.node.node_id] = until_ms
