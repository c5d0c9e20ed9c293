"""The reputation of a node: a discounted Beta rule over its outcomes. Pure, and the same to the last bit everywhere.

The arithmetic is in discounting.py. What is stored is a cache of the events: `recompute` makes it again.

Beside it, and never mixed with it, stands integrity: how many of a node's results in a row were compared and agreed (its
streak), how often one was proven wrong (violations), and what follows from that (violations.py): probation, and the ban.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from computepool.core.backoff import doubled
from computepool.core.jobs.lifecycle import NODE_FAULTS
from computepool.core.money.money import CREDIT
from computepool.core.trust import violations
from computepool.core.trust.discounting import DAY_MS, Weight, faded, score_of, weigh
from computepool.core.trust.violations import PROBES_RIGHT, PROBES_WRONG, Violation

#: A newcomer needs so many verified jobs of others before a node may have more than one of them at a time. One that
#: nobody checked counts a quarter, as in the score: where jobs ask for no check, it only takes longer.
NEWCOMER_JOBS: Final = 5
QUARTERS: Final = 4
VIOLATIONS_MAX: Final = violations.VIOLATIONS_MAX
VIOLATIONS_WINDOW_MS: Final = violations.WINDOW_MS
#: After so many verified days of one of its nodes, an owner's earnings mature sooner.
TENURED_DAYS: Final = 30
EXPOSURE_BASE: Final = 50 * CREDIT
EXPOSURE_MAX: Final = 5_000 * CREDIT


class Evidence(StrEnum):
    """What an outcome says about the node."""

    VERIFIED = "verified"  #: the result was compared with another node's, and agreed
    UNVERIFIED = "unverified"  #: the node says that it succeeded
    #: a success, checked or not, for a job whose submitter left the pool no choice of nodes
    NARROW = "narrow"
    #: an unverified success, counted as such before, was compared afterwards, and agreed
    CONFIRMED = "confirmed"
    REFUTED = "refuted"  #: the result was proven wrong: a matter of integrity, not of reliability
    PADDED = "padded"  #: the result agreed, but took far longer than where it was run besides
    #: on probation, it was tested with a job whose result is known, and was right
    PROBE_RIGHT = "probe_right"
    PROBE_WRONG = "probe_wrong"
    PARDONED = "pardoned"  #: the operator says that its wrong results were no ill will
    NODE_FAULT = "node_fault"  #: sandbox, agent or staging failed
    LEASE_LOST = "lease_lost"  #: the node went silent, or restarted, with the job
    JOB_FAULT = "job_fault"  #: the job's own failure says nothing about the node
    CANCELLED = "cancelled"
    HUB_FAULT = "hub_fault"


#: How much each counts. Together an unverified success and its confirmation are exactly one verified success.
WEIGHTS: Final[Mapping[Evidence, Weight]] = {
    Evidence.VERIFIED: Weight(4, success=True),
    Evidence.UNVERIFIED: Weight(1, success=True),
    Evidence.NARROW: Weight(1, success=True),
    Evidence.CONFIRMED: Weight(3, success=True),
    Evidence.REFUTED: Weight(0, success=False),
    Evidence.PADDED: Weight(0, success=False),
    Evidence.PROBE_RIGHT: Weight(0, success=True),
    Evidence.PROBE_WRONG: Weight(0, success=False),
    Evidence.PARDONED: Weight(0, success=False),
    Evidence.NODE_FAULT: Weight(4, success=False),
    Evidence.LEASE_LOST: Weight(4, success=False),
    Evidence.JOB_FAULT: Weight(0, success=False),
    Evidence.CANCELLED: Weight(0, success=False),
    Evidence.HUB_FAULT: Weight(0, success=False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reputation:
    """What a node's outcomes came to. The default is a node that nobody has tried."""

    success: int = 0  #: S, in parts of ONE, at `changed_at_ms`
    failure: int = 0  #: F
    changed_at_ms: int = 0  #: when the last outcome that counts was recorded
    lost_at_ms: int = 0  #: when it last lost leases
    successes: int = 0  #: outcomes, unweighted
    failures: int = 0
    successes_for_others: int = 0  #: successes with jobs of others
    tenure_days: int = 0  #: days on which there was such a success
    tenure_day: int = 0  #: the last of them, in days since the epoch
    verified: int = 0  #: of the successes with jobs of others, those that were compared and agreed
    verified_days: int = 0
    verified_day: int = 0
    streak: int = 0  #: of these, since the last result that was proven wrong
    violation_count: int = 0  #: results proven wrong, ever
    penalised_at_ms: int = 0  #: the last of them
    violations: str = ""  #: the last few: about whose jobs, by whom (violations.py)
    probation_at_ms: int = 0  #: since when it is tested; 0: it is not
    probes_right: int = 0  #: of its tests in this probation
    probes_wrong: int = 0
    cleared_at_ms: int = 0  #: when it last passed them
    banned_at_ms: int = 0  #: 0: not banned

    def score(self, now_ms: int) -> float:
        """From 0 to 1: the cautious mean at this moment."""
        return score_of(*self.faded(now_ms))

    def faded(self, now_ms: int) -> tuple[int, int]:
        """S and F at this moment. A clock that went back fades nothing."""
        return faded(self.success, self.failure, quiet_ms=now_ms - self.changed_at_ms)

    def banned(self, now_ms: int) -> bool:
        """Whether it may not work for others. A ban does not end by itself, whatever the time."""
        return 0 < self.banned_at_ms <= now_ms

    def recent_violations(self, now_ms: int) -> int:
        """Within the window, and since it was last cleared: the third one puts it on probation."""
        return len(violations.recent(self.violations, now_ms, after_ms=self.cleared_at_ms))


@dataclass(frozen=True, slots=True)
class ReputationEvent:
    """One event's word about one node."""

    node_id: str
    evidence: Evidence
    at_ms: int
    own: bool = False  #: the job was the node owner's
    by: int = 0  #: whose job it was (`number_of`); 0: nobody's in particular
    old: bool = False  #: of a result proven wrong: see Violation
    refuters: tuple[int, ...] = ()


def number_of(account_id: str) -> int:
    """An account as a whole number, the same everywhere."""
    return int.from_bytes(hashlib.sha256(account_id.encode()).digest()[:7], "big") or 1


def update(before: Reputation, outcome: ReputationEvent) -> Reputation:
    """The rule. An outcome without weight changes nothing, not even the time from which silence is counted."""
    if outcome.evidence in _INTEGRITY:
        return _INTEGRITY[outcome.evidence](before, outcome)
    weight, at_ms = WEIGHTS[outcome.evidence], outcome.at_ms
    lost = outcome.evidence is Evidence.LEASE_LOST
    # A node that goes away loses all that it held at once: that is one failure, however many short jobs waited in its
    # lanes. Counted one by one, a single reboot would be remembered for months.
    if not weight.quarters or (lost and before.lost_at_ms == at_ms):
        return before
    good = weight.success
    success, failure = weigh(*before.faded(at_ms), weight)
    fresh = outcome.evidence is not Evidence.CONFIRMED  # that one was counted when it was accepted
    counted = replace(
        before,
        success=success,
        failure=failure,
        changed_at_ms=max(before.changed_at_ms, at_ms),
        lost_at_ms=at_ms if lost else before.lost_at_ms,
        successes=before.successes + (good and fresh),
        failures=before.failures + (not good),
    )
    served = good and not outcome.own and outcome.evidence is not Evidence.NARROW
    return _apply_work(counted, outcome, fresh=fresh) if served else counted


def _apply_work(before: Reputation, outcome: ReputationEvent, *, fresh: bool) -> Reputation:
    """What work for others adds: successes, tenure, and the streak of results that were compared and agreed."""
    day = outcome.at_ms // DAY_MS
    compared = outcome.evidence in (Evidence.VERIFIED, Evidence.CONFIRMED)
    return replace(
        before,
        successes_for_others=before.successes_for_others + fresh,
        tenure_days=before.tenure_days + (fresh and day > before.tenure_day),
        tenure_day=max(day, before.tenure_day) if fresh else before.tenure_day,
        verified=before.verified + compared,
        verified_days=before.verified_days + (compared and day > before.verified_day),
        verified_day=max(day, before.verified_day) if compared else before.verified_day,
        # What was right before a violation says nothing about what comes after it: trust begins anew.
        # And on probation none begins: every result is checked.
        streak=before.streak
        + (compared and (fresh or not before.penalised_at_ms) and not before.probation_at_ms),
    )


def _penalise(before: Reputation, outcome: ReputationEvent) -> Reputation:
    """A wrong result: trust begins anew. Several put the node on probation; where that cleared it, yet more may ban it."""
    at_ms = outcome.at_ms
    wrong = Violation(at_ms, outcome.by, outcome.old, outcome.refuters)
    known = violations.remember(before.violations, wrong)
    now = replace(
        before,
        streak=0,
        violation_count=before.violation_count + 1,
        penalised_at_ms=max(at_ms, before.penalised_at_ms),
        violations=known,
    )
    if before.banned_at_ms or before.probation_at_ms:
        return now
    if _within_window(before.cleared_at_ms, at_ms) and violations.widely_held(
        violations.recent(known, at_ms)
    ):
        return replace(now, banned_at_ms=at_ms)
    if not violations.suspicious(violations.recent(known, at_ms, after_ms=before.cleared_at_ms)):
        return now
    return replace(now, probation_at_ms=at_ms, probes_right=0, probes_wrong=0)


def _apply_probe(before: Reputation, outcome: ReputationEvent) -> Reputation:
    """An answer whose right one is known. It says nothing where the node is not tested any more."""
    if not before.probation_at_ms:
        return before
    right = outcome.evidence is Evidence.PROBE_RIGHT
    now = replace(
        before, probes_right=before.probes_right + right, probes_wrong=before.probes_wrong + (not right)
    )
    if now.probes_wrong >= PROBES_WRONG:
        return replace(now, probation_at_ms=0, banned_at_ms=outcome.at_ms, streak=0)
    if now.probes_right >= PROBES_RIGHT:
        return replace(now, probation_at_ms=0, cleared_at_ms=outcome.at_ms)
    return now


def _apply_pardon(before: Reputation, _outcome: ReputationEvent) -> Reputation:
    cleared = replace(before, streak=0, penalised_at_ms=0, violations="", banned_at_ms=0)
    return replace(cleared, probation_at_ms=0, probes_right=0, probes_wrong=0, cleared_at_ms=0)


def _apply_padding(before: Reputation, _outcome: ReputationEvent) -> Reputation:
    """No violation, but it is looked at again each time."""
    return replace(before, streak=0)


_INTEGRITY: Final[Mapping[Evidence, Callable[[Reputation, ReputationEvent], Reputation]]] = {
    Evidence.REFUTED: _penalise,
    Evidence.PADDED: _apply_padding,
    Evidence.PROBE_RIGHT: _apply_probe,
    Evidence.PROBE_WRONG: _apply_probe,
    Evidence.PARDONED: _apply_pardon,
}


def _within_window(at_ms: int, now_ms: int) -> bool:
    return at_ms > 0 and now_ms - at_ms < VIOLATIONS_WINDOW_MS


def inherit(before: Reputation, at_ms: int) -> Reputation:
    """With what an owner's new node begins, whose last one did badly: the worse of that and a newcomer.

    What counts against it stays; streak, successes and tenure have to be earned again.
    """
    suspect = before.banned_at_ms or before.probation_at_ms or before.recent_violations(at_ms)
    if not suspect and before.score(at_ms) >= NEWCOMER_SCORE:
        return NEWCOMER
    kept = _AGAINST if before.score(at_ms) >= NEWCOMER_SCORE else (*_AGAINST, *_RELIABILITY)
    return Reputation(**{name: getattr(before, name) for name in kept})


#: Of a node's integrity, what speaks against its owner; and how reliable it was.
_AGAINST: Final = (
    "violation_count",
    "banned_at_ms",
    "penalised_at_ms",
    "violations",
    "probation_at_ms",
    "cleared_at_ms",
)
_RELIABILITY: Final = ("success", "failure", "changed_at_ms", "lost_at_ms", "successes", "failures")


def recompute(outcomes: Iterable[ReputationEvent], begin: Reputation | None = None) -> Reputation:
    """One node's reputation from its outcomes in the order of the events."""
    reputation = begin or NEWCOMER
    for outcome in outcomes:
        reputation = update(reputation, outcome)
    return reputation


def newcomer_jobs_done(reputation: Reputation) -> int:
    """In verified successes: one that nobody checked is a quarter."""
    return (reputation.successes_for_others + (QUARTERS - 1) * reputation.verified) // QUARTERS


def is_newcomer(reputation: Reputation, needed: int) -> bool:
    """Whether it may have only one job of others at a time. 0: there are no newcomers."""
    return newcomer_jobs_done(reputation) < needed


def tenure_quarters(reputation: Reputation) -> int:
    """Verified days, in quarters: a day on which nobody checked what it did for others counts one of them."""
    return reputation.tenure_days + (QUARTERS - 1) * reputation.verified_days


def exposure_cap(reputation: Reputation, base: int = EXPOSURE_BASE) -> int:
    """Microcredits: what the jobs of others that such a node holds may be worth together, unchecked."""
    earned = base * tenure_quarters(reputation) // QUARTERS
    return min(EXPOSURE_MAX * base // EXPOSURE_BASE, base + earned)


def cool_off_ms(faults: int, *, limit: int, base_ms: int, max_ms: int) -> int:
    """The breaker: how long a node rests after so many faults in a row. Doubles with each; 0: it goes on."""
    if faults < limit:
        return 0
    return doubled(base_ms, faults - limit, most=max_ms)


# events

_HUB = "hub"
_SUCCEEDED = "job.succeeded"
_EXPIRED = "attempt.expired"
#: A node's report that blames the node. Written beside the job's own event, which is about the job.
FAULT_ACTION: Final = "attempt.failed"
#: A result agreed with other nodes' (before the job's success is told, in the same transaction), or was proven wrong.
VERIFIED_ACTION: Final = "attempt.verified"
#: It agreed, or nobody checked it, and either way says little: who ran it was its submitter's choice (choice.py).
NARROW_ACTION: Final = "attempt.narrow"
REFUTED_ACTION: Final = "attempt.refuted"
PADDED_ACTION: Final = "attempt.padded"
#: The hub's own test of a node on probation.
PROBE_RIGHT_ACTION: Final = "probe.right"
PROBE_WRONG_ACTION: Final = "probe.wrong"
PARDONED_ACTION: Final = "node.pardoned"
#: The reason of a VERIFIED_ACTION about a result that was accepted, and counted, earlier.
RECHECKED: Final = "rechecked"
#: A node was enrolled; its data may name the node of the same owner from which it inherits.
ENROLLED_ACTION: Final = "node.enrolled"
_INHERITS = "inherits"
_REFUTERS, _SUBMITTER, _OLD = "refuters", "submitter", "old"
#: The events that say something about a node.
ACTIONS: Final = frozenset(
    {
        _SUCCEEDED,
        _EXPIRED,
        FAULT_ACTION,
        VERIFIED_ACTION,
        NARROW_ACTION,
        REFUTED_ACTION,
        PADDED_ACTION,
        PROBE_RIGHT_ACTION,
        PROBE_WRONG_ACTION,
        PARDONED_ACTION,
        ENROLLED_ACTION,
    }
)
#: They speak for the attempt instead of its job's success.
COUNTED_AT_ONCE: Final = (VERIFIED_ACTION, NARROW_ACTION)
_EVIDENCE: Final = {
    NARROW_ACTION: Evidence.NARROW,
    REFUTED_ACTION: Evidence.REFUTED,
    PADDED_ACTION: Evidence.PADDED,
    PROBE_RIGHT_ACTION: Evidence.PROBE_RIGHT,
    PROBE_WRONG_ACTION: Evidence.PROBE_WRONG,
    PARDONED_ACTION: Evidence.PARDONED,
}
_FAULT_REASONS: Final = frozenset(reason.value for reason in NODE_FAULTS)


def node_of(event: Mapping[str, object]) -> str | None:
    """The node that an event says something about; None: it says nothing about any."""
    if event["action"] not in ACTIONS or (
        event["action"] == ENROLLED_ACTION and predecessor_of(event) is None
    ):
        return None
    # A late result was accepted from a node that the job had left, so its own word comes first; where the hub speaks,
    # because nobody came to confirm a result, it names the node.
    by_node = event["action"] == _SUCCEEDED and event["actor"] != _HUB
    found = event["actor"] if by_node else event["node_id"]
    return None if found is None else str(found)


def heir_of(node_id: str) -> str:
    """What the event of an enrolment says, as its data."""
    return json.dumps({_INHERITS: node_id})


def predecessor_of(event: Mapping[str, object]) -> str | None:
    """The node from which the one that an event is about inherits."""
    if event["action"] != ENROLLED_ACTION or not event["data"]:
        return None
    found = json.loads(str(event["data"])).get(_INHERITS)
    return None if found is None else str(found)


def read(event: Mapping[str, object], *, owner: str) -> ReputationEvent | None:
    """What an event says about the node that `node_of` names. `owner`: the node's."""
    node_id, at_ms = node_of(event), event["at_ms"]
    if node_id is None or not isinstance(at_ms, int) or event["action"] == ENROLLED_ACTION:
        return None
    evidence = _evidence(str(event["action"]), str(event["reason"]))
    own = event["account_id"] == owner
    if evidence is not Evidence.REFUTED:
        return ReputationEvent(node_id, evidence, at_ms, own=own)
    data = json.loads(str(event["data"] or "{}"))
    by = number_of(data.get(_SUBMITTER) or str(event["account_id"]))
    refuters = tuple(sorted({number_of(account) for account in data.get(_REFUTERS, ())}))
    return ReputationEvent(node_id, evidence, at_ms, own, by, old=bool(data.get(_OLD)), refuters=refuters)


def refuted_by(refuters: Iterable[str], *, submitter: str, old: bool) -> str:
    """What the event of a wrong result says, as its data: the accounts whose nodes came to another one."""
    return json.dumps({_REFUTERS: sorted(refuters), _SUBMITTER: submitter, _OLD: old})


def counted_once(events: Iterable[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    """The events without the success of a job whose accepted attempt was already counted, as verified or as narrow.

    Both are told in one transaction, the job's success last, so nothing has to be remembered for long: what waits for
    its job's success is gone with it, and reading the log again passes over the same events.
    """
    verified: dict[object, set[object]] = {}
    for event in events:
        if event["action"] in COUNTED_AT_ONCE and event["reason"] != RECHECKED:
            verified.setdefault(event["job_id"], set()).add(event["attempt_id"])
        elif event["action"] == _SUCCEEDED and event["attempt_id"] in verified.pop(event["job_id"], ()):
            continue
        yield event


def _evidence(action: str, reason: str) -> Evidence:
    if action == _SUCCEEDED:
        return Evidence.UNVERIFIED
    if action == VERIFIED_ACTION:
        return Evidence.CONFIRMED if reason == RECHECKED else Evidence.VERIFIED
    if action in _EVIDENCE:
        return _EVIDENCE[action]
    if reason not in _FAULT_REASONS:
        return Evidence.JOB_FAULT
    return Evidence.LEASE_LOST if action == _EXPIRED else Evidence.NODE_FAULT


NEWCOMER: Final = Reputation()
#: What a node that nobody has tried is given.
NEWCOMER_SCORE: Final = NEWCOMER.score(0)
