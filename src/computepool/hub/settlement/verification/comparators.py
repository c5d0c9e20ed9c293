"""Comparators of the results of one job, as its submitter chose (jobs/comparison.py).

Files are always compared by digest. A tolerance is applied here, to texts that are never executed. The submitter's own
function is never called here: its answers come from hub jobs (compare_jobs.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from computepool.core.trust import comparison
from computepool.core.trust.comparison import Tolerance
from computepool.core.trust.tolerance import same_text, same_value
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.attempt_rows import AttemptRow
from computepool.hub.jobs.comparison import Comparison
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transactions import JobTx
from computepool.hub.settlement.printed_output import false_texts, printed_text
from computepool.hub.settlement.runs import Run
from computepool.hub.settlement.verification import recheck_rows
from computepool.protocol.jobs.jobs import PAYLOAD_MAX

_NAME = 16  #: characters of a digest that tell the few results of one job apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparer:
    tx: JobTx
    how: Comparison

    def classes(self, runs: Sequence[Run]) -> list[int] | tuple[int, int]:
        """The class of each run; or the indices of two runs that the function has to be asked about.

        A run that sent a false text is like no other, whatever digest it reports.
        """
        false = false_texts(self.tx, runs)
        return comparison.classes(
            len(runs), lambda a, b: False if a in false or b in false else self._same(runs[a], runs[b])
        )

    def _same(self, a: Run, b: Run) -> bool | None:
        if _lengths_differ(a, b):
            return False
        if a.outcome == b.outcome:
            return True
        if (a.exit_code, a.files) != (b.exit_code, b.files):
            return False
        if self.how.within is not None:
            return self._close(a, b, self.how.within)
        if self.how.function is None:
            return False
        known = self.how.answers.get(pair_of(a, b))
        return False if known is None and self.payload(a, b) is None else known

    def _close(self, a: Run, b: Run, within: Tolerance) -> bool:
        if a.result_artifact != b.result_artifact or (a.result is None) != (b.result is None):
            return False
        if a.result is not None and b.result is not None and not same_value(a.result, b.result, within):
            return False
        if a.printed == b.printed:
            return True
        ours, theirs = printed_text(self.tx, a), printed_text(self.tx, b)
        return ours is not None and theirs is not None and same_text(ours, theirs, within)

    def payload(self, a: Run, b: Run) -> str | None:
        """Both results as the arguments of a call; None if they are too long to send, or no longer stored."""
        ours, theirs = self._text_of(a), self._text_of(b)
        if ours is None or theirs is None:
            return None
        text = f"[{ours},{theirs}]"
        return text if len(text.encode()) <= PAYLOAD_MAX else None

    def _text_of(self, run: Run) -> str | None:
        """The value that it returned, or else the text that it printed. Encoded values are JSON, so a list of two is too."""
        if run.result is not None or run.result_artifact is not None or run.printed is None:
            return run.result
        text = printed_text(self.tx, run)
        return None if text is None else json.dumps(text)


def _lengths_differ(a: Run, b: Run) -> bool:
    """The same digest with two lengths: one of them is a lie. Some agents report no length."""
    known = a.printed_chars is not None and b.printed_chars is not None
    return known and a.printed == b.printed and a.printed_chars != b.printed_chars


def pair_of(a: Run, b: Run) -> str:
    """Names two results, whoever reported them, so that the function is asked about them once."""
    return f"{a.outcome[:_NAME]} {b.outcome[:_NAME]}"


# results that were accepted, of a job and of the hub jobs that check it


class AcceptedResult(NamedTuple):
    """The result of a job, or of a hub job about it, with the attempt that reported it."""

    job: JobRow
    attempt: AttemptRow


def accepted_result(tx: JobTx, job: JobRow) -> AcceptedResult:
    return AcceptedResult(job, recheck_rows.accepted_attempt(tx.connection, job))


def classes_of_accepted(tx: JobTx, results: Sequence[AcceptedResult]) -> Sequence[int | str] | None:
    """The class of each; None if only the submitter's function could tell. The first is of the job itself."""
    job = results[0].job
    if job.compare is None:
        return _names(tx, [attempt for _, attempt in results])
    files = artifact_rows.outputs_of(tx.connection, [each.id for each, _ in results])
    runs = []
    for each, attempt in results:
        full = job_rows.get_job_full(tx.connection, each.id)
        assert full is not None
        run = Run.from_row(attempt)
        run.exit_code, run.result, run.result_artifact = full.exit_code, full.result, full.result_artifact
        run.files = {file.name: file.digest for file in files.get(each.id, [])}
        runs.append(run)
    kinds = Comparer(tx=tx, how=Comparison.of(job)).classes(runs)
    return kinds if isinstance(kinds, list) else None


def _names(tx: JobTx, attempts: Sequence[AttemptRow]) -> list[str]:
    """By the digest of the result, and by the length of the output if all of them report it."""
    counted = all(attempt.printed_chars is not None for attempt in attempts)
    names = [f"{attempt.outcome} {attempt.printed_chars if counted else ''}" for attempt in attempts]
    for place in false_texts(tx, [Run.from_row(attempt) for attempt in attempts]):
        names[place] += attempts[place].id  # like no other
    return names
