"""Checks of a report against what the hub itself knows: uploaded files, their sizes, and whether the job may move."""

from __future__ import annotations

from collections.abc import Mapping

from computepool.core.jobs.lifecycle import Outcome, Reason
from computepool.hub.artifacts import inline_rows, storage_quota
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transactions import JobTx
from computepool.protocol.jobs.jobs import too_large_result
from computepool.protocol.nodes.nodes import Report


def named_artifacts(report: Report) -> list[str]:
    named = [output.digest for output in report.outputs]
    return named if report.result_artifact is None else [*named, report.result_artifact]


def fail(report: Report, reason: Reason, error: str) -> Report:
    """The report as the hub takes it: a failure."""
    return report.model_copy(update={"outcome": Outcome.FAILED, "reason": reason, "error": error})


def check(tx: JobTx, report: Report, *, job: JobRow, uploaded: Mapping[str, int]) -> Report:
    """The node is at fault if a success names files that it did not upload, or if it moved a job that did not declare that
    it moves. The job is at fault if its result is too large.

    `uploaded`: sizes of the artifacts that this node uploaded, by digest.
    """
    if report.outcome is Outcome.MOVED:
        if tx.spec(job.spec_digest).moves:
            return report
        return fail(report, Reason.FALSE_REPORT, "The node moved the job, which did not declare that it moves.")
    named, text = named_artifacts(report), inline_rows.size_of(report.result)
    if report.outcome is not Outcome.SUCCEEDED or not (named or text > storage_quota.SMALL_BYTES):
        return report
    if missing := [digest for digest in named if digest not in uploaded]:
        error = f"The node reported an artifact that it had not uploaded: {missing[0]}."
        return fail(report, Reason.FALSE_REPORT, error)
    size, most = uploaded.get(report.result_artifact or "", 0), tx.snapshot.settings.result_max_bytes
    if size > most:
        return fail(report, Reason.OUTPUT_LIMIT, too_large_result(size, most))
    files, changes = {digest: uploaded[digest] for digest in named}, tx.memory.storage
    full = storage_quota.hand_over(tx, job.account_id, files=files, text=text, snapshot=tx.snapshot, changes=changes)
    return report if full is None else fail(report, Reason.OUTPUT_LIMIT, full)
