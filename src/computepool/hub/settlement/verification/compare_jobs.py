"""Comparisons by a function of the submitter's, which runs on a node as jobs do: asking, and going on with the answer.

Until the answer is there the job waits and nobody may run it (`jobs.comparing`). A call that fails, ends too late or
cannot be paid for says that the two results are different.
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
from computepool.hub.db.session import Tx
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.comparison import Comparison, wish_of
from computepool.hub.jobs.rows import FullJobRow, JobRow
from computepool.hub.jobs.running.logs import Arrivals
from computepool.hub.jobs.transitions import Effects
from computepool.hub.settlement import hub_jobs, result_rows
from computepool.hub.settlement.hub_jobs import Work
from computepool.hub.settlement.verification import comparators, verification
from computepool.hub.settlement.verification.comparators import Comparer
from computepool.hub.settlement.verification.verification import ReportedRun
from computepool.hub.snapshot import Snapshot

KIND = "compare"
#: What functions return that mean yes: Python's True, and NumPy's.
_YES = frozenset({"true", '{"$scalar":{"dtype":"|b1","data":"AQ=="}}'})


def decide(
    tx: Tx,
    snapshot: Snapshot,
    job: JobRow,
    *,
    runs: Sequence[ReportedRun],
    effects: Effects,
    wish: Comparison | None = None,
    arrivals: Arrivals | None = None,
    may_ask: bool = True,
) -> tuple[Decision, dict[str, Any]]:
    """What follows from the runs, in their order; and what changes in the job's row while it goes on.

    `may_ask`: nobody runs the job now, and nobody is being asked. Else what is open is asked after the next result.
    """
    wish = wish or wish_of(job)
    changes: dict[str, Any] = {}
    while True:
        comparer = Comparer(snapshot=snapshot, tx=tx, wish=wish, arrivals=arrivals)
        kinds = comparer.classes(runs)
        if isinstance(kinds, list):
            found = [Result(kind=kind, streak=run.streak) for kind, run in zip(kinds, runs, strict=True)]
            decision = rules.judge(parse(job.verify), found)
            if (
                decision.ruling is Ruling.MORE
                and may_ask
                and verification.is_tied(tx, snapshot, job, runs=runs)
            ):
                decision = verification.end_tie(
                    tx, snapshot, job, runs=runs, arrivals=arrivals, effects=effects
                )
            return decision, changes
        if not may_ask:
            return Decision(ruling=Ruling.MORE), changes
        a, b = (runs[place] for place in kinds)
        before = _ask(tx, snapshot, job, comparer=comparer, pair=(a, b), runs=runs, effects=effects)
        if before is not None:
            waiting = replace(wish, pair=comparators.pair_of(a, b))
            return Decision(ruling=Ruling.MORE), {"compare": waiting.row(), "comparing": before}
        wish = wish.answered(comparators.pair_of(a, b), same=False)
        changes = {"compare": wish.row()}


def _ask(
    tx: Tx,
    snapshot: Snapshot,
    job: JobRow,
    *,
    comparer: Comparer,
    pair: tuple[ReportedRun, ReportedRun],
    runs: Sequence[ReportedRun],
    effects: Effects,
) -> str | None:
    """The hub job; None where the submitter cannot pay for it, or has removed the function."""
    wish, payload = comparer.wish, comparer.payload(*pair)
    assert payload is not None
    assert wish.function is not None
    work = Work(
        spec_digest=wish.function,
        payload=b64encode(payload.encode()).decode(),
        name=KIND,
        kind=JobKind.FUNCTION.value,
        longest_ms=wish.longest_ms,
        hold=charge_of(job.ceiling, wish.longest_ms),
        ceiling=job.ceiling,
    )
    # Nobody is asked about his own word, nor about one that stands beside it.
    owners = {run.bill.owner_id for run in runs}
    try:
        return hub_jobs.start(
            tx,
            snapshot,
            job,
            kind=KIND,
            number=len(wish.answers) + 1,
            payer=job.account_id,
            avoid_owners=owners,
            ttl_ms=round(snapshot.settings.verify_wait_s * 1000),
            effects=effects,
            work=work,
        )
    except InsufficientCredits:
        return None


def on_answered(tx: Tx, snapshot: Snapshot, hub_job: FullJobRow, *, effects: Effects) -> None:
    """The call is over, however it ended: the job goes on, in the same transaction."""
    _, job_id, _ = hub_jobs.parts(hub_job.hub_job)
    job = job_rows.lock_jobs(tx, [job_id]).get(job_id)
    if job is None or job.comparing != hub_job.id or job.state != JobState.QUEUED:
        return  # it was cancelled, or ended, while this was asked
    same = hub_job.state == JobState.SUCCEEDED and hub_job.result in _YES
    before = wish_of(job)
    wish = before.answered(before.pair, same)
    runs = verification.waiting(tx, job)
    decision, changes = decide(tx, snapshot, job, runs=runs, effects=effects, wish=wish)
    if decision.ruling is Ruling.MORE:
        result_rows.go_on(tx, job.id, **{"compare": wish.row(), "comparing": None} | changes)
        effects.requeued.append(job.id)
        tx.touch("queue", f"job:{job.id}")
    elif decision.ruling is Ruling.DIFFER and parse(job.verify).strict:
        verification.give_up(tx, job, runs=runs, actor="hub", effects=effects)
    else:
        verification.conclude(tx, snapshot, job, runs=runs, decision=decision, actor="hub", effects=effects)
