"""How long jobs of a spec run, in memory: short ones are given to a node several at a time."""

from __future__ import annotations

_WEIGHT = 0.2
_SPECS_MAX = 10_000


class RunLengths:
    def __init__(self) -> None:
        self._ms: dict[str, float] = {}  #: by spec digest, the newest count more

    def learn(self, digest: str, ran_ms: float) -> None:
        before = self._ms.get(digest)
        if before is None and len(self._ms) >= _SPECS_MAX:
            self._ms.clear()
        self._ms[digest] = ran_ms if before is None else before + _WEIGHT * (ran_ms - before)

    def of(self, digest: str) -> float | None:
        return self._ms.get(digest)
