"""Comparators of the results of one job: what its submitter's wish (jobs/comparison.py) makes of them.

Files are always compared by digest. A tolerance is applied here, to texts that are never run; a function of the
submitter's is only looked up here: its answers come from hub jobs (compare_jobs.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from computepool.core.trust import comparison
from computepool.core.trust.comparison import Tolerance
from computepool.core.trust.tolerance import same_text, same_value
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.artifacts.rows import OutputRow
from computepool.hub.db.session import Tx
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.attempt_rows import AttemptRow
from computepool.hub.jobs.comparison import Comparison, wish_of
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.running.logs import Arrivals
from computepool.hub.settlement.printed_output import PrintedRun, false_texts, printed_fields, printed_text
from computepool.hub.snapshot import Snapshot
from computepool.protocol.jobs.jobs import PAYLOAD_MAX

_NAME = 16  #: characters of a digest that tell the few results of one job apart


@dataclass(slots=True, kw_only=True)
class ComparedRun(PrintedRun):
    """As much of a result as is compared."""

    outcome: str
    exit_code: int | None
    result: str | None
    result_artifact: str | None
    files: dict[str, str]  #: name to digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparer:
    """`arrivals`: what was printed in the very request that reports it."""

    snapshot: Snapshot
    tx: Tx
    wish: Comparison
    arrivals: Arrivals | None = None

    def classes(self, runs: Sequence[ComparedRun]) -> list[int] | tuple[int, int]:
        """Of each run; or the places of two that the function has to be asked about.

        One that sent a false text is the same as no other, whatever digest it reports.
        """
        false = false_texts(self.tx, self.snapshot, runs, arrivals=self.arrivals)
        return comparison.classes(
            len(runs), lambda a, b: False if a in false or b in false else self.same(runs[a], runs[b])
        )

    def same(self, a: ComparedRun, b: ComparedRun) -> bool | None:
        if _one_lies(a, b):
            return False
        if a.outcome == b.outcome:
            return True
        if (a.exit_code, a.files) != (b.exit_code, b.files):
            return False
        if self.wish.within is not None:
            return self._close(a, b, self.wish.within)
        if self.wish.function is None:
            return False
        known = self.wish.answers.get(pair_of(a, b))
        return False if known is None and self.payload(a, b) is None else known

    def _close(self, a: ComparedRun, b: ComparedRun, within: Tolerance) -> bool:
        if a.result_artifact != b.result_artifact or (a.result is None) != (b.result is None):
            return False
        if a.result is not None and b.result is not None and not same_value(a.result, b.result, within):
            return False
        if a.printed == b.printed:
            return True
        ours, theirs = self.printed(a), self.printed(b)
        return ours is not None and theirs is not None and same_text(ours, theirs, within)

    def payload(self, a: ComparedRun, b: ComparedRun) -> str | None:
        """Both as the arguments of a call; None where they cannot be sent, being too long or not kept."""
        ours, theirs = self._text_of(a), self._text_of(b)
        if ours is None or theirs is None:
            return None
        text = f"[{ours},{theirs}]"
        return text if len(text.encode()) <= PAYLOAD_MAX else None

    def _text_of(self, run: ComparedRun) -> str | None:
        """What it returned, or else what it printed. Encoded values are JSON, so a list of two is one, too."""
        if run.result is not None or run.result_artifact is not None or run.printed is None:
            return run.result
        text = self.printed(run)
        return None if text is None else json.dumps(text)

    def printed(self, run: ComparedRun) -> str | None:
        return printed_text(self.tx, run, self.arrivals)


def _one_lies(a: ComparedRun, b: ComparedRun) -> bool:
    """A text has one length. Agents of the version before say none."""
    known = a.printed_chars is not None and b.printed_chars is not None
    return known and a.printed == b.printed and a.printed_chars != b.printed_chars


def pair_of(a: ComparedRun, b: ComparedRun) -> str:
    """Two results, whoever reported them: nothing is asked twice."""
    return f"{a.outcome[:_NAME]} {b.outcome[:_NAME]}"


# results that were believed, and those of hub jobs that check them


def of_accepted(
    tx: Tx, snapshot: Snapshot, job: JobRow, *, words: Sequence[tuple[JobRow, AttemptRow]]
) -> Sequence[int | str] | None:
    """The classes of results that jobs have already, each with its attempt; None where only the function could tell.

    `job`: the one whose submitter wished how.
    """
    if job.compare is None:
        return _name(tx, snapshot, [attempt for _, attempt in words])
    files = artifact_rows.outputs_of(tx.connection, [word.id for word, _ in words])
    runs = [_load_accepted(tx, word, attempt, files=files.get(word.id, [])) for word, attempt in words]
    kinds = Comparer(snapshot=snapshot, tx=tx, wish=wish_of(job)).classes(runs)
    return kinds if isinstance(kinds, list) else None


def _name(tx: Tx, snapshot: Snapshot, attempts: Sequence[AttemptRow]) -> list[str]:
    """By what they came to, and by how long that is where all of them say so."""
    counted = all(attempt.printed_chars is not None for attempt in attempts)
    names = [f"{attempt.outcome} {attempt.printed_chars if counted else ''}" for attempt in attempts]
    for place in false_texts(tx, snapshot, [PrintedRun(**printed_fields(attempt)) for attempt in attempts]):
        names[place] += attempts[place].id  # like no other
    return names


def _load_accepted(tx: Tx, job: JobRow, attempt: AttemptRow, *, files: Sequence[OutputRow]) -> ComparedRun:
    full = job_rows.get_job_full(tx.connection, job.id)
    assert full is not None
    return ComparedRun(
        **printed_fields(attempt),
        outcome=attempt.outcome or "",
        exit_code=full.exit_code,
        result=full.result,
        result_artifact=full.result_artifact,
        files={file.name: file.digest for file in files},
    )
