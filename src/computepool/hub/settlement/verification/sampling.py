"""Sampling of results to check: drawn when they are there, by a chance that no node can foresee or change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from computepool.core.resources import Shape
from computepool.core.trust import verification as rules
from computepool.core.trust.verification import PPM, First, Mode, parse
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.jobs.rows import JobRow
from computepool.hub.memory.registry import LiveAttempt
from computepool.hub.nodes import known_nodes
from computepool.hub.settlement import fair_time
from computepool.hub.settlement.verification import checkers
from computepool.hub.settlement.verification.verification import ReportedRun, VerificationVerdict

_FIRST = {
    First.UNCHECKED: VerificationVerdict.UNCHECKED,
    First.WAIT: None,
    First.ALONE: VerificationVerdict.ALONE,
}


@dataclass(frozen=True, slots=True)
class Checks:
    """What was decided about a batch of reports before anything was read."""

    streak: int  #: of the node
    drawn: frozenset[str]  #: attempts whose results are due for a check, should their submitters want it
    alone: frozenset[str] = frozenset()  #: of these, those that nobody else could check
    unknown: frozenset[str] = frozenset()  #: of these, those that this hub does not know as running


def draw(hub: Hub, node_id: str, attempt_ids: Iterable[str]) -> Checks:
    streak, session = hub.registry.fleet.streak(node_id), hub.registry.get(node_id)
    held = {} if session is None else session.attempts
    chances: dict[str, int] = {}  # the attempts of a lane are alike
    others: dict[str, bool] = {}
    drawn, alone, unknown = [], [], []
    for id_ in attempt_ids:
        attempt = held.get(id_)
        lane = None if attempt is None else attempt.lane
        key = "" if lane is None else lane.id
        if key not in chances:
            chances[key] = _chance(hub, attempt, node_id, streak=streak)
        if not chances[key] or _draw(hub, id_) >= chances[key]:
            continue
        drawn.append(id_)
        if (
            attempt is None
        ):  # its lease ended, or the hub restarted: the job's row tells who else could run it
            unknown.append(id_)
            continue
        if key not in others:
            others[key] = _others(hub, attempt)
        if not others[key]:
            alone.append(id_)
    return Checks(streak, frozenset(drawn), frozenset(alone), frozenset(unknown))


def _chance(
    hub: Hub, held: LiveAttempt | None, node_id: str, *, streak: int, owners: frozenset[str] = frozenset()
) -> int:
    """None for the submitter's own nodes. Whoever is free now has no part in it.

    `owners`: of all nodes that had a hand in it, where there are several.
    """
    row, fleet = hub.registry.fleet.row_of(node_id), hub.registry.fleet
    if held is None or row is None:
        return rules.check_chance(streak)
    shape, owners = held.lane.shape, owners or frozenset({held.lane.owner})
    if owners == {shape.account}:
        return 0
    return rules.check_chance(streak, value=shape.value, cap=fleet.node_at(row).cap)


def _as_submitted(hub: Hub, held: LiveAttempt) -> Shape:
    """A job that moved is for one host, but only this run of it: a node that says so must not keep others from checking."""
    shape, known = held.lane.shape, hub.specs.peek(held.grant.spec)
    if not shape.requirements.node or known is None:
        return shape
    return replace(shape, requirements=replace(shape.requirements, node=known.requirements.node))


def _others(hub: Hub, held: LiveAttempt) -> bool:
    """Whether another owner's node could check it."""
    return known_nodes.could_others(hub, _as_submitted(hub, held), frozenset({held.lane.owner}))


def _held_attempt(hub: Hub, run: ReportedRun) -> LiveAttempt | None:
    session = hub.registry.get(run.node_id)
    return None if session is None else session.attempts.get(run.attempt_id)


def _drawn_with(hub: Hub, run: ReportedRun) -> bool:
    """Whether a result is checked that went on from other nodes' work: as often as the least known of them deserves."""
    held = _held_attempt(hub, run)
    streak = min(hub.registry.fleet.streak(part.node_id) for part in run.parts)
    chance = _chance(hub, held, run.node_id, streak=streak, owners=frozenset(run.owners))
    return _draw(hub, run.attempt_id) < chance


def _draw(hub: Hub, attempt_id: str) -> int:
    """Even, the same whenever it is asked, and known to this pool's hubs alone."""
    return int(hub.secrets.digest(f"check:{attempt_id}")[:16], 16) % PPM


def needs_no_other(
    hub: Hub, tx: Tx, job: JobRow, *, run: ReportedRun, checks: Checks
) -> VerificationVerdict | None:
    """Why a first result is believed at once; None: it is not."""
    mode = parse(job.verify).mode
    if mode is Mode.NONE:
        return VerificationVerdict.UNCHECKED
    if mode is not Mode.ADAPTIVE:
        return None
    if run.owners == {job.account_id}:
        return VerificationVerdict.OWN
    # What varied bit by bit may still be the same in the way its submitter compares it now.
    if job.compare is None and (job.account_id, job.spec_digest) in hub.varying:
        return VerificationVerdict.UNCHECKED
    drawn = run.attempt_id in checks.drawn
    if not drawn:
        drawn = _drawn_with(hub, run) if run.parts else fair_time.is_long(hub, job, run)
    others = drawn and _could_be_checked(hub, tx, job, run=run, checks=checks)
    return _FIRST[rules.judge_first(drawn=drawn, others=others)]


def _could_be_checked(hub: Hub, tx: Tx, job: JobRow, *, run: ReportedRun, checks: Checks) -> bool:
    """Whether another owner could, whose word would decide something."""
    if run.attempt_id in checks.alone:
        return False
    tied = checkers.tied_owners(hub, job.account_id, job.spec_digest)
    if run.attempt_id in checks.drawn - checks.unknown and not run.parts and not tied:
        return True
    return checkers.could_check(hub, tx, job, owners=frozenset(run.owners) | tied)
