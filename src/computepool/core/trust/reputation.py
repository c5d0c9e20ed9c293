"""The reputation of a node: a discounted Beta distribution over its outcomes (discounting.py), identical everywhere.

The stored reputation is a cache of the events: applying `update` to all of them reproduces it.

Integrity is separate: the number of consecutive results that were compared and agreed (the streak), the results proven
wrong (violations), and their consequences, probation and ban (violations.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from computepool.core.backoff import double
from computepool.core.jobs.lifecycle import NODE_FAULTS
from computepool.core.money.money import CREDIT
from computepool.core.trust import violations
from computepool.core.trust.discounting import DAY_MS, Outcomes, Weight, weigh
from computepool.core.trust.violations import PROBES_RIGHT, PROBES_WRONG, Violation

#: Verified external jobs after which a node is no newcomer and may run several at a time. Unchecked ones count a quarter, as
#: in the score: if jobs request no checks, it only takes longer.
NEWCOMER_JOBS: Final = 5
QUARTERS: Final = 4
#: After this many verified days of one of its nodes, an owner's earnings mature sooner.
TENURED_DAYS: Final = 30
EXPOSURE_BASE: Final = 50 * CREDIT
EXPOSURE_MAX: Final = 5_000 * CREDIT


class Evidence(StrEnum):
    """The meaning of an outcome for the node."""

    VERIFIED = "verified"  #: the result was compared with another node's and agreed
    UNVERIFIED = "unverified"  #: the node reported a success
    NARROW = "narrow"  #: a success, checked or not, for a job whose submitter left the pool no choice of nodes
    CONFIRMED = "confirmed"  #: a success counted as unverified before was compared afterwards and agreed
    REFUTED = "refuted"  #: the result was proven wrong: a matter of integrity, not of reliability
    PADDED = "padded"  #: the result agreed, but its run took far longer than the others
    PROBE_RIGHT = "probe_right"  #: on probation, the node answered a test correctly
    PROBE_WRONG = "probe_wrong"
    PARDONED = "pardoned"  #: the operator judged its wrong results to be unintentional
    NODE_FAULT = "node_fault"  #: sandbox, agent or staging failed
    LEASE_LOST = "lease_lost"  #: the node went silent or restarted while it had the job
    JOB_FAULT = "job_fault"  #: the job's own failure, which says nothing about the node


#: The weight of each. An unverified success and its confirmation add up to exactly one verified success.
WEIGHTS: Final[Mapping[Evidence, Weight]] = {
    **dict.fromkeys(Evidence, Weight(0, success=False)),
    Evidence.VERIFIED: Weight(4, success=True),
    Evidence.UNVERIFIED: Weight(1, success=True),
    Evidence.NARROW: Weight(1, success=True),
    Evidence.CONFIRMED: Weight(3, success=True),
    Evidence.NODE_FAULT: Weight(4, success=False),
    Evidence.LEASE_LOST: Weight(4, success=False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reputation(Outcomes):
    """The sum of a node's outcomes. The default is a node without any."""

    lost_at_ms: int = 0  #: when it last lost leases
    successes: int = 0  #: outcomes, unweighted
    failures: int = 0
    successes_for_others: int = 0  #: successes with external jobs
    tenure_days: int = 0  #: days with such a success
    tenure_day: int = 0  #: the last of these days, counted from the epoch
    verified: int = 0  #: successes with external jobs that were compared and agreed
    verified_days: int = 0
    verified_day: int = 0
    streak: int = 0  #: verified successes since the last violation
    violation_count: int = 0  #: all violations
    penalised_at_ms: int = 0  #: the time of the last violation
    violations: str = ""  #: the latest violations (violations.py)
    probation_at_ms: int = 0  #: start of its probation; 0 if it is not on probation
    probes_right: int = 0  #: tests passed in this probation
    probes_wrong: int = 0
    cleared_at_ms: int = 0  #: when it last passed a probation
    banned_at_ms: int = 0  #: 0 if it is not banned

    def is_banned(self, now_ms: int) -> bool:
        """Whether it is excluded from external jobs. A ban does not expire."""
        return 0 < self.banned_at_ms <= now_ms

    def recent_violations(self, now_ms: int) -> int:
        """Violations within the window and since it was last cleared. The third one leads to probation."""
        return len(violations.recent(self.violations, now_ms, after_ms=self.cleared_at_ms))


@dataclass(frozen=True, slots=True)
class ReputationEvent:
    node_id: str
    evidence: Evidence
    at_ms: int
    own: bool = False  #: the job belongs to the node's owner
    by: int = 0  #: the number of the job's submitter (`number_of`); 0: none in particular
    old: bool = False  #: for a violation, see there
    refuters: tuple[int, ...] = ()


def number_of(account_id: str) -> int:
    """A number for an account, the same everywhere."""
    return int.from_bytes(hashlib.sha256(account_id.encode()).digest()[:7], "big") or 1


def update(before: Reputation, outcome: ReputationEvent, *, times: int = 1) -> Reputation:
    """The reputation after `times` equal outcomes. Outcomes without weight change nothing, not even `changed_at_ms`."""
    if outcome.evidence in _INTEGRITY:
        for _ in range(times):
            before = _INTEGRITY[outcome.evidence](before, outcome)
        return before
    weight, at_ms = WEIGHTS[outcome.evidence], outcome.at_ms
    lost = outcome.evidence is Evidence.LEASE_LOST
    # A node that goes away loses everything it held at once. That is one failure, however many short jobs were waiting in
    # its lanes, or else a single reboot would be remembered for months.
    if not weight.quarters or (lost and before.lost_at_ms == at_ms):
        return before
    good, times = weight.success, 1 if lost else times
    success, failure = before.fade(at_ms)
    for _ in range(times):
        success, failure = weigh(success, failure, weight)
    fresh = outcome.evidence is not Evidence.CONFIRMED  # counted before, when it was accepted
    counted = replace(
        before,
        success=success,
        failure=failure,
        changed_at_ms=max(before.changed_at_ms, at_ms),
        lost_at_ms=at_ms if lost else before.lost_at_ms,
        successes=before.successes + times * (good and fresh),
        failures=before.failures + times * (not good),
    )
    served = good and not outcome.own and outcome.evidence is not Evidence.NARROW
    return _apply_work(counted, outcome, fresh=fresh, times=times) if served else counted


def _apply_work(before: Reputation, outcome: ReputationEvent, *, fresh: bool, times: int) -> Reputation:
    """Add a success with an external job to the tenure and the streak."""
    day = outcome.at_ms // DAY_MS
    compared = outcome.evidence in (Evidence.VERIFIED, Evidence.CONFIRMED)
    return replace(
        before,
        successes_for_others=before.successes_for_others + times * fresh,
        tenure_days=before.tenure_days + (fresh and day > before.tenure_day),
        tenure_day=max(day, before.tenure_day) if fresh else before.tenure_day,
        verified=before.verified + times * compared,
        verified_days=before.verified_days + (compared and day > before.verified_day),
        verified_day=max(day, before.verified_day) if compared else before.verified_day,
        # Results from before a violation do not count after it, and no trust is earned on probation, where every result is
        # checked.
        streak=before.streak
        + times * (compared and (fresh or not before.penalised_at_ms) and not before.probation_at_ms),
    )


def _penalise(before: Reputation, outcome: ReputationEvent) -> Reputation:
    """Apply a violation: the streak restarts. Several lead to probation; after a passed probation, further ones to a ban."""
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
    lately_cleared = before.cleared_at_ms > 0 and at_ms - before.cleared_at_ms < violations.WINDOW_MS
    if lately_cleared and violations.widely_held(violations.recent(known, at_ms)):
        return replace(now, banned_at_ms=at_ms)
    if not violations.suspicious(violations.recent(known, at_ms, after_ms=before.cleared_at_ms)):
        return now
    return replace(now, probation_at_ms=at_ms, probes_right=0, probes_wrong=0)


def _apply_probe(before: Reputation, outcome: ReputationEvent) -> Reputation:
    """Apply the answer to a test. Ignored if the node is no longer on probation."""
    if not before.probation_at_ms:
        return before
    right = outcome.evidence is Evidence.PROBE_RIGHT
    now = replace(before, probes_right=before.probes_right + right, probes_wrong=before.probes_wrong + (not right))
    if now.probes_wrong >= PROBES_WRONG:
        return replace(now, probation_at_ms=0, banned_at_ms=outcome.at_ms, streak=0)
    if now.probes_right >= PROBES_RIGHT:
        return replace(now, probation_at_ms=0, cleared_at_ms=outcome.at_ms)
    return now


def _apply_pardon(before: Reputation, _outcome: ReputationEvent) -> Reputation:
    cleared = replace(before, streak=0, penalised_at_ms=0, violations="", banned_at_ms=0)
    return replace(cleared, probation_at_ms=0, probes_right=0, probes_wrong=0, cleared_at_ms=0)


_INTEGRITY: Final[Mapping[Evidence, Callable[[Reputation, ReputationEvent], Reputation]]] = {
    Evidence.REFUTED: _penalise,
    Evidence.PADDED: lambda before, _: replace(before, streak=0),  # no violation, but further results are checked again
    Evidence.PROBE_RIGHT: _apply_probe,
    Evidence.PROBE_WRONG: _apply_probe,
    Evidence.PARDONED: _apply_pardon,
}


def inherit(before: Reputation, at_ms: int) -> Reputation:
    """The initial reputation of a new node, given that of its owner's previous one: the worse of that and a newcomer's.

    Negative facts are kept; streak, successes and tenure must be earned again.
    """
    suspect = before.banned_at_ms or before.probation_at_ms or before.recent_violations(at_ms)
    if not suspect and before.score(at_ms) >= NEWCOMER_SCORE:
        return NEWCOMER
    kept = _AGAINST if before.score(at_ms) >= NEWCOMER_SCORE else (*_AGAINST, *_RELIABILITY)
    return Reputation(**{name: getattr(before, name) for name in kept})


#: Negative facts about integrity, and facts about reliability.
_AGAINST: Final = (
    "violation_count",
    "banned_at_ms",
    "penalised_at_ms",
    "violations",
    "probation_at_ms",
    "cleared_at_ms",
)
_RELIABILITY: Final = ("success", "failure", "changed_at_ms", "lost_at_ms", "successes", "failures")


def newcomer_jobs_done(reputation: Reputation) -> int:
    """Verified successes with external jobs. Unchecked ones count a quarter."""
    return (reputation.successes_for_others + (QUARTERS - 1) * reputation.verified) // QUARTERS


def is_newcomer(reputation: Reputation, needed: int) -> bool:
    """Whether it may have only one external job at a time. With `needed` 0 there are no newcomers."""
    return newcomer_jobs_done(reputation) < needed


def exposure_cap(reputation: Reputation, base: int = EXPOSURE_BASE) -> int:
    """The most that a node's external jobs may be worth together, in microcredits. It grows by `base` per verified day;
    days without a check count a quarter.
    """
    quarters = reputation.tenure_days + (QUARTERS - 1) * reputation.verified_days
    return min(EXPOSURE_MAX * base // EXPOSURE_BASE, base + base * quarters // QUARTERS)


def cool_off_ms(faults: int, *, limit: int, base_ms: int, max_ms: int) -> int:
    """How long a node cools off after consecutive faults. Doubles with each fault; 0 below the limit."""
    if faults < limit:
        return 0
    return double(base_ms, faults - limit, most=max_ms)


# events

_HUB = "hub"
_SUCCEEDED = "job.succeeded"
_EXPIRED = "attempt.expired"
#: The node is at fault, by its own report. Written in addition to the event about the job.
FAULT_ACTION: Final = "attempt.failed"
#: A result agreed with other nodes' (written before the event about the job's success, in the same transaction).
VERIFIED_ACTION: Final = "attempt.verified"
#: A success that says little, checked or not, because the submitter chose the node (choice.py).
NARROW_ACTION: Final = "attempt.narrow"
REFUTED_ACTION: Final = "attempt.refuted"
PADDED_ACTION: Final = "attempt.padded"
#: Tests of a node on probation.
PROBE_RIGHT_ACTION: Final = "probe.right"
PROBE_WRONG_ACTION: Final = "probe.wrong"
PARDONED_ACTION: Final = "node.pardoned"
#: The reason of a VERIFIED_ACTION about a result that was accepted and counted earlier.
RECHECKED: Final = "rechecked"
#: A node was enrolled. The data may name the node of the same owner from which it inherits.
ENROLLED_ACTION: Final = "node.enrolled"
_INHERITS = "inherits"
_REFUTERS, _SUBMITTER, _OLD = "refuters", "submitter", "old"
#: These count instead of the job's success.
COUNTED_AT_ONCE: Final = (VERIFIED_ACTION, NARROW_ACTION)
_EVIDENCE: Final = {
    NARROW_ACTION: Evidence.NARROW,
    REFUTED_ACTION: Evidence.REFUTED,
    PADDED_ACTION: Evidence.PADDED,
    PROBE_RIGHT_ACTION: Evidence.PROBE_RIGHT,
    PROBE_WRONG_ACTION: Evidence.PROBE_WRONG,
    PARDONED_ACTION: Evidence.PARDONED,
}
#: All events that say something about a node.
ACTIONS: Final = frozenset({_SUCCEEDED, _EXPIRED, FAULT_ACTION, VERIFIED_ACTION, ENROLLED_ACTION, *_EVIDENCE})
_FAULT_REASONS: Final = frozenset(reason.value for reason in NODE_FAULTS)


def node_of(event: Mapping[str, object]) -> str | None:
    """The node that an event says something about; None if there is none."""
    if event["action"] not in ACTIONS or (event["action"] == ENROLLED_ACTION and predecessor_of(event) is None):
        return None
    # A late result may come from a node that no longer had the job, so the reporting node (the actor) comes first. If the
    # actor is the hub, because nobody confirmed a result in time, the event names the node.
    by_node = event["action"] == _SUCCEEDED and event["actor"] != _HUB
    found = event["actor"] if by_node else event["node_id"]
    return None if found is None else str(found)


def heir_of(node_id: str) -> str:
    """The data of an enrolment event."""
    return json.dumps({_INHERITS: node_id})


def predecessor_of(event: Mapping[str, object]) -> str | None:
    """The node from which an enrolled node inherits."""
    if event["action"] != ENROLLED_ACTION or not event["data"]:
        return None
    found = json.loads(str(event["data"])).get(_INHERITS)
    return None if found is None else str(found)


def read(event: Mapping[str, object], *, owner: str) -> ReputationEvent | None:
    """What an event says about the node that `node_of` returns. `owner`: the node's owner."""
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


def refutation_data(refuters: Iterable[str], *, submitter: str, old: bool) -> str:
    """The data of a violation event. `refuters`: the accounts whose nodes got the other result."""
    return json.dumps({_REFUTERS: sorted(refuters), _SUBMITTER: submitter, _OLD: old})


def without_repeats(events: Iterable[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    """The events without those about a job's success whose accepted attempt was already counted, as verified or narrow.

    Both events are written in one transaction, the job's success last. So nothing is remembered for long, and reading the
    log again skips the same events.
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
#: The score of a node without outcomes.
NEWCOMER_SCORE: Final = NEWCOMER.score(0)
