"""Standard output: the node's report of it, compared with the text that the node sent and with the texts of other runs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from computepool.core.jobs.lifecycle import Outcome, Reason
from computepool.core.jobs.printed_output import Claim, Finding, compare_output
from computepool.core.trust.tolerance import PRINTED_MAX
from computepool.hub.artifacts import storage_quota
from computepool.hub.db import event_rows
from computepool.hub.jobs.attempt_rows import AttemptRow, job_id_of
from computepool.hub.jobs.running import checkpoint_rows
from computepool.hub.jobs.running.logs import Log
from computepool.hub.jobs.transactions import JobTx
from computepool.hub.settlement import report_checks
from computepool.hub.settlement.runs import Run
from computepool.protocol.nodes.nodes import Report

_FAULTS = {
    Finding.LOST: (Reason.STAGING_FAILED, "The node did not send all that the job printed."),
    Finding.FALSE: (Reason.OUTPUT_MISMATCH, "The output that the node sent is not the one that it reported."),
}


def check_output(tx: JobTx, report: Report, *, attempt: AttemptRow, log: Log) -> Report:
    """A success is a failure of its node if the output that it sent is not the output that it reported."""
    if report.outcome is not Outcome.SUCCEEDED or report.printed is None:
        return report
    if report.printed_chars is None:  # an agent that does not report the length may have lost text without knowing it
        text = _stored_text(tx, attempt.id) + log.new_stdout
        if attempt.resumed_no is None and _matches(report.printed, text):
            return report.model_copy(update={"printed_chars": len(text)})
        return _fail(report, Finding.LOST)
    if attempt.resumed_no is not None:
        is_false = _is_false_after_resuming(tx, report, report.printed_chars, attempt=attempt, log=log)
        return _fail(report, Finding.FALSE) if is_false else report

    found = compare_output(
        Claim(digest=report.printed, chars=report.printed_chars),
        kept_chars=log.stdout_chars,
        sent_bytes=log.bytes,
        must_send_bytes=storage_quota.must_send_bytes(tx.snapshot.settings),
        kept_digest=_digest(tx, attempt, log) if log.stdout_chars == report.printed_chars else None,
    )
    return _fail(report, found) if found in _FAULTS else report


def _digest(tx: JobTx, attempt: AttemptRow, log: Log) -> str:
    """Of all that the hub has."""
    sha = hashlib.sha256()
    if attempt.stdout_chars:
        for text in event_rows.stdout_of(tx.connection, job_id=attempt.job_id, attempt_id=attempt.id):
            sha.update(text.encode())
    sha.update(log.new_stdout.encode())
    return sha.hexdigest()


def _fail(report: Report, found: Finding) -> Report:
    reason, error = _FAULTS[found]
    return report_checks.fail(report, reason, error)


def _is_false_after_resuming(tx: JobTx, report: Report, chars: int, *, attempt: AttemptRow, log: Log) -> bool:
    """The report also covers what was printed before the checkpoint. That text is known only if a single earlier attempt,
    on a node of the same owner, printed and sent all of it: of two owners, nobody can tell who sent a false part."""
    before_chars = chars - log.stdout_chars
    if before_chars < 0:
        return True
    cut = log.bytes >= storage_quota.must_send_bytes(tx.snapshot.settings)
    before = None if cut else _text_before_resuming(tx, attempt.id)
    if before is None or len(before) < before_chars:
        return False
    return not _matches(report.printed, before[:before_chars] + _stored_text(tx, attempt.id) + log.new_stdout)


def _text_before_resuming(tx: JobTx, attempt_id: str) -> str | None:
    """What is stored of the attempt that it resumed from; None if that one resumed too, or ran for another owner.

    It is the beginning of what was printed before the checkpoint, or all of that and what the attempt printed afterwards
    until it was lost.
    """
    _, _, number = attempt_id.rpartition("-")
    rows = {row.number: row for row in checkpoint_rows.links(tx.connection, job_id_of(attempt_id))}
    run = rows[int(number)]
    first = rows.get(run.resumed_no or 0)
    if first is None or first.resumed_no is not None or first.owner_id != run.owner_id:
        return None
    return _stored_text(tx, first.id)


def _stored_text(tx: JobTx, attempt_id: str) -> str:
    return "".join(event_rows.stdout_of(tx.connection, job_id=job_id_of(attempt_id), attempt_id=attempt_id))


def _matches(digest: str | None, text: str) -> bool:
    return hashlib.sha256(text.encode()).hexdigest() == digest


def printed_text(tx: JobTx, run: Run) -> str | None:
    """All that the run printed, if the hub has all of it and it is short enough."""
    if run.printed_chars is None or run.printed_chars > PRINTED_MAX:
        return None
    text = _text(tx, run)
    return text if _matches(run.printed, text) else None


def _text(tx: JobTx, run: Run) -> str:
    return _stored_text(tx, run.attempt.id) + tx.unsaved_output.get(run.attempt.id, "")


# the texts of several runs


def false_texts(tx: JobTx, runs: Sequence[Run]) -> frozenset[int]:
    """Indices of the runs whose text could not be checked against their own report, and is not the one that they report, as
    a complete text of another run shows. Most runs' texts are complete, and nothing is read."""
    complete = {run.printed: run for run in runs if run.printed is not None and _is_complete(run)}
    found = set()
    for place, run in enumerate(runs):
        if run.printed is None or run.printed not in complete or _is_complete(run):
            continue
        text = _text(tx, complete[run.printed])
        # Output arrives before its job's report; if it has been deleted, nothing can be told.
        if _matches(run.printed, text) and not _can_be_part(tx, run, text):
            found.add(place)
    return frozenset(found)


def is_cut(run: Run) -> bool:
    """Whether some of its output was left out, so that the rest was compared with nothing."""
    return run.printed is not None and run.attempt.resumed_no is None and not _is_complete(run)


def _is_complete(run: Run) -> bool:
    """Then its text was compared with its report when that came."""
    return run.attempt.resumed_no is None and run.printed_chars is not None and run.kept_chars >= run.printed_chars


def _can_be_part(tx: JobTx, run: Run, whole: str) -> bool:
    """Whether what the hub has of the run's output is a part of `whole`, at the place where it should be."""
    text = _text(tx, run)
    if run.attempt.resumed_no is None:
        return whole.startswith(text)
    if run.sent_bytes >= storage_quota.must_send_bytes(tx.snapshot.settings):
        return text in whole
    if not whole.endswith(text):
        return False
    beginning, before = whole[: len(whole) - len(text)], _text_before_resuming(tx, run.attempt.id)
    return before is None or beginning[: len(before)] == before[: len(beginning)]
