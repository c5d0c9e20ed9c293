"""Verification of results: when a job runs again elsewhere, which of several results counts, and which ones are wrong.

A *result* is what one owner's node reported for a job; a *run* is one execution. Equal results form a *class*. How two
results are compared is decided elsewhere (comparison.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from computepool.core.errors import BadRequest
from computepool.core.money.pricing import PPM

#: After this many consecutive confirmed results, not every result of a node is checked.
STREAK_FREE: Final = 10
#: The minimum chance of a check: cheating must cost more than it brings, however old the node is.
CHECK_FLOOR_PPM: Final = 50_000
#: Agreeing results required by a check.
CHECK_QUORUM: Final = 2
#: After this many results without agreement, the job itself is assumed to give different answers.
RESULTS_MAX: Final = 5
QUORUM_MAX: Final = 5
#: The assumed share of cheating nodes, before anything is known about them.
CHEATS: Final = 0.05
CONFIDENCE_MAX: Final = 0.999_999


class VerificationVerdict(StrEnum):
    """Why a job's result is accepted, or no longer is."""

    UNCHECKED = "unchecked"  #: no check was requested, or none was drawn
    OWN = "own"  #: it came from the submitter's own node
    CONFIRMED = "confirmed"  #: nodes of several owners agreed
    ALONE = "alone"  #: a check was due but nobody could do it; the pay is withheld until somebody has
    VARIES = "varies"  #: every run had a different result
    REFUTED = "refuted"  #: it was accepted, and proven wrong afterwards


class Mode(StrEnum):
    NONE = "none"  #: every result is accepted
    ADAPTIVE = "adaptive"  #: some results are checked, more of them if little is known about the node
    QUORUM = "quorum"  #: a number of owners' nodes must agree
    CONFIDENCE = "confidence"  #: as many nodes must agree as it takes, given what is known about them


@dataclass(frozen=True, slots=True)
class VerificationPolicy:
    """The verification that a submitter requests, as text: `none`, `adaptive`, `quorum:3`, `confidence:0.999`."""

    mode: Mode = Mode.NONE
    quorum: int = 1
    confidence: float = 0.0

    def __str__(self) -> str:
        if self.mode is Mode.QUORUM:
            return f"{self.mode}:{self.quorum}"
        if self.mode is Mode.CONFIDENCE:
            return f"{self.mode}:{self.confidence:g}"
        return self.mode.value

    @property
    def runs(self) -> int:
        """The number of runs that may have to be paid for. Wrong results are not paid for."""
        if self.mode is Mode.CONFIDENCE:
            return _newcomers_needed(self.confidence)
        return {Mode.NONE: 1, Mode.ADAPTIVE: CHECK_QUORUM}.get(self.mode, self.quorum)

    @property
    def results_max(self) -> int:
        return max(RESULTS_MAX, 2 * self.runs - 1)

    @property
    def strict(self) -> bool:
        """Whether the job fails if no result could be confirmed."""
        return self.mode in (Mode.QUORUM, Mode.CONFIDENCE)


NO_CHECKS: Final = VerificationPolicy()


@lru_cache(maxsize=256)
def parse(text: str) -> VerificationPolicy:
    mode, _, number = text.partition(":")
    if text in (Mode.NONE, Mode.ADAPTIVE):
        return VerificationPolicy(Mode(text))
    if mode == Mode.QUORUM and number.isdecimal() and len(number) == 1 and 2 <= int(number) <= QUORUM_MAX:
        return VerificationPolicy(Mode.QUORUM, quorum=int(number))
    if mode == Mode.CONFIDENCE:
        try:
            return with_confidence(float(number))
        except ValueError:
            pass
    raise BadRequest(
        f"Verification is none, adaptive, quorum:K with K from 2 to {QUORUM_MAX}, or confidence:P with P below 1; "
        f"not {text[:40]!r}.",
        field="verify",
    )


def with_confidence(confidence: float) -> VerificationPolicy:
    if not 0.5 <= confidence <= CONFIDENCE_MAX:
        raise BadRequest(
            f"The confidence must be between 0.5 and {CONFIDENCE_MAX}, for example 0.999.", field="confidence"
        )
    return VerificationPolicy(Mode.CONFIDENCE, confidence=confidence)


# whether to check


def check_chance(streak: int, *, value: int = 0, cap: int | None = None, floor_ppm: int = CHECK_FLOOR_PPM) -> int:
    """The chance, in millionths, that a result of a node with this streak of confirmed results is checked.

    A job worth more than the node's `cap` is always checked.
    """
    if streak < STREAK_FREE or (cap is not None and value > cap):
        return PPM
    return max(PPM // streak, floor_ppm)


# which result counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One owner's result."""

    kind: int | str  #: its class; equal results have the same one
    streak: int = 0  #: of its node, at the time of the report


class Ruling(StrEnum):
    ACCEPT = "accept"
    MORE = "more"  #: another owner's node must run it
    DIFFER = "differ"  #: there will be no agreement


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    ruling: Ruling
    agreeing: tuple[int, ...] = ()  #: positions of the results that count, the oldest first
    wrong: tuple[int, ...] = ()  #: positions of the results proven wrong


def judge(policy: VerificationPolicy, results: Sequence[Result]) -> Decision:
    """What follows from the results so far, in order of arrival."""
    classes: dict[int | str, list[int]] = {}
    for place, result in enumerate(results):
        classes.setdefault(result.kind, []).append(place)
    best = max(classes.values(), key=lambda places: (_weight(policy, results, places), -places[0]))
    if policy.mode is Mode.CONFIDENCE:
        enough = confidence(results, classes, best) >= policy.confidence
    else:
        enough = len(best) >= policy.runs
    if enough:
        wrong = tuple(place for place in range(len(results)) if place not in best) if len(best) > 1 else ()
        return Decision(ruling=Ruling.ACCEPT, agreeing=tuple(best), wrong=wrong)
    if len(results) >= policy.results_max:
        return Decision(ruling=Ruling.DIFFER)
    return Decision(ruling=Ruling.MORE)


def _weight(policy: VerificationPolicy, results: Sequence[Result], places: Sequence[int]) -> float:
    if policy.mode is not Mode.CONFIDENCE:
        return len(places)
    return math.prod(1 / (1 - credibility(results[place].streak)) for place in places)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A result, as far as it matters for who is paid and who is blamed."""

    one_owner: bool = True  #: no other owner's work is in it, so an error in it is its node's doing
    whole: bool = True  #: the hub has all that it printed, or nothing of it is compared
    false: bool = False  #: its node sent another text than it reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """What several results mean, by their positions."""

    verdict: VerificationVerdict
    agreeing: tuple[int, ...]  #: the results that confirm each other, or the one that is believed alone
    paid: tuple[int, ...]  #: the first becomes the job's result
    refuted: tuple[int, ...]  #: wrong, by their nodes' doing
    unblamed: tuple[int, ...]  #: wrong, with work of several owners in them: nobody can tell whose


def conclude(decision: Decision, delivered: Sequence[Delivery], *, runs: int) -> Conclusion:
    """`runs`: how many of them the submitter pays for."""
    places = range(len(delivered))
    false = {place for place in places if delivered[place].false}
    # A node that sent another text than it reported is wrong in any case, also if its result was to be believed alone.
    agreeing = [place for place in decision.agreeing if place not in false]
    if decision.agreeing and not agreeing:
        agreeing = [next(place for place in places if place not in false)]
    wrong = sorted(false.union(decision.wrong))
    # If every run came to another result nobody is to blame: the first counts, and as many are paid as were agreed on.
    right = agreeing or [place for place in places if place not in wrong]
    # Whole texts first: else a node could vouch for one text and deliver another. Output that was too long, or lost on the
    # way, does not make a result wrong.
    paid = sorted(right, key=lambda place: not delivered[place].whole)[:runs]
    if decision.ruling is Ruling.DIFFER:
        verdict = VerificationVerdict.VARIES
    else:
        verdict = VerificationVerdict.CONFIRMED if len(agreeing) > 1 else VerificationVerdict.ALONE
    return Conclusion(
        verdict=verdict,
        agreeing=tuple(agreeing),
        paid=tuple(paid),
        refuted=tuple(place for place in wrong if delivered[place].one_owner),
        unblamed=tuple(place for place in wrong if not delivered[place].one_owner),
    )


# credibility-based fault tolerance (Sarmenta)


def credibility(streak: int) -> float:
    """The probability that a result is right, given the streak of confirmed results of its node.

    A cheat who falsifies a share s of the results passes k checks with probability (1 − s)^k. The most harmful s is
    1 / (k + 1).
    """
    if not streak:
        return 1 - CHEATS
    slips_through = (streak / (streak + 1)) ** streak / (streak + 1)
    return 1 - CHEATS / (1 - CHEATS) * slips_through


def confidence(results: Sequence[Result], classes: Mapping[int | str, list[int]], chosen: Sequence[int]) -> float:
    """The probability that the chosen class is right, if all nodes reported independently."""

    def odds(places: Sequence[int]) -> float:
        """The odds that these results are right. At most one of all classes is."""
        known = [credibility(results[place].streak) for place in places]
        return math.prod(share / (1 - share) for share in known)

    return odds(chosen) / (sum(map(odds, classes.values())) + 1)


def _newcomers_needed(target: float) -> int:
    """The number of unknown nodes that must agree."""
    for count in range(1, QUORUM_MAX + 1):
        results = [Result(kind=0)] * count
        if confidence(results, {0: list(range(count))}, range(count)) >= target:
            return count
    return QUORUM_MAX
