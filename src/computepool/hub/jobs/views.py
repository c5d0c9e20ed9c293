"""Wire models of jobs, made from rows, and the sentences that describe jobs to people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from computepool.core.jobs.lifecycle import CALLED, TERMINAL, JobKind, JobState, Reason
from computepool.core.money.money import format_credits
from computepool.core.trust.verification import VerificationVerdict
from computepool.hub.artifacts.rows import OutputRow
from computepool.hub.db.event_rows import EventRow
from computepool.hub.groups.rows import ResultRow
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal, may_manage
from computepool.hub.jobs.attempt_rows import NamedAttempt
from computepool.hub.jobs.comparison import Comparison
from computepool.hub.jobs.rows import FullJobRow, JobRow
from computepool.protocol.accounts import EventView
from computepool.protocol.jobs.views import AttemptView, JobResult, JobView, OutputFile, Usage

_SENTENCES: dict[Reason, str] = {
    Reason.SUBMITTED: "waiting for a node",
    Reason.WAITING_FOR_NODE: "waiting for a node",
    Reason.WAITING_FOR_JOBS: "waiting for the jobs it depends on",
    Reason.BACKING_OFF: "waiting before the next attempt",
    Reason.PLACED: "given to {node}, about to start",
    Reason.STARTED: "running on {node}",
    Reason.COMPLETED: "done",
    Reason.ACCEPTED_LATE: "done; the result arrived after the lease had ended, but before any other",
    Reason.EXIT_NONZERO: "it exited with {ended}",
    Reason.EXCEPTION: "it raised an exception",
    Reason.SIGNAL: "it was killed by a signal",
    Reason.TIMEOUT: "it ran longer than its time limit; raise it with --timeout (timeout= in Python)",
    Reason.BUDGET_SPENT: "it was stopped when its budget was spent; nothing was charged. Raise it with --budget",
    Reason.OUT_OF_MEMORY: "it needed more memory than its limit; raise it with --ram (ram= in Python)",
    Reason.OUTPUT_LIMIT: "it printed or wrote more than the limit",
    Reason.BAD_JOB: "it cannot be started on any node",
    Reason.FAILED_EVERYWHERE: "it failed on nodes of several owners",
    Reason.UNRUNNABLE: "nodes of different owners could not run it",
    Reason.LEASE_LOST: "its node went silent",
    Reason.NODE_ERROR: "its node could not run it",
    Reason.STAGING_FAILED: "its node could not fetch the inputs",
    Reason.OUTPUT_MISMATCH: "its node sent output that differs from its report",
    Reason.NODE_RESTARTED: "its node restarted",
    Reason.FALSE_REPORT: "its node made a false report",
    Reason.NODES_KEPT_FAILING: "too many nodes failed while they ran it",
    Reason.GIVEN_BACK: "given back by a busy node",
    Reason.NODE_DRAINING: "given back by a node that is shutting down",
    Reason.MOVED: "it is moving to another host",
    Reason.MOVED_TOO_OFTEN: "it moved from host to host too often",
    Reason.HOST_NOT_REACHED: "it could not resume at the host that it named",
    Reason.CANCELLED_BY_USER: "cancelled",
    Reason.DEPENDENCY_FAILED: "a job it depends on did not succeed",
    Reason.SKIPPED: "skipped: it runs only if a job before it fails, and none did",
    Reason.PARENT_ENDED: "the job that submitted it did not succeed",
    Reason.VERIFYING: "it has a result, which another owner's node must confirm",
    Reason.RESULTS_DIFFER: (
        "nodes of several owners came to different results; if that is expected, use --verify none, or --compare"
    ),
    Reason.NOT_CONFIRMED: "it has a result, but no node confirmed it before its time to live ended",
    Reason.QUEUED_TOO_LONG: "no node could take it before its time to live ended",
    Reason.SUPERSEDED: "another attempt finished first",
    Reason.REPORTED: "reported from outside",
}
FOR_A_NODE = _SENTENCES[Reason.WAITING_FOR_NODE]
NO_NODE = "no connected node can run it"
COMPARING = "it has results, and a node that reported none of them runs your function to compare them"
_ALONE = "done, but not confirmed: no other owner's node could check the result yet"
_TIED = "done, but not confirmed: another owner's node came to a different result, and no third one could decide yet"
_HELD = "; it is checked when one can, and its pay is held until then"


def wrong_sentence(back: int) -> str:
    money = f"the {format_credits(back)} credits that it cost were refunded" if back else "nothing was refunded"
    return f"done, but the result was wrong: two other owners' nodes agreed on a different one; {money}"


def status(row: JobRow, *, node: str | None) -> str:
    """A sentence for people. `node`: the name of its node."""
    state, reason = JobState(row.state), Reason(row.reason)
    if row.verdict == VerificationVerdict.REFUTED:
        return wrong_sentence(row.taken_back or 0)
    if row.verdict == VerificationVerdict.ALONE and state is JobState.SUCCEEDED:
        return (_TIED if row.results > 1 else _ALONE) + (_HELD if row.charge else "")
    # A job that waits for its next attempt has no exit code of its own.
    ended = "an error" if row.exit_code is None else f"code {row.exit_code}"
    sentence = _SENTENCES[reason].format(node=node or "a node", ended=ended)
    if state is not JobState.QUEUED:
        return sentence
    if row.comparing is not None:
        return COMPARING
    if reason is Reason.VERIFYING:
        undecided = f"it has {row.results} results, which do not decide; another owner's node must run it"
        return undecided if row.results > 1 else sentence
    if row.pinned and reason is Reason.MOVED:
        return f"moving to host {row.pinned}; it resumes as soon as that host takes it"
    return f"waiting for a node again: {sentence} (attempt {row.attempt_no + 1})" if row.attempt_no else sentence


def job_view(row: JobRow, *, node_name: str | None, principal: Principal | None) -> JobView:
    return JobView.from_attributes(row, **job_fields(row, node_name=node_name, principal=principal))


def job_fields(row: JobRow, *, node_name: str | None, principal: Principal | None) -> dict[str, Any]:
    """The fields that the row does not have under the same names."""
    return {
        "status": status(row, node=node_name),
        "node_name": node_name,
        "attempts": row.attempt_no,
        "can_cancel": JobState(row.state) not in TERMINAL and may_manage(principal, row.account_id),
        "can_resubmit": row.hub_job is None and _may_resubmit(principal, row.account_id),
        "max_price": row.ceiling,
        "compare": str(Comparison.of(row)),
    }


def _may_resubmit(principal: Principal | None, account_id: str) -> bool:
    """Only its submitter, because whoever submits a job again pays for it."""
    return principal is not None and principal.account_id == account_id and access.may(principal, access.Action.SUBMIT)


def attempt_view(row: NamedAttempt) -> AttemptView:
    usage = None if row.usage is None else Usage.model_validate_json(row.usage)
    return AttemptView.from_attributes(row, usage=usage, resumed=row.resumed_no)


def output_files(rows: Sequence[OutputRow]) -> list[OutputFile]:
    return [OutputFile.from_attributes(row) for row in rows]


def is_dropped(row: JobRow | ResultRow) -> bool:
    """Whether it had an inline result that is no longer kept. Only functions and classes have one."""
    had_one = row.state == JobState.SUCCEEDED and JobKind(row.kind) in CALLED
    return had_one and row.dropped_at_ms is not None and row.result_artifact is None


def unusable(row: JobRow) -> str:
    """Why the result of this finished job must not be an argument of another one; empty if it may."""
    if row.verdict == VerificationVerdict.REFUTED:
        return "it was proven wrong"
    return "it is no longer kept" if is_dropped(row) or row.state != JobState.SUCCEEDED else ""


def job_result(row: FullJobRow | ResultRow, *, seq: int, outputs: Mapping[str, Sequence[OutputRow]]) -> JobResult:
    return JobResult(
        seq=seq,
        job_id=row.id,
        key=row.key,
        item=row.item,
        state=JobState(row.state),
        reason=Reason(row.reason),
        exit_code=row.exit_code,
        error=row.error,
        result=row.result,
        result_artifact=row.result_artifact,
        dropped=is_dropped(row),
        outputs=output_files(outputs.get(row.id, ())),
        bundled=row.bundled,
        carried=row.carried,
        ran_ms=None
        if row.started_at_ms is None or row.finished_at_ms is None
        else max(0, row.finished_at_ms - row.started_at_ms),
    )


def event_view(row: EventRow) -> EventView:
    fields = row._asdict()
    fields["data"] = None if row.data is None else json.loads(row.data)
    return EventView.model_validate(fields)
