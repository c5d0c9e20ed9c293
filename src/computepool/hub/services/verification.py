"""Results that are compared before they are believed: who has to confirm them, what follows, who is paid for it.

A job that is to be checked goes back to the queue with its result kept on the attempt's row, and may then be placed
only on the node of an owner who has not reported one. Whether it is checked is decided when the result is there, by a
draw that no node can foresee: there is nothing a node could know, or wait for, before it answers honestly.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from computepool.core import verification
from computepool.core.closeness import PRINTED_MAX
from computepool.core.gates import could_run
from computepool.core.jobs import AttemptState, JobState, Reason
from computepool.core.pricing import charge_of
from computepool.core.reputation import REFUTED_ACTION, VERIFIED_ACTION
from computepool.core.resources import Shape
from computepool.core.verification import PPM, Decision, Mode, Policy, Ruling, parse
from computepool.hub.registry import LiveAttempt
from computepool.hub.services import checkpoints, holds, lifecycle
from computepool.hub.services.checkpoints import Contribution
from computepool.hub.services.context import Hub
from computepool.hub.services.holds import Bill
from computepool.hub.services.lifecycle import Effects
from computepool.hub.store import artifacts as artifact_rows
from computepool.hub.store import checkpoints as checkpoint_rows
from computepool.hub.store import jobs as job_rows
from computepool.hub.store import records, results
from computepool.hub.store.session import AnyRow, Tx
from computepool.protocol.nodes import Report

_BATCH = 500
#: By attempt: how it ended, and what is paid for it.
Ends = dict[str, tuple[AttemptState, int | None]]


class Printed(Protocol):
    attempt_id: str
    printed: str | None


class Verdict(StrEnum):
    """Why a result is believed."""

    UNCHECKED = "unchecked"  #: nobody asked for a check, or none was drawn
    OWN = "own"  #: the submitter's own node
    CONFIRMED = "confirmed"  #: several owners' nodes came to the same
    ALONE = "alone"  #: it was to be checked, and there was nobody who could
    VARIES = "varies"  #: every run came to something else
    REFUTED = "refuted"  #: it was believed unchecked, and proven wrong afterwards (rechecks.py)


@dataclass(slots=True, kw_only=True)
class Run:
    """One reported result, with all that is needed to make it the job's."""

    attempt_id: str
    number: int
    node_id: str
    bill: Bill
    outcome: str
    streak: int
    started_ms: int
    finished_ms: int
    exit_code: int | None
    result: str | None
    result_artifact: str | None
    printed: str | None  #: digest of the standard output, of a script or command
    files: dict[str, str]  #: name to digest
    items_failed: int = 0
    waited: bool = True  #: it is on its attempt's row already; else the caller writes that
    parts: tuple[Contribution, ...] = ()  #: by the attempts that it went on from, oldest first

    @property
    def bills(self) -> list[Bill]:
        """The one that reported the result comes first."""
        return [self.bill, *(part.bill for part in self.parts)]

    @property
    def cost(self) -> int:
        return sum(bill.charge for bill in self.bills)

    @property
    def owners(self) -> set[str]:
        return {bill.owner_id for bill in self.bills}

    def is_one_with(self, other: Run) -> bool:
        """They are no two opinions: an owner has a hand in both, or they went on from the same work."""
        mine, theirs = ({run.number, *(part.number for part in run.parts)} for run in (self, other))
        return bool(self.owners & other.owners) or not mine.isdisjoint(theirs)

    @property
    def is_its_own(self) -> bool:
        """No other owner's work is in it, so that what is wrong with it is its node's doing."""
        return len(self.owners) == 1

    def accepted_row(self, job: AnyRow, *, why: Reason, verdict: Verdict, cost: int) -> dict[str, Any]:
        return {
            "job": job.id,
            "why": why.value,
            "number": self.number,
            "node": self.node_id,
            "started": self.started_ms,
            "finished": self.finished_ms,
            "code": self.exit_code,
            "value": self.result,
            "artifact": self.result_artifact,
            "cost": cost,
            "believed": verdict.value,
            "raised": min(self.items_failed, job.bundled) if job.bundled > 1 else 0,
        }

    def references(self, job: AnyRow) -> list[dict[str, Any]]:
        """What the submitter may read from now on."""
        files = [("output", name, digest) for name, digest in self.files.items()]
        if self.result_artifact is not None:
            files.append(("result", "result", self.result_artifact))
        return [
            {"digest": digest, "account_id": job.account_id, "job_id": job.id, "role": role, "name": name}
            for role, name, digest in files
        ]


def run_of(report: Report, attempt: AnyRow, *, bill: Bill, times: Mapping[str, Any], streak: int) -> Run:
    return Run(
        attempt_id=attempt.id,
        number=attempt.number,
        node_id=attempt.node_id,
        bill=bill,
        outcome=report.result_digest(),
        streak=streak,
        started_ms=times["started"],
        finished_ms=times["finished"],
        exit_code=report.exit_code,
        result=report.result,
        result_artifact=report.result_artifact,
        printed=report.printed,
        files={output.name: output.digest for output in report.outputs},
        items_failed=report.items_failed,
        waited=False,
    )


def _run_from(row: AnyRow) -> Run:
    return Run(
        attempt_id=row.id,
        number=row.number,
        node_id=row.node_id,
        bill=Bill(
            owner_id=row.owner_id,
            price_version=row.price_version,
            billed_ms=row.billed_ms or 0,
            charge=charge_of(row.price, row.billed_ms or 0),
        ),
        outcome=row.outcome,
        streak=row.streak,
        started_ms=row.started_at_ms,
        finished_ms=row.finished_at_ms,
        exit_code=row.exit_code,
        result=row.result,
        result_artifact=row.result_artifact,
        printed=row.printed,
        files=json.loads(row.outputs or "{}"),
        items_failed=row.items_failed,
    )


def waiting(tx: Tx, job: AnyRow) -> list[Run]:
    runs = []
    for row in results.waiting(tx.connection, job.id):
        run = _run_from(row)
        run.parts = checkpoints.contributions(tx, job, row)
        runs.append(run)
    return runs


def pay_parts(tx: Tx, job: AnyRow, paid: Sequence[Run]) -> None:
    """The result counts, so what it went on from is paid, too; and nobody needs the checkpoint any more."""
    checkpoint_rows.pay(tx, [part.row() for run in paid for part in run.parts])
    checkpoints.drop(tx, job)


def printed_text(tx: Tx, run: Printed, unstored: Mapping[str, str]) -> str | None:
    """The whole of what it printed, if all of it was kept, and nothing else. `unstored`: what came with the report."""
    if run.printed is None:
        return None
    job_id = run.attempt_id.rpartition("-")[0]
    kept = records.stdout_of(tx.connection, job_id=job_id, attempt_id=run.attempt_id, chars_max=PRINTED_MAX)
    text = kept + unstored.get(run.attempt_id, "")
    return text if hashlib.sha256(text.encode()).hexdigest() == run.printed else None


# whether to check


@dataclass(frozen=True, slots=True)
class Checks:
    """What was decided about a batch of reports before anything was read."""

    streak: int  #: of the node
    drawn: frozenset[str]  #: attempts whose results are checked, should their submitters want it


def draw(hub: Hub, node_id: str, attempt_ids: Iterable[str]) -> Checks:
    streak, session = hub.registry.fleet.streak(node_id), hub.registry.get(node_id)
    held = {} if session is None else session.attempts
    chances: dict[str, int] = {}  # the attempts of a lane are alike
    drawn = []
    for id_ in attempt_ids:
        attempt = held.get(id_)
        lane = None if attempt is None else attempt.lane
        key = "" if lane is None else lane.id
        if key not in chances:
            chances[key] = _chance(hub, attempt, node_id, streak=streak)
        if chances[key] and _draw(hub, id_) < chances[key]:
            drawn.append(id_)
    return Checks(streak, frozenset(drawn))


def _chance(
    hub: Hub, held: LiveAttempt | None, node_id: str, *, streak: int, owners: frozenset[str] = frozenset()
) -> int:
    """None where it would be in vain. Where the job is not known here any more, somebody may be able to check it.

    `owners`: of all nodes that had a hand in it, where there are several.
    """
    row, fleet = hub.registry.fleet.row_of(node_id), hub.registry.fleet
    if held is None or row is None:
        return verification.check_chance(streak)
    shape, owners = held.lane.shape, owners or frozenset({held.lane.owner})
    if owners == {shape.account} or not _others_able(hub, _as_submitted(hub, held), owners):
        return 0
    return verification.check_chance(streak, value=shape.value, cap=fleet.node_at(row).cap)


def _as_submitted(hub: Hub, held: LiveAttempt) -> Shape:
    """A job that moved is for one host, but only this run of it: a node that says so must not keep others from checking."""
    shape, known = held.lane.shape, hub.specs.peek(held.grant.spec)
    if not shape.requirements.node or known is None:
        return shape
    return replace(shape, requirements=replace(shape.requirements, node=known.requirements.node))


def drawn_with(hub: Hub, run: Run) -> bool:
    """Whether a result is checked that went on from other nodes' work: as often as the least known of them deserves."""
    session = hub.registry.get(run.node_id)
    held = None if session is None else session.attempts.get(run.attempt_id)
    streak = min(hub.registry.fleet.streak(part.node_id) for part in run.parts)
    chance = _chance(hub, held, run.node_id, streak=streak, owners=frozenset(run.owners))
    return _draw(hub, run.attempt_id) < chance


def _draw(hub: Hub, attempt_id: str) -> int:
    """Even, the same whenever it is asked, and known to this pool's hubs alone."""
    return int(hub.secrets.digest(f"check:{attempt_id}")[:16], 16) % PPM


def _others_able(hub: Hub, shape: Shape, owners: frozenset[str]) -> bool:
    others = Shape(
        shape.requirements,
        shape.account,
        ceiling=shape.ceiling,
        avoid_owners=shape.avoid_owners | owners,
    )
    fleet, rows = hub.registry.fleet, slice(0, hub.registry.fleet.rows)
    return bool((could_run(fleet, others, rows) & fleet.table.available[rows]).any())


def needs_no_other(hub: Hub, job: AnyRow, run: Run, *, drawn: bool) -> Verdict | None:
    """Why a first result is believed at once; None: it is not."""
    mode = parse(job.verify).mode
    if mode is Mode.NONE:
        return Verdict.UNCHECKED
    if mode is not Mode.ADAPTIVE:
        return None
    if run.owners == {job.account_id}:
        return Verdict.OWN
    drawn = drawn or (bool(run.parts) and drawn_with(hub, run))
    # What varied bit by bit may still be the same in the way its submitter compares it now.
    varies = job.compare is None and (job.account_id, job.spec_digest) in hub.varying
    return None if drawn and not varies else Verdict.UNCHECKED


# what follows from several


def keep(
    tx: Tx, job: AnyRow, run: Run, *, actor: str, newest: bool, effects: Effects, **changes: Any
) -> None:
    """The result stays on its attempt's row, and the job waits for another owner's node, or for a comparison."""
    owners = ",".join(sorted({*filter(None, job.avoid_owners.split(",")), *run.owners}))
    counted = {"results": job.results + 1, "avoid_owners": owners}
    _keep_files(tx, job, run)
    if not newest:  # a late one: another attempt has the job, or it waits already
        checkpoints.drop(tx, job)
        results.count(tx, job.id, **counted)
        return
    wait_for_another(tx, job, attempt_no=run.number, actor=actor, effects=effects, **counted, **changes)


def wait_for_another(
    tx: Tx, job: AnyRow, *, attempt_no: int, actor: str, effects: Effects, **changes: Any
) -> None:
    checkpoints.drop(tx, job)  # it was of the run that reported; another one starts from nothing
    lifecycle.requeue(
        tx,
        job,
        attempt_no=attempt_no,
        reason=Reason.VERIFYING,
        actor=actor,
        effects=effects,
        ready_at_ms=tx.now_ms,
        avoid_node="",
        pinned="",
        **changes,
    )


def _keep_files(tx: Tx, job: AnyRow, run: Run) -> None:
    """Nobody may read them yet, but they must still be there when somebody may."""
    rows = [row | {"account_id": run.node_id, "role": "pending"} for row in run.references(job)]
    artifact_rows.refer(tx, rows)


def conclude(
    hub: Hub,
    tx: Tx,
    job: AnyRow,
    *,
    runs: Sequence[Run],
    decision: Decision,
    unstored: Mapping[str, str] | None = None,
    why: Reason = Reason.COMPLETED,
    actor: str,
    effects: Effects,
) -> Ends:
    """The first of the runs that count becomes the job's result, and they are paid for."""
    # Where every run came to something else nobody is to blame: the first counts, and as many are paid as were agreed on.
    counting = _whole_first(tx, runs, decision.agreeing or tuple(range(len(runs))), unstored=unstored)
    verdict = _verdict_of(decision)
    paid = [runs[place] for place in counting][: job.runs]
    ends: Ends = {run.attempt_id: (AttemptState.SUCCEEDED, None) for run in runs}
    ends |= {run.attempt_id: (AttemptState.SUCCEEDED, run.bill.charge) for run in paid}
    ends |= {runs[place].attempt_id: (_wrong_state(runs[place]), None) for place in decision.wrong}
    chosen, cost = paid[0], sum(run.cost for run in paid)
    if verdict is Verdict.CONFIRMED:
        for place in decision.agreeing:
            _say(tx, job, runs[place], action=VERIFIED_ACTION)
    for place in decision.wrong:
        if runs[place].is_its_own:
            _say(tx, job, runs[place], action=REFUTED_ACTION)
            effects.struck.append(runs[place].node_id)
    if verdict is Verdict.VARIES:
        _mark_varying(hub, tx, job)
    say_succeeded(tx, job, chosen, actor=actor, why=why)
    holds.settle(hub, tx, job, bills=[bill for run in paid for bill in run.bills], ref=chosen.attempt_id)
    pay_parts(tx, job, paid)
    job_rows.accept(tx, [chosen.accepted_row(job, why=why, verdict=verdict, cost=cost)])
    artifact_rows.refer(tx, chosen.references(job))
    results.conclude(
        tx,
        [
            {
                "attempt": run.attempt_id,
                "new_state": ends[run.attempt_id][0].value,
                "cost": ends[run.attempt_id][1],
            }
            for run in runs
            if run.waited
        ],
    )
    effects.finished.append(job.id)
    lifecycle.release_dependents(tx, [job.id], effects)
    return ends


def _wrong_state(run: Run) -> AttemptState:
    """Where several owners' nodes made it, nobody can tell whose work was wrong: nobody is paid, and nobody blamed."""
    return AttemptState.REFUTED if run.is_its_own else AttemptState.SUPERSEDED


def _whole_first(
    tx: Tx, runs: Sequence[Run], counting: Sequence[int], *, unstored: Mapping[str, str] | None
) -> list[int]:
    """First those of whose output the hub has the very text that was compared: else a node could vouch for one text
    and deliver another. Output that was too long, or lost on its way, does not make a result wrong."""

    def text_differs(place: int) -> bool:
        run = runs[place]
        return run.printed is not None and printed_text(tx, run, unstored or {}) is None

    return sorted(counting, key=text_differs) if len(counting) > 1 else list(counting)


def _verdict_of(decision: Decision) -> Verdict:
    if decision.ruling is Ruling.DIFFER:
        return Verdict.VARIES
    return Verdict.CONFIRMED if len(decision.agreeing) > 1 else Verdict.ALONE


def say_succeeded(tx: Tx, job: AnyRow, chosen: Run, *, actor: str, why: Reason) -> None:
    said: dict[str, Any] = {"actor": actor, "attempt": chosen.attempt_id, "node": chosen.node_id}
    before = JobState(job.state)
    if before is JobState.LEASED:
        lifecycle.job_event(tx, job, JobState.RUNNING, reason=Reason.STARTED, **said)
        before = JobState.RUNNING
    lifecycle.job_event(tx, job, JobState.SUCCEEDED, reason=why, before=before, **said)


def _say(tx: Tx, job: AnyRow, run: Run, *, action: str) -> None:
    tx.emit(
        actor="hub",
        action=action,
        account_id=job.account_id,
        job_id=job.id,
        attempt_id=run.attempt_id,
        node_id=run.node_id,
        before=AttemptState.SUCCEEDED.value,
        after=(AttemptState.REFUTED if action == REFUTED_ACTION else AttemptState.SUCCEEDED).value,
    )


def _mark_varying(hub: Hub, tx: Tx, job: AnyRow) -> None:
    """For this submitter alone: another may run the same program on what makes it vary."""
    results.mark_varying(tx, account_id=job.account_id, spec_digest=job.spec_digest)
    hub.varying.add((job.account_id, job.spec_digest))


def give_up(hub: Hub, tx: Tx, job: AnyRow, *, runs: Sequence[Run], actor: str, effects: Effects) -> None:
    """Every run came to something else. Nobody is to blame, but who insists on agreement gets no result."""
    _mark_varying(hub, tx, job)
    error = f"{len(runs)} runs on different owners' nodes came to different results."
    reason = Reason.RESULTS_DIFFER
    lifecycle.finish(tx, job, JobState.FAILED, actor=actor, reason=reason, effects=effects, error=error)


# when nobody comes


async def accept_unconfirmed(hub: Hub) -> Effects:
    """A result that could have been checked and was not, because no other owner's node took it, is believed after a while."""
    before_ms = hub.now_ms() - round(hub.settings.verify_wait_s * 1000)
    found = await hub.store.read(
        lambda connection: results.unconfirmed(connection, before_ms=before_ms, limit=_BATCH)
    )
    if not found:
        return Effects()
    return await hub.store.write(lambda tx: _accept_alone(hub, tx, found, before_ms=before_ms))


def _accept_alone(hub: Hub, tx: Tx, job_ids: list[str], *, before_ms: int) -> Effects:
    effects = Effects()
    for job in job_rows.lock_jobs(tx, job_ids).values():
        if job.state != JobState.QUEUED or job.queued_at_ms > before_ms:
            continue  # somebody took it meanwhile
        believe_first(hub, tx, job, effects=effects)
    return effects


def believe_first(hub: Hub, tx: Tx, job: AnyRow, *, effects: Effects) -> bool:
    """Whether there was a result to believe."""
    runs = waiting(tx, job)
    if not runs or parse(job.verify).strict:
        return False
    alone = Decision(ruling=Ruling.ACCEPT, agreeing=(0,))
    conclude(hub, tx, job, runs=runs, decision=alone, actor="hub", effects=effects)
    return True


async def load_varying(hub: Hub) -> None:
    hub.varying |= await hub.store.read(results.varying)


def policy_of(hub: Hub, verify: str | None, confidence: float | None) -> Policy:
    """What a submission asks for, or else what the operator wants."""
    if confidence is not None:
        return verification.with_confidence(confidence)
    return parse(verify or hub.settings.verify)
