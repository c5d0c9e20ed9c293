"""How far to rely on a node: a discounted Beta rule over its outcomes. Pure, and the same to the last bit everywhere.

The arithmetic is in discounting.py. What is stored is a cache of the events: `recompute` makes it again.

Beside it, and never mixed with it, stands integrity: how many of a node's results in a row were compared and agreed (its
streak), how often one was proven wrong (strikes), and the ban that three strikes in thirty days bring.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from computepool.core.discounting import DAY_MS, Weight, faded, score_of, weighed
from computepool.core.jobs import NODE_FAULTS
from computepool.core.money import CREDIT

#: Newcomers' dues: so many verified jobs of others before a node may have more than one of them at a time. One that
#: nobody checked counts a quarter, as in the score: where jobs ask for no check, dues are paid too, only later.
DUES_SUCCESSES: Final = 5
QUARTERS: Final = 4
#: Three results proven wrong within thirty days are no accident.
STRIKES_MAX: Final = 3
STRIKES_WINDOW_MS: Final = 30 * DAY_MS
#: After so many verified days of one of its nodes, an owner's earnings mature sooner.
TENURED_DAYS: Final = 30
EXPOSURE_BASE: Final = 50 * CREDIT
EXPOSURE_MAX: Final = 5_000 * CREDIT


class Evidence(StrEnum):
    """What an outcome says about the node."""

    VERIFIED = "verified"  #: the result was compared with another node's, and agreed
    UNVERIFIED = "unverified"  #: the node says that it succeeded
    CONFIRMED = (
        "confirmed"  #: an unverified success, counted as such before, was compared afterwards, and agreed
    )
    REFUTED = "refuted"  #: the result was proven wrong: a matter of integrity, not of reliability
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
    Evidence.CONFIRMED: Weight(3, success=True),
    Evidence.REFUTED: Weight(0, success=False),
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
    dues: int = 0  #: successes with jobs of others
    tenure_days: int = 0  #: days on which there was such a success
    tenure_day: int = 0  #: the last of them, in days since the epoch
    verified: int = 0  #: of the successes with jobs of others, those that were compared and agreed
    verified_days: int = 0
    verified_day: int = 0
    streak: int = 0  #: of these, since the last result that was proven wrong
    strikes: int = 0  #: results proven wrong, ever
    struck_at_ms: int = 0  #: the last of them, and the one before: what decides about the third
    struck_before_ms: int = 0
    struck_by: int = 0  #: whose job the last strike was about, as a number
    struck_other_ms: int = 0  #: the last strike that was about somebody else's
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

    def strikes_lately(self, now_ms: int) -> int:
        """Within the window, up to two: a third one bans."""
        return sum(1 for at_ms in (self.struck_at_ms, self.struck_before_ms) if _within_window(at_ms, now_ms))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One event's word about one node."""

    node_id: str
    evidence: Evidence
    at_ms: int
    own: bool = False  #: the job was the node owner's
    by: int = 0  #: whose job it was (`number_of`); 0: nobody's in particular


def number_of(account_id: str) -> int:
    """An account as a whole number, the same everywhere."""
    return int.from_bytes(hashlib.sha256(account_id.encode()).digest()[:7], "big") or 1


def update(before: Reputation, outcome: Outcome) -> Reputation:
    """The rule. An outcome without weight changes nothing, not even the time from which silence is counted."""
    if outcome.evidence is Evidence.REFUTED:
        return _struck(before, outcome.at_ms, by=outcome.by)
    if outcome.evidence is Evidence.PARDONED:
        cleared = replace(before, streak=0, struck_at_ms=0, struck_before_ms=0, banned_at_ms=0)
        return replace(cleared, struck_by=0, struck_other_ms=0)
    weight, at_ms = WEIGHTS[outcome.evidence], outcome.at_ms
    lost = outcome.evidence is Evidence.LEASE_LOST
    # A node that goes away loses all that it held at once: that is one failure, however many short jobs waited in its
    # lanes. Counted one by one, a single reboot would be remembered for months.
    if not weight.quarters or (lost and before.lost_at_ms == at_ms):
        return before
    good = weight.success
    success, failure = weighed(*before.faded(at_ms), weight)
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
    return _served(counted, outcome, fresh=fresh) if good and not outcome.own else counted


def _served(before: Reputation, outcome: Outcome, *, fresh: bool) -> Reputation:
    """What work for others adds: dues, tenure, and the streak of results that were compared and agreed."""
    day = outcome.at_ms // DAY_MS
    compared = outcome.evidence in (Evidence.VERIFIED, Evidence.CONFIRMED)
    return replace(
        before,
        dues=before.dues + fresh,
        tenure_days=before.tenure_days + (fresh and day > before.tenure_day),
        tenure_day=max(day, before.tenure_day) if fresh else before.tenure_day,
        verified=before.verified + compared,
        verified_days=before.verified_days + (compared and day > before.verified_day),
        verified_day=max(day, before.verified_day) if compared else before.verified_day,
        # What was right before a strike says nothing about what comes after it: trust begins anew.
        streak=before.streak + (compared and (fresh or not before.struck_at_ms)),
    )


def _struck(before: Reputation, at_ms: int, *, by: int) -> Reputation:
    """A wrong result: trust begins anew, and the third within the window ends it.

    Unless all of them are about one submitter's jobs: whose programs are made to differ must not ban whom he likes.
    """
    past = (before.struck_at_ms, before.struck_before_ms)
    other_ms = before.struck_other_ms if by and by == before.struck_by else before.struck_at_ms
    third = all(_within_window(past_ms, at_ms) for past_ms in (*past, other_ms))
    last, before_last, _ = sorted((at_ms, *past), reverse=True)  # the clock of another hub may be behind
    return replace(
        before,
        streak=0,
        strikes=before.strikes + 1,
        struck_at_ms=last,
        struck_before_ms=before_last,
        struck_by=by,
        struck_other_ms=other_ms,
        banned_at_ms=before.banned_at_ms or (at_ms if third else 0),
    )


def _within_window(at_ms: int, now_ms: int) -> bool:
    return at_ms > 0 and now_ms - at_ms < STRIKES_WINDOW_MS


def inherited(before: Reputation, at_ms: int) -> Reputation:
    """With what an owner's new node begins, whose last one did badly: the worse of that and a newcomer.

    What counts against it stays; streak, dues and tenure have to be earned again.
    """
    if not before.banned_at_ms and not before.strikes_lately(at_ms) and before.score(at_ms) >= NEWCOMER_SCORE:
        return NEWCOMER
    kept = replace(NEWCOMER, strikes=before.strikes, banned_at_ms=before.banned_at_ms)
    kept = replace(kept, struck_at_ms=before.struck_at_ms, struck_before_ms=before.struck_before_ms)
    kept = replace(kept, struck_by=before.struck_by, struck_other_ms=before.struck_other_ms)
    if before.score(at_ms) >= NEWCOMER_SCORE:
        return kept
    return replace(
        kept,
        success=before.success,
        failure=before.failure,
        changed_at_ms=before.changed_at_ms,
        lost_at_ms=before.lost_at_ms,
        successes=before.successes,
        failures=before.failures,
    )


def recompute(outcomes: Iterable[Outcome], begin: Reputation | None = None) -> Reputation:
    """One node's reputation from its outcomes in the order of the events."""
    reputation = begin or NEWCOMER
    for outcome in outcomes:
        reputation = update(reputation, outcome)
    return reputation


def dues_paid(reputation: Reputation) -> int:
    """In verified successes: one that nobody checked is a quarter."""
    return (reputation.dues + (QUARTERS - 1) * reputation.verified) // QUARTERS


def owes_dues(reputation: Reputation, needed: int) -> bool:
    """Whether it may have only one job of others at a time. 0: there are no dues."""
    return dues_paid(reputation) < needed


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
    return min(max_ms, base_ms << min(30, faults - limit))


# events

_HUB = "hub"
_SUCCEEDED = "job.succeeded"
_EXPIRED = "attempt.expired"
#: A node's report that blames the node. Written beside the job's own event, which is about the job.
FAULT_ACTION: Final = "attempt.failed"
#: A result agreed with other nodes' (before the job's success is told, in the same transaction), or was proven wrong.
VERIFIED_ACTION: Final = "attempt.verified"
REFUTED_ACTION: Final = "attempt.refuted"
PARDONED_ACTION: Final = "node.pardoned"
#: The reason of a VERIFIED_ACTION about a result that was accepted, and counted, earlier.
RECHECKED: Final = "rechecked"
#: A node was enrolled; its data may name the node of the same owner from which it inherits.
ENROLLED_ACTION: Final = "node.enrolled"
_INHERITS = "inherits"
#: The events that say something about a node.
ACTIONS: Final = frozenset(
    {
        _SUCCEEDED,
        _EXPIRED,
        FAULT_ACTION,
        VERIFIED_ACTION,
        REFUTED_ACTION,
        PARDONED_ACTION,
        ENROLLED_ACTION,
    }
)
_FAULT_REASONS: Final = frozenset(reason.value for reason in NODE_FAULTS)


def node_of(event: Mapping[str, object]) -> str | None:
    """The node that an event says something about; None: it says nothing about any."""
    if event["action"] not in ACTIONS or (
        event["action"] == ENROLLED_ACTION and predecessor_of(event) is None
    ):
        return None
    # A late result was accepted from a node that the job had left, so its own word comes first; where the hub speaks,
    # because nobody came to confirm a result, it names the node.
    heard = event["action"] == _SUCCEEDED and event["actor"] != _HUB
    found = event["actor"] if heard else event["node_id"]
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


def read(event: Mapping[str, object], *, owner: str) -> Outcome | None:
    """What an event says about the node that `node_of` names. `owner`: the node's."""
    node_id, at_ms = node_of(event), event["at_ms"]
    if node_id is None or not isinstance(at_ms, int) or event["action"] == ENROLLED_ACTION:
        return None
    evidence = _evidence(str(event["action"]), str(event["reason"]))
    by = number_of(str(event["account_id"])) if evidence is Evidence.REFUTED else 0
    return Outcome(node_id, evidence, at_ms, own=event["account_id"] == owner, by=by)


def said_once(told: Iterable[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    """The events without the success of a job whose accepted attempt was already counted as verified.

    Both are told in one transaction, the verification first, so nothing has to be remembered for long: what waits for
    its job's success is gone with it, and reading the log again passes over the same events.
    """
    verified: dict[object, set[object]] = {}
    for event in told:
        if event["action"] == VERIFIED_ACTION and event["reason"] != RECHECKED:
            verified.setdefault(event["job_id"], set()).add(event["attempt_id"])
        elif event["action"] == _SUCCEEDED and event["attempt_id"] in verified.pop(event["job_id"], ()):
            continue
        yield event


def _evidence(action: str, reason: str) -> Evidence:
    if action == _SUCCEEDED:
        return Evidence.UNVERIFIED
    if action == VERIFIED_ACTION:
        return Evidence.CONFIRMED if reason == RECHECKED else Evidence.VERIFIED
    if action in (REFUTED_ACTION, PARDONED_ACTION):
        return Evidence.REFUTED if action == REFUTED_ACTION else Evidence.PARDONED
    if reason not in _FAULT_REASONS:
        return Evidence.JOB_FAULT
    return Evidence.LEASE_LOST if action == _EXPIRED else Evidence.NODE_FAULT


NEWCOMER: Final = Reputation()
#: What a node that nobody has tried is given.
NEWCOMER_SCORE: Final = NEWCOMER.score(0)
