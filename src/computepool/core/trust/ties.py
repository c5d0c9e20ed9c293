"""Ties: programs about whose results two owners disagreed, without a third result to decide.

Soft state. Immutable, because a unit of work may hold on to it while the hub records the next result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

_PROGRAMS_MAX: Final = 10_000
#: Account and digest of the spec.
Program = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Tie:
    count: int = 0  #: consecutive ties
    owners: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Ties:
    """Forgotten at a restart, which costs a few runs."""

    programs: Mapping[Program, Tie] = field(default_factory=dict)

    def with_result(self, program: Program, owners: Iterable[str]) -> Ties:
        """With one more tie between these owners. No owners: the results agreed, which ends the series."""
        known = dict(self.programs)
        tie = known.pop(program, Tie())
        if owners := frozenset(owners):
            known[program] = Tie(tie.count + 1, tie.owners | owners)
        if len(known) > _PROGRAMS_MAX:
            known.pop(next(iter(known)))
        return Ties(known)

    def owners(self, program: Program, *, most: int) -> frozenset[str]:
        """Owners whose results of this program have tied too often to ask them again."""
        tie = self.programs.get(program)
        return frozenset() if tie is None or tie.count < most else tie.owners
