"""Results proven wrong, and what follows: a node is put on probation, tested, and then banned or cleared.

Whose programs are made to differ, and whose friends' nodes say so, could have any node banned. So wrong results alone
put it on probation, where nothing it does makes a record and the hub tests it with jobs whose results are known
(probes.py in hub/settlement/verification). Wrong answers to those ban it. Right ones clear it; what then bans it is
more violations, about jobs of several submitters who have been here for a while, and by nodes of several owners.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from computepool.core.trust.discounting import DAY_MS

#: So many within this time are no accident.
VIOLATIONS_MAX: Final = 3
WINDOW_MS: Final = 30 * DAY_MS
#: And not of one submitter alone.
SUBMITTERS_MIN: Final = 2
#: What it takes to ban a node that was tested and cleared.
OLD_SUBMITTERS_MIN: Final = 3
REFUTERS_MIN: Final = 3
#: Tests, each with a job of another submitter: so many right ones clear a node, so many wrong ones ban it.
PROBES_RIGHT: Final = 3
PROBES_WRONG: Final = 2
#: Remembered; more are not needed to decide anything.
_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class Violation:
    at_ms: int
    submitter: int = 0  #: whose job it was about, as a number; 0: nobody's in particular
    #: the submitter has been here for a while, and others than he and his nodes were the judges
    old: bool = False
    refuters: tuple[int, ...] = ()  #: owners of the nodes that came to the other result, as numbers


def encode(violations: Iterable[Violation]) -> str:
    return ";".join(
        f"{each.at_ms}:{each.submitter}:{int(each.old)}:{'+'.join(map(str, each.refuters))}"
        for each in violations
    )


def decode(text: str) -> list[Violation]:
    return [_one(part) for part in text.split(";") if part]


def _one(text: str) -> Violation:
    at_ms, submitter, old, refuters = text.split(":")
    by = tuple(int(number) for number in refuters.split("+") if number)
    return Violation(int(at_ms), int(submitter), old == "1", by)


def remember(text: str, violation: Violation) -> str:
    """The newest few, the oldest first: the clock of another hub may be behind."""
    known = sorted([*decode(text), violation], key=lambda each: each.at_ms)
    return encode(known[-_KEPT:])


def recent(text: str, now_ms: int, *, after_ms: int = 0) -> list[Violation]:
    return [each for each in decode(text) if after_ms < each.at_ms and now_ms - each.at_ms < WINDOW_MS]


def suspicious(found: Sequence[Violation]) -> bool:
    """Enough to test the node."""
    return len(found) >= VIOLATIONS_MAX and len({each.submitter for each in found}) >= SUBMITTERS_MIN


def widely_held(found: Sequence[Violation]) -> bool:
    """Too many, who have too little to do with each other, for a plot that is cheap to make."""
    old = [each for each in found if each.old]
    submitters = {each.submitter for each in old}
    refuters = {number for each in old for number in each.refuters}
    return len(submitters) >= OLD_SUBMITTERS_MIN and len(refuters - submitters) >= REFUTERS_MIN
