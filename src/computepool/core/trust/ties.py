"""Ties: programs about whose results two owners disagreed, with nobody to tell who was right.

Soft state, and never changed in place: a unit of work may hold on to it while the hub notes the next one.
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
    count: int = 0  #: in a row
    owners: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Ties:
    """Forgotten at a restart: that costs a few runs."""

    programs: Mapping[Program, Tie] = field(default_factory=dict)

    def note(self, program: Program, owners: Iterable[str]) -> Ties:
        """One more; no owners: they agreed, so that there is none any more."""
        known = dict(self.programs)
        tie = known.pop(program, Tie())
        if owners := frozenset(owners):
            known[program] = Tie(tie.count + 1, tie.owners | owners)
        if len(known) > _PROGRAMS_MAX:
            known.pop(next(iter(known)))
        return Ties(known)

    def owners(self, program: Program, *, most: int) -> frozenset[str]:
        """Whose words about this program have tied too often to be asked for."""
        tie = self.programs.get(program)
        return frozenset() if tie is None or tie.count < most else tie.owners
