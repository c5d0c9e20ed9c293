"""Sampling: which results are checked, drawn when they arrive with a chance that no node can foresee or influence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from computepool.core.money.pricing import PPM
from computepool.core.trust import verification as rules
from computepool.core.trust.verification import Mode, VerificationVerdict, parse
from computepool.hub.context import Hub
from computepool.hub.fleet.registry import LiveAttempt
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transactions import JobTx
from computepool.hub.nodes.known_nodes import AbleOwners
from computepool.hub.settlement import fair_time
from computepool.hub.settlement.printed_output import is_cut
from computepool.hub.settlement.runs import Run
from computepool.hub.settlement.verification.verification import could_check
from computepool.hub.snapshot import Question


@dataclass(frozen=True, slots=True)
class Checks:
    """What was decided about a batch of reports before its transaction."""

    streak: int  #: of the node
    drawn: frozenset[str]  #: attempts whose results are due for a check, if their submitters want it
    #: To expect in the transaction: who could run a job again whose result is due for a check, or that has results already.
    questions: frozenset[AbleOwners]


@dataclass(frozen=True, slots=True)
class DrawnWith(Question[bool]):
    """Whether to check a result that was resumed from other nodes' work: as often as the least known of them deserves."""

    attempt_id: str
    node_id: str
    before: frozenset[str]  #: the nodes whose work it resumed from

    def answer(self, hub: Hub) -> bool:
        held = _live_attempts(hub, self.node_id).get(self.attempt_id)
        streak = min(map(hub.nodes.registry.fleet.streak, self.before))
        return _draw(hub, self.attempt_id) < _chance(hub, held, self.node_id, streak=streak)


def _live_attempts(hub: Hub, node_id: str) -> dict[str, LiveAttempt]:
    session = hub.nodes.registry.get(node_id)
    return {} if session is None else session.attempts


def draw(hub: Hub, node_id: str, attempt_ids: Iterable[str]) -> Checks:
    streak, held = hub.nodes.registry.fleet.streak(node_id), _live_attempts(hub, node_id)
    chances: dict[str, int] = {}  #: by lane, because its attempts are alike
    drawn: set[str] = set()
    questions: set[AbleOwners] = set()
    for id_ in attempt_ids:
        attempt = held.get(id_)
        lane = None if attempt is None else attempt.lane
        key = "" if lane is None else lane.id
        if key not in chances:
            own = lane is not None and lane.owner == lane.shape.account
            chances[key] = 0 if own else _chance(hub, attempt, node_id, streak=streak)
        if chances[key] and _draw(hub, id_) < chances[key]:
            drawn.add(id_)
        if attempt is not None and (id_ in drawn or attempt.lane.shape.avoid_owners):
            known = hub.jobs.specs.peek(attempt.grant.spec)
            if known is not None:
                ceiling = attempt.lane.shape.ceiling
                questions.add(AbleOwners(known.requirements, attempt.grant.account_id, ceiling))
    return Checks(streak, frozenset(drawn), frozenset(questions))


def _chance(hub: Hub, held: LiveAttempt | None, node_id: str, *, streak: int) -> int:
    """It does not depend on which nodes are free now."""
    node = hub.nodes.registry.fleet.get(node_id)
    if held is None or node is None:
        return rules.check_chance(streak)
    return rules.check_chance(streak, value=held.lane.shape.value, cap=node.cap)


def _draw(hub: Hub, attempt_id: str) -> int:
    """Uniform, always the same for an attempt, and known only to this pool's hubs."""
    return int(hub.identity.secrets.digest(f"check:{attempt_id}")[:16], 16) % PPM


def judge_first(tx: JobTx, job: JobRow, run: Run, *, checks: Checks) -> VerificationVerdict | None:
    """Why a first result is believed at once; None if it is not."""
    mode = parse(job.verify).mode
    if mode is Mode.NONE:
        return VerificationVerdict.UNCHECKED
    if mode is not Mode.ADAPTIVE:
        return None
    if run.owners == {job.account_id}:
        return VerificationVerdict.OWN
    # A program that varies byte by byte may still be the same by the comparison that its submitter chose now.
    if job.compare is None and (job.account_id, job.spec_digest) in tx.snapshot.varying:
        return VerificationVerdict.UNCHECKED
    drawn = run.attempt.id in checks.drawn or is_cut(run) or fair_time.is_long(tx, job, run)
    if not drawn and (before := frozenset(part.node_id for part in run.parts)):
        drawn = tx.snapshot.ask(DrawnWith(run.attempt.id, run.attempt.node_id, before))
    if not drawn:
        return VerificationVerdict.UNCHECKED
    tied = tx.snapshot.ties.owners((job.account_id, job.spec_digest), most=tx.snapshot.settings.verify_ties_max)
    return None if could_check(tx, job, frozenset(run.owners) | tied) else VerificationVerdict.ALONE
