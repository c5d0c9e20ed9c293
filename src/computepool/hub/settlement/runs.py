"""Runs: results that nodes reported, with all that is needed to compare them, pay for them, and make one the job's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from computepool.core.jobs.lifecycle import Reason
from computepool.core.trust.verification import VerificationVerdict
from computepool.hub.jobs.attempt_rows import AttemptRow
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running import checkpoints
from computepool.hub.jobs.running.checkpoints import Contribution
from computepool.hub.jobs.running.logs import Log
from computepool.hub.jobs.transactions import JobTx
from computepool.hub.money.holds import RunCharge
from computepool.hub.settlement import result_rows
from computepool.protocol.nodes.nodes import Report


@dataclass(slots=True, kw_only=True)
class Run:
    attempt: AttemptRow
    bill: RunCharge
    parts: tuple[Contribution, ...] = ()  #: earlier attempts from whose checkpoints it resumed, oldest first
    streak: int  #: of the node, when it reported
    outcome: str  #: digest of the whole result
    exit_code: int | None
    result: str | None
    result_artifact: str | None
    files: dict[str, str]  #: digests by name
    printed: str | None  #: digest of the standard output of a script or command
    printed_chars: int | None
    kept_chars: int  #: characters of standard output that the hub has
    sent_bytes: int  #: bytes of output that the node sent
    started_ms: int
    finished_ms: int
    items_failed: int
    is_stored: bool = True  #: its attempt's row has the result; else the caller writes it

    @classmethod
    def from_report(
        cls, report: Report, attempt: AttemptRow, *, log: Log, bill: RunCharge, columns: Mapping[str, Any], streak: int
    ) -> Run:
        """`columns`: the new ones of the attempt's row."""
        return cls(
            attempt=attempt,
            bill=bill,
            streak=streak,
            outcome=report.result_digest(),
            exit_code=report.exit_code,
            result=report.result,
            result_artifact=report.result_artifact,
            files={output.name: output.digest for output in report.outputs},
            printed=report.printed,
            printed_chars=report.printed_chars,
            kept_chars=log.stdout_chars,
            sent_bytes=log.bytes,
            started_ms=columns["new_started_at_ms"],
            finished_ms=columns["new_finished_at_ms"],
            items_failed=report.items_failed,
            is_stored=False,
        )

    @classmethod
    def from_row(cls, row: AttemptRow) -> Run:
        return cls(
            attempt=row,
            bill=RunCharge.of(row, row.billed_ms or 0),
            streak=row.streak,
            outcome=row.outcome or "",
            exit_code=row.exit_code,
            result=row.result,
            result_artifact=row.result_artifact,
            files=json.loads(row.outputs or "{}"),
            printed=row.printed,
            printed_chars=row.printed_chars,
            kept_chars=row.stdout_chars,
            sent_bytes=row.log_bytes,
            started_ms=row.started_at_ms or 0,
            finished_ms=row.finished_at_ms or 0,
            items_failed=row.items_failed,
        )

    @property
    def bills(self) -> list[RunCharge]:
        """The reporting attempt's comes first."""
        return [self.bill, *(part.bill for part in self.parts)]

    @property
    def cost(self) -> int:
        return sum(bill.charge for bill in self.bills)

    @property
    def owners(self) -> set[str]:
        return {bill.owner_id for bill in self.bills}

    @property
    def has_one_owner(self) -> bool:
        """No other owner's work is in it, so an error in it is its node's doing."""
        return len(self.owners) == 1

    def shares_work_with(self, other: Run) -> bool:
        """One owner has a part in both, or they resumed from the same work: they are not two opinions."""
        mine, theirs = ({run.attempt.number, *(part.number for part in run.parts)} for run in (self, other))
        return bool(self.owners & other.owners) or not mine.isdisjoint(theirs)

    def accepted_row(
        self, tx: JobTx, job: JobRow, *, why: Reason, verdict: VerificationVerdict, cost: int
    ) -> dict[str, Any]:
        """`cost`: of all the runs that are paid. Pay for a result that nobody could check is held for a while."""
        is_held = verdict is VerificationVerdict.ALONE and cost
        return {
            "job": job.id,
            "account": job.account_id,
            "new_reason": why.value,
            "new_accepted_attempt": self.attempt.number,
            "new_node_id": self.attempt.node_id,
            "new_started_at_ms": self.started_ms,
            "new_finished_at_ms": self.finished_ms,
            "new_exit_code": self.exit_code,
            "new_result": self.result,
            "new_result_artifact": self.result_artifact,
            "new_charge": cost,
            "new_verdict": verdict.value,
            "new_held_until_ms": tx.now_ms + tx.snapshot.settings.unconfirmed_ms if is_held else None,
            "new_items_failed": min(self.items_failed, job.bundled) if job.bundled > 1 else 0,
        }

    def references(self, job: JobRow) -> list[dict[str, Any]]:
        """References to its artifacts, which let the submitter read them."""
        files = [("output", name, digest) for name, digest in self.files.items()]
        if self.result_artifact is not None:
            files.append(("result", "result", self.result_artifact))
        return [
            {"digest": digest, "account_id": job.account_id, "job_id": job.id, "role": role, "name": name}
            for role, name, digest in files
        ]


def waiting_runs(tx: JobTx, job: JobRow) -> list[Run]:
    """Results of the job that wait to be compared, in the order of their attempts."""
    runs = []
    for row in result_rows.waiting_attempts(tx.connection, job.id):
        run = Run.from_row(row)
        run.parts = checkpoints.contributions(tx, job, row)
        runs.append(run)
    return runs
