"""What a program printed, as its node reports it, held against the text that the node sent."""

from __future__ import annotations

import hashlib
from typing import Protocol

from computepool.core.closeness import PRINTED_MAX
from computepool.core.jobs import Outcome, Reason
from computepool.core.printed import Claim, Finding, compare_output
from computepool.hub.services.context import Hub
from computepool.hub.services.logs import Arrivals, Log
from computepool.hub.store import records
from computepool.hub.store.session import AnyRow, Tx
from computepool.protocol.nodes import LOG_SENT_MIN, Report

_FAULTS = {
    Finding.LOST: (Reason.STAGING_FAILED, "The node did not send all that the job printed."),
    Finding.FALSE: (
        Reason.OUTPUT_MISMATCH,
        "The output that the node sent is not the one that it reported.",
    ),
}


def check_output(hub: Hub, tx: Tx, report: Report, *, attempt: AnyRow, arrivals: Arrivals) -> Report:
    """A success whose output is not what the node says was printed is none, and the node is to blame."""
    if report.outcome is not Outcome.SUCCEEDED or report.printed is None:
        return report
    if (
        attempt.resumed_no is not None
    ):  # What an earlier attempt printed is part of the claim, and was sent by another.
        return report
    log, must_send = arrivals.of(attempt), min(LOG_SENT_MIN, hub.settings.log_max_bytes)
    if report.printed_chars is None:
        return _counted(tx, report, attempt=attempt, log=log, must_send_bytes=must_send)

    def digest_kept() -> str:
        sha = hashlib.sha256()
        if attempt.stdout_chars:
            for text in records.stdout_of(tx.connection, job_id=attempt.job_id, attempt_id=attempt.id):
                sha.update(text.encode())
        sha.update(log.new_stdout.encode())
        return sha.hexdigest()

    found = compare_output(
        Claim(digest=report.printed, chars=report.printed_chars),
        kept_chars=log.stdout_chars,
        sent_bytes=log.bytes,
        must_send_bytes=must_send,
        digest_kept=digest_kept,
    )
    return _failed(report, found) if found in _FAULTS else report


def _failed(report: Report, found: Finding) -> Report:
    reason, error = _FAULTS[found]
    return report.model_copy(update={"outcome": Outcome.FAILED, "reason": reason, "error": error})


def _counted(tx: Tx, report: Report, *, attempt: AnyRow, log: Log, must_send_bytes: int) -> Report:
    """An agent of the version before does not say how long the text is. It may have lost some without knowing, so a text
    that is not the reported one is no lie; but it is no result either, unless there was too much of it.
    """
    text = log.new_stdout
    if attempt.log_bytes:
        kept = records.stdout_of(tx.connection, job_id=attempt.job_id, attempt_id=attempt.id)
        text = "".join([*kept, text])
    if hashlib.sha256(text.encode()).hexdigest() == report.printed:
        return report.model_copy(update={"printed_chars": len(text)})
    return report if log.bytes >= must_send_bytes else _failed(report, Finding.LOST)


class Printed(Protocol):
    attempt_id: str
    printed: str | None
    printed_chars: int | None


def printed_text(tx: Tx, run: Printed, arrivals: Arrivals | None) -> str | None:
    """The whole of what it printed, if all of it was kept, and is short enough. `arrivals`: what came with the report."""
    if run.printed is None or run.printed_chars is None or run.printed_chars > PRINTED_MAX:
        return None
    job_id = run.attempt_id.rpartition("-")[0]
    text = "".join(records.stdout_of(tx.connection, job_id=job_id, attempt_id=run.attempt_id))
    text += "" if arrivals is None else arrivals.new_stdout(run.attempt_id)
    return text if hashlib.sha256(text.encode()).hexdigest() == run.printed else None
