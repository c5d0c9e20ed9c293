"""Violations (results proven wrong) and their consequences: a node is put on probation, tested, and banned or cleared.

A submitter could have any node banned with programs whose results differ on purpose and accomplices who refute it. So
wrong results alone only lead to probation. There the node earns no record, and the hub tests it with jobs whose results
are known (probes.py in hub/settlement/verification). Wrong answers to these ban it, right ones clear it. After that, only
more violations ban it: about jobs of several established submitters, refuted by nodes of several owners.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from computepool.core.trust.discounting import DAY_MS

#: This many within the window are no accident, if they are about jobs of several submitters.
VIOLATIONS_MAX: Final = 3
WINDOW_MS: Final = 30 * DAY_MS
SUBMITTERS_MIN: Final = 2
#: Required to ban a node that was tested and cleared.
OLD_SUBMITTERS_MIN: Final = 3
REFUTERS_MIN: Final = 3
#: Tests, each with a job of a different submitter: this many right answers clear a node, this many wrong ones ban it.
PROBES_RIGHT: Final = 3
PROBES_WRONG: Final = 2
#: Violations remembered per node; decisions need no more.
_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class Violation:
    at_ms: int
    submitter: int = 0  #: the number of the job's submitter; 0: none in particular
    old: bool = False  #: the submitter is established, and was not among the refuters
    refuters: tuple[int, ...] = ()  #: the numbers of the owners whose nodes got the other result


def encode(violations: Iterable[Violation]) -> str:
    return ";".join(
        f"{each.at_ms}:{each.submitter}:{int(each.old)}:{'+'.join(map(str, each.refuters))}" for each in violations
    )


def decode(text: str) -> list[Violation]:
    return [_one(part) for part in text.split(";") if part]


def _one(text: str) -> Violation:
    at_ms, submitter, old, refuters = text.split(":")
    by = tuple(int(number) for number in refuters.split("+") if number)
    return Violation(int(at_ms), int(submitter), old == "1", by)


def remember(text: str, violation: Violation) -> str:
    """Add a violation and keep the newest few, the oldest first. Another hub's clock may be behind."""
    known = sorted([*decode(text), violation], key=lambda each: each.at_ms)
    return encode(known[-_KEPT:])


def recent(text: str, now_ms: int, *, after_ms: int = 0) -> list[Violation]:
    return [each for each in decode(text) if after_ms < each.at_ms and now_ms - each.at_ms < WINDOW_MS]


def suspicious(found: Sequence[Violation]) -> bool:
    """Whether there are enough violations to test the node."""
    return len(found) >= VIOLATIONS_MAX and len({each.submitter for each in found}) >= SUBMITTERS_MIN


def widely_held(found: Sequence[Violation]) -> bool:
    """Whether the violations involve too many unrelated accounts for a cheap plot."""
    old = [each for each in found if each.old]
    submitters = {each.submitter for each in old}
    refuters = {number for each in old for number in each.refuters}
    return len(submitters) >= OLD_SUBMITTERS_MIN and len(refuters - submitters) >= REFUTERS_MIN
