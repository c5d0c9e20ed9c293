"""The billable time of a run: by what agreeing runs took, and by what the program usually takes.

Pure rules over whole milliseconds. Slower hardware may take longer than faster, by the speeds of their tiers; a faster one
need not be faster, because not every job uses what makes it so. A run's time is its node's word: this bounds it from above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from computepool.core.resources import UNKNOWN_GPU_TIER
from computepool.core.trust.tiers import TIER_SPEED

_PROGRAMS_MAX: Final = 2_000
_RUNS_MAX: Final = 32
#: So many runs must be known before one of the same program can be called long.
_RUNS_MIN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    ms: int
    tier: str = ""  #: of the hardware
    items: int = 1  #: that the job carried

    @property
    def speed(self) -> int:
        return TIER_SPEED.get(self.tier, TIER_SPEED[UNKNOWN_GPU_TIER])

    def as_on(self, other: Timed) -> int:
        """What it would have taken on the other's hardware and with the other's items, in the other's favour."""
        return self.ms * max(self.speed, other.speed) * other.items // (other.speed * self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTolerance:
    """So many times as long, and so much longer, is still the same."""

    percent: int
    grace_ms: int

    def most(self, ms: int) -> int:
        return ms * self.percent // 100 + self.grace_ms


def allowed_ms(runs: Sequence[Timed], place: int, within: TimeTolerance) -> int:
    """What one of several agreeing runs may be billed: by the shorter of two, of more by their (lower) median."""
    run = runs[place]
    as_here = sorted(other.as_on(run) for other in runs)
    return min(run.ms, within.most(as_here[(len(as_here) - 1) // 2]))


@dataclass(frozen=True, slots=True)
class RunTimes:
    """What the last agreeing runs of programs took. Soft state: it only makes that more is checked. Never changed in place:
    a unit of work may hold on to it while the hub notes the next one.
    """

    _programs: Mapping[str, tuple[Timed, ...]] = field(default_factory=dict)

    def note(self, program: str, run: Timed) -> RunTimes:
        known = dict(self._programs)
        known[program] = (*known.pop(program, ()), run)[-_RUNS_MAX:]  # as the last: the oldest goes first
        if len(known) > _PROGRAMS_MAX:
            known.pop(next(iter(known)))
        return RunTimes(known)

    def is_long(self, program: str, run: Timed, within: TimeTolerance) -> bool:
        """Whether it took far longer than nine in ten of those before."""
        known = self._programs.get(program, ())
        if len(known) < _RUNS_MIN or run.ms <= within.grace_ms:
            return False
        as_here = sorted(other.as_on(run) for other in known)
        return run.ms > within.most(as_here[(len(as_here) * 9 - 1) // 10])
