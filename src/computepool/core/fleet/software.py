"""The environments that nodes offer: which of them satisfy the dependencies of a job, and which rows have those.

An environment is judged once for each set of dependencies, however many nodes offer it and however many jobs need it.
Comparing versions needs a library, so the judge is given.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from computepool.core.environment import Environment
from computepool.core.fleet.features import Features, Mask, Rows

#: Whether an environment satisfies dependencies in canonical form.
Judge = Callable[[Environment, frozenset[str]], bool]
#: Sets of dependencies remembered.
ANSWERS_MAX = 1_024
#: Environments remembered in the order in which they came, of which many may be gone.
_SEEN_MAX = 4_096


@dataclass(slots=True)
class _Answer:
    judged: int = 0  #: environments judged so far, in the order in which they came
    digests: list[str] = field(default_factory=list)


class Software:
    def __init__(self, rows: int, judge: Judge) -> None:
        self._judge = judge
        self._offers = Features(rows)
        self._known: dict[str, tuple[Environment, int]] = {}  #: with the number of nodes
        self._seen: list[Environment] = []
        self._answers: OrderedDict[tuple[frozenset[str], frozenset[str]], _Answer] = OrderedDict()

    def grow(self, rows: int) -> None:
        self._offers.grow(rows)

    def add(self, row: int, environments: Iterable[Environment]) -> None:
        for digest, environment in {found.digest: found for found in environments}.items():
            known, nodes = self._known.get(digest, (environment, 0))
            self._known[digest] = known, nodes + 1
            if not nodes:
                self._seen.append(known)
            self._offers.add(row, (digest,))
        if len(self._seen) > _SEEN_MAX + 2 * len(self._known):
            self._seen = [environment for environment, _ in self._known.values()]
            self._answers.clear()

    def discard(self, row: int, environments: Iterable[Environment]) -> None:
        for digest in {found.digest for found in environments}:
            known, nodes = self._known[digest]
            if nodes > 1:
                self._known[digest] = known, nodes - 1
            else:
                del self._known[digest]
            self._offers.discard(row, (digest,))

    def intern(self, environments: Iterable[Environment]) -> tuple[Environment, ...]:
        """The same environments, as the one object that all nodes share."""
        return tuple(self._known.get(found.digest, (found, 0))[0] for found in environments)

    def offers(self, dependencies: frozenset[str], pythons: frozenset[str], rows: Rows) -> Mask | None:
        """The rows with an environment for these dependencies and any of these Pythons; None if no row has one."""
        mask: Mask | None = None
        for digest in self._find_satisfying(dependencies, pythons):
            if digest in self._known:
                has = self._offers.has(digest, rows)
                mask = has if mask is None else np.logical_or(mask, has, out=mask)
        return mask

    def _find_satisfying(self, dependencies: frozenset[str], pythons: frozenset[str]) -> list[str]:
        key = (dependencies, pythons)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = _Answer()
            if len(self._answers) > ANSWERS_MAX:
                self._answers.popitem(last=False)
        else:
            self._answers.move_to_end(key)
        for environment in self._seen[answer.judged :]:
            fits = not pythons or environment.python in pythons
            if fits and environment.digest not in answer.digests and self._judge(environment, dependencies):
                answer.digests.append(environment.digest)
        answer.judged = len(self._seen)
        return answer.digests
