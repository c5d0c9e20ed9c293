"""Checks of a report's claims against what the hub itself knows: files and their sizes, moves that were declared."""

from __future__ import annotations

from collections.abc import Mapping

from computepool.core.jobs.lifecycle import Outcome, Reason
from computepool.hub.artifacts import inline_rows, storage_quota
from computepool.hub.artifacts.storage_quota import StorageChanges
from computepool.hub.db.session import Tx
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import checkpoints
from computepool.hub.snapshot import Snapshot
from computepool.protocol.jobs.jobs import too_large_result
from computepool.protocol.nodes.nodes import Report


def named_artifacts(report: Report) -> list[str]:
    named = [output.digest for output in report.outputs]
    return named if report.result_artifact is None else [*named, report.result_artifact]


def fail(report: Report, reason: Reason, error: str) -> Report:
    return report.model_copy(update={"outcome": Outcome.FAILED, "reason": reason, "error": error})


def check(
    tx: Tx,
    snapshot: Snapshot,
    report: Report,
    *,
    job: JobRow,
    uploaded: Mapping[str, int],
    changes: StorageChanges,
) -> Report:
    """A success that names files the hub does not have is no success, and no job moves that did not declare it: the node
    is to blame. For too much that it brings back, the job is.

    `uploaded`: sizes of the artifacts that are this node's; `changes`: what accounts were given in this batch.
    """
    if report.outcome is Outcome.MOVED:
        if checkpoints.spec_of(tx, snapshot, job).moves:
            return report
        return fail(report, Reason.FALSE_REPORT, "The node moved it, but it did not declare that it moves.")
    named, text = named_artifacts(report), inline_rows.size_of(report.result)
    if report.outcome is not Outcome.SUCCEEDED or not (named or text > storage_quota.SMALL_BYTES):
        return report
    if missing := [digest for digest in named if digest not in uploaded]:
        error = f"The node reported an artifact that it had not uploaded: {missing[0]}."
        return fail(report, Reason.FALSE_REPORT, error)
    size, most = uploaded.get(report.result_artifact or "", 0), snapshot.settings.result_max_bytes
    if size > most:
        return fail(report, Reason.OUTPUT_LIMIT, too_large_result(size, most))
    files = {digest: uploaded[digest] for digest in named}
    full = storage_quota.hand_over(
        tx, job.account_id, files=files, text=text, snapshot=snapshot, changes=changes
    )
    return report if full is None else fail(report, Reason.OUTPUT_LIMIT, full)
