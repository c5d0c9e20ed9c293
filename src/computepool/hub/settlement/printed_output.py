"""Printed output, as its node reports it, compared with the text that the node sent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from computepool.core.jobs.lifecycle import Outcome, Reason
from computepool.core.jobs.printed_output import Claim, Finding, compare_output
from computepool.core.trust.tolerance import PRINTED_MAX
from computepool.hub.artifacts import storage_quota
from computepool.hub.db import event_rows
from computepool.hub.db.session import Tx
from computepool.hub.jobs.attempt_rows import AttemptRow, OwnedAttempt
from computepool.hub.jobs.running import checkpoint_rows
from computepool.hub.jobs.running.logs import Arrivals, Log
from computepool.hub.snapshot import Snapshot
from computepool.protocol.nodes.nodes import Report

_FAULTS = {
    Finding.LOST: (Reason.STAGING_FAILED, "The node did not send all that the job printed."),
    Finding.FALSE: (
        Reason.OUTPUT_MISMATCH,
        "The output that the node sent is not the one that it reported.",
    ),
}


def check_output(
    tx: Tx, snapshot: Snapshot, report: Report, *, attempt: OwnedAttempt, arrivals: Arrivals
) -> Report:
    """A success whose output is not what the node says was printed is none, and the node is to blame."""
    if report.outcome is not Outcome.SUCCEEDED or report.printed is None:
        return report
    log = arrivals.of(attempt)
    if attempt.resumed_no is not None:
        return _went_on(tx, snapshot, report, attempt=attempt, log=log)
    if report.printed_chars is None:
        return _count(tx, report, attempt=attempt, log=log)

    def digest_kept() -> str:
        sha = hashlib.sha256()
        if attempt.stdout_chars:
            for text in event_rows.stdout_of(tx.connection, job_id=attempt.job_id, attempt_id=attempt.id):
                sha.update(text.encode())
        sha.update(log.new_stdout.encode())
        return sha.hexdigest()

    found = compare_output(
        Claim(digest=report.printed, chars=report.printed_chars),
        kept_chars=log.stdout_chars,
        sent_bytes=log.bytes,
        must_send_bytes=storage_quota.must_send_bytes(snapshot.settings),
        digest_kept=digest_kept,
    )
    return _fail(report, found) if found in _FAULTS else report


def _fail(report: Report, found: Finding) -> Report:
    reason, error = _FAULTS[found]
    return report.model_copy(update={"outcome": Outcome.FAILED, "reason": reason, "error": error})


def _count(tx: Tx, report: Report, *, attempt: AttemptRow, log: Log) -> Report:
    """An agent of the version before does not say how long the text is. It may have lost some without knowing, so a text
    that is not the reported one is no lie; but it is no result either, however much was sent beside it.
    """
    text = log.new_stdout
    if attempt.log_bytes:
        text = _stored_output(tx, attempt.id) + text
    if _names(report.printed, text):
        return report.model_copy(update={"printed_chars": len(text)})
    return _fail(report, Finding.LOST)


def _went_on(tx: Tx, snapshot: Snapshot, report: Report, *, attempt: AttemptRow, log: Log) -> Report:
    """The claim has what was printed before the checkpoint, too. That is known where one earlier try of the same owner's
    printed all of it and sent that much; where another owner's did, who sends something false cannot be told.
    """
    if report.printed_chars is None:
        return _fail(report, Finding.LOST)
    before_chars = report.printed_chars - log.stdout_chars
    if before_chars < 0:
        return _fail(report, Finding.FALSE)
    before = (
        None if log.bytes >= storage_quota.must_send_bytes(snapshot.settings) else _before(tx, attempt.id)
    )
    if before is None or len(before) < before_chars:
        return report
    text = before[:before_chars] + _stored_output(tx, attempt.id) + log.new_stdout
    return report if _names(report.printed, text) else _fail(report, Finding.FALSE)


def _before(tx: Tx, attempt_id: str) -> str | None:
    """What is kept of the try that it went on from; None where that one went on, too, or was another owner's.

    It is some of what was printed up to the checkpoint, from the beginning, or that and what followed until it was lost.
    """
    job_id, _, number = attempt_id.rpartition("-")
    rows = {row.number: row for row in checkpoint_rows.links(tx.connection, job_id)}
    run = rows[int(number)]
    first = rows.get(run.resumed_no or 0)
    if first is None or first.resumed_no is not None or first.owner_id != run.owner_id:
        return None
    return _stored_output(tx, first.id)


def _stored_output(tx: Tx, attempt_id: str) -> str:
    job_id = attempt_id.rpartition("-")[0]
    return "".join(event_rows.stdout_of(tx.connection, job_id=job_id, attempt_id=attempt_id))


def _names(digest: str | None, text: str) -> bool:
    return hashlib.sha256(text.encode()).hexdigest() == digest


@dataclass(slots=True, kw_only=True)
class PrintedRun:
    """What an attempt says that it printed, and how much of that it sent."""

    attempt_id: str
    printed: str | None  #: digest of the standard output, of a script or command
    printed_chars: int | None
    kept_chars: int  #: of it
    sent_bytes: int  #: of all that it wrote
    resumed_no: int | None


def printed_fields(attempt: AttemptRow) -> dict[str, Any]:
    """Of an attempt as it is stored."""
    return {
        "attempt_id": attempt.id,
        "printed": attempt.printed,
        "printed_chars": attempt.printed_chars,
        "kept_chars": attempt.stdout_chars,
        "sent_bytes": attempt.log_bytes,
        "resumed_no": attempt.resumed_no,
    }


def printed_text(tx: Tx, run: PrintedRun, arrivals: Arrivals | None) -> str | None:
    """The whole of what it printed, if all of it was kept, and is short enough. `arrivals`: what came with the report."""
    if run.printed_chars is None or run.printed_chars > PRINTED_MAX:
        return None
    text = _text(tx, run, arrivals)
    return text if _names(run.printed, text) else None


def _text(tx: Tx, run: PrintedRun, arrivals: Arrivals | None) -> str:
    return _stored_output(tx, run.attempt_id) + (
        "" if arrivals is None else arrivals.new_stdout(run.attempt_id)
    )


# the texts of several runs


def false_texts(
    tx: Tx, snapshot: Snapshot, runs: Sequence[PrintedRun], *, arrivals: Arrivals | None = None
) -> frozenset[int]:
    """Places of the runs whose text, which could not be held against their own report, is not the one that they report:
    another run has that. Most runs' texts are whole, and nothing is read.
    """
    whole = {run.printed: run for run in runs if run.printed is not None and _is_whole(run)}
    found = set()
    for place, run in enumerate(runs):
        if run.printed is None or run.printed not in whole or _is_whole(run):
            continue
        text = _text(tx, whole[run.printed], arrivals)
        # Output goes before its job does; without it nothing can be told.
        if _names(run.printed, text) and not _fits(tx, snapshot, run, whole=text, arrivals=arrivals):
            found.add(place)
    return frozenset(found)


def is_cut(run: PrintedRun) -> bool:
    """Whether some of what it printed was left out, so that what is kept was held against nothing."""
    return run.printed is not None and run.resumed_no is None and not _is_whole(run)


def _is_whole(run: PrintedRun) -> bool:
    """Then it was compared when it was reported."""
    return run.resumed_no is None and run.printed_chars is not None and run.kept_chars >= run.printed_chars


def _fits(tx: Tx, snapshot: Snapshot, run: PrintedRun, *, whole: str, arrivals: Arrivals | None) -> bool:
    """Whether what is kept of a run can be a part of this, and the part that it should be."""
    text = _text(tx, run, arrivals)
    if run.resumed_no is None:
        return whole.startswith(text)
    if run.sent_bytes >= storage_quota.must_send_bytes(snapshot.settings):
        return text in whole
    if not whole.endswith(text):
        return False
    beginning, before = whole[: len(whole) - len(text)], _before(tx, run.attempt_id)
    return before is None or beginning[: len(before)] == before[: len(beginning)]
