"""The billable time of a run, bounded by the times of agreeing runs and by the program's usual time.

A run's time is reported by its node; these rules bound it from above. Slower hardware may take longer, in proportion to the
speeds of the tiers. Faster hardware need not be faster, because not every job uses what makes it so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from computepool.core.trust.tiers import speed_of

_PROGRAMS_MAX: Final = 2_000
_RUNS_MAX: Final = 32
#: A run can only be called long if at least this many runs of the program are known.
_RUNS_MIN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    ms: int
    tier: str = ""  #: of the hardware
    items: int = 1  #: items in the job

    @property
    def speed(self) -> int:
        return speed_of(self.tier)

    def as_on(self, other: Timed) -> int:
        """The time this run would have taken with the other's hardware and items, rounded in the other's favour."""
        return self.ms * max(self.speed, other.speed) * other.items // (other.speed * self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTolerance:
    """Times up to `percent` of another one plus `grace_ms` count as equal to it."""

    percent: int
    grace_ms: int

    def most(self, ms: int) -> int:
        return ms * self.percent // 100 + self.grace_ms


def allowed_ms(runs: Sequence[Timed], place: int, within: TimeTolerance) -> int:
    """The billable time of one of several agreeing runs, by the shorter of two or the lower median of more."""
    run = runs[place]
    as_here = sorted(other.as_on(run) for other in runs)
    return min(run.ms, within.most(as_here[(len(as_here) - 1) // 2]))


@dataclass(frozen=True, slots=True)
class RunTimes:
    """The times of the latest agreeing runs of each program. Soft state, which only causes additional checks.

    Immutable, because a unit of work may hold on to it while the hub records the next run.
    """

    _programs: Mapping[str, tuple[Timed, ...]] = field(default_factory=dict)

    def with_run(self, program: str, run: Timed) -> RunTimes:
        known = dict(self._programs)
        known[program] = (*known.pop(program, ()), run)[-_RUNS_MAX:]  # moves to the end, so that the oldest is dropped
        if len(known) > _PROGRAMS_MAX:
            known.pop(next(iter(known)))
        return RunTimes(known)

    def is_long(self, program: str, run: Timed, within: TimeTolerance) -> bool:
        """Whether the run took far longer than nine in ten of the earlier ones."""
        known = self._programs.get(program, ())
        if len(known) < _RUNS_MIN or run.ms <= within.grace_ms:
            return False
        as_here = sorted(other.as_on(run) for other in known)
        return run.ms > within.most(as_here[(len(as_here) * 9 - 1) // 10])
