"""Sampling of results to check: drawn when they are there, by a chance that no node can foresee or change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from computepool.core.resources import Shape
from computepool.core.trust import verification as rules
from computepool.core.trust.verification import PPM, First, Mode, parse
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.fleet.registry import LiveAttempt
from computepool.hub.jobs.rows import JobRow
from computepool.hub.nodes.known_nodes import AbleOwners
from computepool.hub.settlement import fair_time
from computepool.hub.settlement.printed_output import is_cut
from computepool.hub.settlement.verification import checkers
from computepool.hub.settlement.verification.verification import ReportedRun, VerificationVerdict
from computepool.hub.snapshot import Question, Snapshot

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


@dataclass(frozen=True, slots=True)
class DrawnWith(Question[bool]):
    """Whether a result is checked that went on from other nodes' work: as often as the least known of them deserves."""

    attempt_id: str
    node_id: str
    before: frozenset[str]  #: the nodes whose work it went on from

    def answer(self, hub: Hub) -> bool:
        session = hub.nodes.registry.get(self.node_id)
        held = None if session is None else session.attempts.get(self.attempt_id)
        streak = min(map(hub.nodes.registry.fleet.streak, self.before))
        return _draw(hub, self.attempt_id) < _chance(hub, held, self.node_id, streak=streak)


def questions(hub: Hub, node_id: str, attempt_ids: Iterable[str]) -> set[AbleOwners]:
    """Those to expect: where a run is not the job's first, somebody may have to say who is right."""
    session = hub.nodes.registry.get(node_id)
    held = {} if session is None else session.attempts
    return {
        AbleOwners(known.requirements, attempt.grant.account_id, attempt.lane.shape.ceiling)
        for id_ in attempt_ids
        if (attempt := held.get(id_)) is not None
        and attempt.lane.shape.avoid_owners
        and (known := hub.jobs.specs.peek(attempt.grant.spec)) is not None
    }


def draw(hub: Hub, node_id: str, attempt_ids: Iterable[str]) -> Checks:
    streak, session = hub.nodes.registry.fleet.streak(node_id), hub.nodes.registry.get(node_id)
    held = {} if session is None else session.attempts
    chances: dict[str, int] = {}  # the attempts of a lane are alike
    others: dict[str, bool] = {}
    drawn, alone, unknown = [], [], []
    for id_ in attempt_ids:
        attempt = held.get(id_)
        lane = None if attempt is None else attempt.lane
        key = "" if lane is None else lane.id
        if key not in chances:
            # None for the submitter's own nodes.
            own = lane is not None and lane.owner == lane.shape.account
            chances[key] = 0 if own else _chance(hub, attempt, node_id, streak=streak)
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


def _chance(hub: Hub, held: LiveAttempt | None, node_id: str, *, streak: int) -> int:
    """Whoever is free now has no part in it."""
    row, fleet = hub.nodes.registry.fleet.row_of(node_id), hub.nodes.registry.fleet
    if held is None or row is None:
        return rules.check_chance(streak)
    return rules.check_chance(streak, value=held.lane.shape.value, cap=fleet.node_at(row).cap)


def _as_submitted(hub: Hub, held: LiveAttempt) -> Shape:
    """A job that moved is for one host, but only this run of it: a node that says so must not keep others from checking."""
    shape, known = held.lane.shape, hub.jobs.specs.peek(held.grant.spec)
    if not shape.requirements.node or known is None:
        return shape
    return replace(shape, requirements=replace(shape.requirements, node=known.requirements.node))


def _others(hub: Hub, held: LiveAttempt) -> bool:
    """Whether another owner's node could check it."""
    shape = _as_submitted(hub, held)
    able = AbleOwners(shape.requirements, shape.account, shape.ceiling).answer(hub)
    return not able <= shape.avoid_owners | {held.lane.owner}


def _draw(hub: Hub, attempt_id: str) -> int:
    """Even, the same whenever it is asked, and known to this pool's hubs alone."""
    return int(hub.identity.secrets.digest(f"check:{attempt_id}")[:16], 16) % PPM


def needs_no_other(
    tx: Tx, snapshot: Snapshot, job: JobRow, *, run: ReportedRun, checks: Checks
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
    if job.compare is None and (job.account_id, job.spec_digest) in snapshot.varying:
        return VerificationVerdict.UNCHECKED
    drawn = run.attempt_id in checks.drawn or is_cut(run) or fair_time.is_long(snapshot, job, run)
    if not drawn and (before := frozenset(part.node_id for part in run.parts)):
        drawn = snapshot.ask(DrawnWith(run.attempt_id, run.node_id, before))
    others = drawn and _could_be_checked(tx, snapshot, job, run=run, checks=checks)
    return _FIRST[rules.judge_first(drawn=drawn, others=others)]


def _could_be_checked(tx: Tx, snapshot: Snapshot, job: JobRow, *, run: ReportedRun, checks: Checks) -> bool:
    """Whether another owner could, whose word would decide something."""
    if run.attempt_id in checks.alone:
        return False
    most = snapshot.settings.verify_ties_max
    tied = snapshot.ties.owners((job.account_id, job.spec_digest), most=most)
    if run.attempt_id in checks.drawn - checks.unknown and not run.parts and not tied:
        return True
    return checkers.could_check(tx, snapshot, job, owners=frozenset(run.owners) | tied)
