"""Comparisons by a function of the submitter's, which a hub job runs: asking, and continuing with the answer.

Until the answer arrives the job waits, and nobody may run it (`jobs.comparing`). If the call fails, ends too late, or cannot
be paid for, the two results count as different.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from computepool.core.errors import InsufficientCredits
from computepool.core.jobs.lifecycle import JobKind, JobState
from computepool.core.money.pricing import charge_of
from computepool.core.trust import verification as rules
from computepool.core.trust.verification import Decision, Result, Ruling, parse
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.comparison import Comparison
from computepool.hub.jobs.rows import FullJobRow, JobRow
from computepool.hub.jobs.transactions import JobTx
from computepool.hub.settlement import hub_jobs, result_rows
from computepool.hub.settlement.hub_jobs import Work
from computepool.hub.settlement.runs import Run, waiting_runs
from computepool.hub.settlement.verification import comparators, verification
from computepool.hub.settlement.verification.comparators import Comparer

KIND = "compare"
#: Encoded return values that mean yes: Python's True, and NumPy's.
_YES = frozenset({"true", '{"$scalar":{"dtype":"|b1","data":"AQ=="}}'})


def decide(
    tx: JobTx, job: JobRow, reported: Sequence[Run], *, how: Comparison | None = None, may_ask: bool = True
) -> tuple[Decision, dict[str, Any]]:
    """The decision that follows from the runs, in their order; and new columns of the job's row, if it goes on.

    `may_ask`: nobody runs the job now, and no comparison is running. Otherwise open questions wait for the next result.
    """
    how = how or Comparison.of(job)
    changes: dict[str, Any] = {}
    while True:
        comparer = Comparer(tx=tx, how=how)
        kinds = comparer.classes(reported)
        if isinstance(kinds, list):
            found = [Result(kind=kind, streak=run.streak) for kind, run in zip(kinds, reported, strict=True)]
            decision = rules.judge(parse(job.verify), found)
            if decision.ruling is Ruling.MORE and may_ask and verification.is_tied(tx, job, reported):
                decision = verification.end_tie(tx, job, reported)
            return decision, changes
        if not may_ask:
            return Decision(ruling=Ruling.MORE), changes
        a, b = (reported[place] for place in kinds)
        # Nobody is asked about a result of their own, or about one that competes with it.
        owners = {run.bill.owner_id for run in reported}
        hub_job_id = _ask(tx, job, comparer, pair=(a, b), avoid_owners=owners)
        if hub_job_id is not None:
            waiting = replace(how, pair=comparators.pair_of(a, b))
            return Decision(ruling=Ruling.MORE), {"compare": waiting.row(), "comparing": hub_job_id}
        how = how.with_answer(comparators.pair_of(a, b), same=False)
        changes = {"compare": how.row()}


def _ask(tx: JobTx, job: JobRow, comparer: Comparer, *, pair: tuple[Run, Run], avoid_owners: set[str]) -> str | None:
    """The id of the hub job; None if the submitter cannot pay for it, or has removed the function."""
    how, payload = comparer.how, comparer.payload(*pair)
    assert payload is not None
    assert how.function is not None
    work = Work(
        spec_digest=how.function,
        payload=b64encode(payload.encode()).decode(),
        name=KIND,
        kind=JobKind.FUNCTION.value,
        longest_ms=how.longest_ms,
        hold=charge_of(job.ceiling, how.longest_ms),
        ceiling=job.ceiling,
    )
    try:
        return hub_jobs.start(
            tx,
            job,
            kind=KIND,
            number=len(how.answers) + 1,
            payer=job.account_id,
            avoid_owners=avoid_owners,
            ttl_ms=round(tx.snapshot.settings.verify_wait_s * 1000),
            work=work,
        )
    except InsufficientCredits:
        return None


def on_ended(tx: JobTx, hub_job: FullJobRow) -> None:
    """The call has ended, in whatever way: its job goes on."""
    _, job_id, _ = hub_jobs.parts(hub_job.hub_job)
    job = job_rows.lock_jobs(tx, [job_id]).get(job_id)
    if job is None or job.comparing != hub_job.id or job.state != JobState.QUEUED:
        return  # the job was cancelled, or ended, during the call
    same = hub_job.state == JobState.SUCCEEDED and hub_job.result in _YES
    before = Comparison.of(job)
    how = before.with_answer(before.pair, same)
    reported = waiting_runs(tx, job)
    decision, changes = decide(tx, job, reported, how=how)
    if decision.ruling is Ruling.MORE:
        result_rows.resume(tx, job.id, **{"compare": how.row(), "comparing": None} | changes)
        tx.memory.requeued.append(job.id)
        tx.touch("queue", f"job:{job.id}")
    elif decision.ruling is Ruling.DIFFER and parse(job.verify).strict:
        verification.give_up(tx, job, runs=len(reported), actor="hub")
    else:
        verification.conclude(tx, job, reported, decision=decision, actor="hub")
