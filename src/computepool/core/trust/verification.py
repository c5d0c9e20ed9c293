"""Verification of results: when one is run again elsewhere, which of several results counts, and who was wrong.

Pure rules. A *result* is what one owner's node reported for a job, a *run* is one execution. Results that are the same
are in one *class*; how two are compared is somebody else's affair (by digest, by tolerance, by the submitter's own
function).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from computepool.core.errors import BadRequest

PPM: Final = 1_000_000
#: A node whose last results were confirmed so many times in a row is no longer checked every time.
STREAK_FREE: Final = 10
#: And never less often than this: cheating must cost more than it brings, however old the node is.
CHECK_FLOOR_PPM: Final = 50_000
#: Results that agree, for a check.
CHECK_QUORUM: Final = 2
#: After so many results without agreement the job itself gives another answer each time.
RESULTS_MAX: Final = 5
QUORUM_MAX: Final = 5
#: The share of nodes that is assumed to cheat, before anything is known of them.
CHEATS: Final = 0.05
CONFIDENCE_MAX: Final = 0.999_999


class Mode(StrEnum):
    NONE = "none"  #: every result is believed
    ADAPTIVE = "adaptive"  #: some are checked, more of them where little is known of the node
    QUORUM = "quorum"  #: so many owners' nodes must agree
    CONFIDENCE = "confidence"  #: as many as it takes, by what is known of the nodes


@dataclass(frozen=True, slots=True)
class VerificationPolicy:
    """What a submitter asks for. Written as one word: `none`, `adaptive`, `quorum:3`, `confidence:0.999`."""

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
        """How many runs may have to be paid for. Results that turn out wrong are not."""
        if self.mode is Mode.CONFIDENCE:
            return _newcomers_needed(self.confidence)
        return {Mode.NONE: 1, Mode.ADAPTIVE: CHECK_QUORUM}.get(self.mode, self.quorum)

    @property
    def results_max(self) -> int:
        return max(RESULTS_MAX, 2 * self.runs - 1)

    @property
    def strict(self) -> bool:
        """Whether there is no result at all where none could be confirmed."""
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


def check_chance(
    streak: int, *, value: int = 0, cap: int | None = None, floor_ppm: int = CHECK_FLOOR_PPM
) -> int:
    """In millionths, how likely a result is checked that a node with so many confirmed ones in a row reports.

    A job that is worth more than the node may be trusted with (`cap`) is always checked.
    """
    if streak < STREAK_FREE or (cap is not None and value > cap):
        return PPM
    return max(PPM // streak, floor_ppm)


class First(StrEnum):
    """What follows from the first result of a job."""

    UNCHECKED = "unchecked"  #: it is believed: the node is known, and no check was drawn
    WAIT = "wait"  #: it is due for a check, and somebody else could do it, if not at this moment
    ALONE = "alone"  #: it is due, and nobody else could: it is given out, but not paid until it was checked


def judge_first(*, drawn: bool, others: bool) -> First:
    """`others`: whether another owner's node that the pool knows could run it, however busy it is now.

    Who is free at this moment must not decide it: else whoever keeps the others busy is believed.
    """
    if not drawn:
        return First.UNCHECKED
    return First.WAIT if others else First.ALONE


# which result counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One owner's word."""

    kind: int | str  #: its class: equal for results that are the same
    streak: int = 0  #: of its node, when it was reported


class Ruling(StrEnum):
    ACCEPT = "accept"
    MORE = "more"  #: another owner's node has to run it
    DIFFER = "differ"  #: there will be no agreement


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    ruling: Ruling
    agreeing: tuple[int, ...] = ()  #: positions of the results that count, the oldest first
    wrong: tuple[int, ...] = ()  #: positions of those that were proven wrong


def judge(policy: VerificationPolicy, results: Sequence[Result]) -> Decision:
    """What follows from the results so far, in the order in which they came."""
    classes: dict[int | str, list[int]] = {}
    for place, result in enumerate(results):
        classes.setdefault(result.kind, []).append(place)
    best = max(classes.values(), key=lambda places: (_weight(policy, results, places), -places[0]))
    if _enough(policy, results, classes, best=best):
        wrong = tuple(place for place in range(len(results)) if place not in best) if len(best) > 1 else ()
        return Decision(ruling=Ruling.ACCEPT, agreeing=tuple(best), wrong=wrong)
    if len(results) >= policy.results_max:
        return Decision(ruling=Ruling.DIFFER)
    return Decision(ruling=Ruling.MORE)


def _weight(policy: VerificationPolicy, results: Sequence[Result], places: Sequence[int]) -> float:
    if policy.mode is not Mode.CONFIDENCE:
        return len(places)
    return math.prod(1 / (1 - credibility(results[place].streak)) for place in places)


def _enough(
    policy: VerificationPolicy,
    results: Sequence[Result],
    classes: Mapping[int | str, list[int]],
    *,
    best: list[int],
) -> bool:
    if policy.mode is Mode.CONFIDENCE:
        return confidence(results, classes, best) >= policy.confidence
    return len(best) >= {Mode.NONE: 1, Mode.ADAPTIVE: CHECK_QUORUM}.get(policy.mode, policy.quorum)


# how sure one can be (Sarmenta: credibility-based fault tolerance)


def credibility(streak: int) -> float:
    """How likely a result is right that a node with so many confirmed ones in a row reports.

    A cheat who falsifies a share s of the results passes k checks with (1 − s)^k; the s that harms most is 1 / (k + 1).
    """
    if not streak:
        return 1 - CHEATS
    slips_through = (streak / (streak + 1)) ** streak / (streak + 1)
    return 1 - CHEATS / (1 - CHEATS) * slips_through


def confidence(
    results: Sequence[Result], classes: Mapping[int | str, list[int]], chosen: Sequence[int]
) -> float:
    """How likely the chosen class is right, given that all these nodes said what they said independently."""
    right_of = {
        tuple(places): math.prod(credibility(results[place].streak) for place in places)
        for places in classes.values()
    }
    wrong_of = {
        tuple(places): math.prod(1 - credibility(results[place].streak) for place in places)
        for places in classes.values()
    }
    everyone_wrong = math.prod(wrong_of.values())
    worlds = {key: right_of[key] * everyone_wrong / wrong_of[key] for key in right_of}
    return worlds[tuple(chosen)] / (sum(worlds.values()) + everyone_wrong)


def _newcomers_needed(target: float) -> int:
    """How many nodes that nobody knows must agree."""
    for count in range(1, QUORUM_MAX + 1):
        results = [Result(kind=0)] * count
        if confidence(results, {0: list(range(count))}, range(count)) >= target:
            return count
    return QUORUM_MAX
