"""Submitter reputations in memory: asked for with every placement, so never from the database."""

from __future__ import annotations

from computepool.core.trust.submitter_reputation import UNKNOWN, SubmitterReputation
from computepool.hub.clock import Clock


class Submitters:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, SubmitterReputation] = {}
        self.read_up_to_ms = 0  #: what was recorded until then, by whichever hub, is here

    def follow(self, changed: dict[str, SubmitterReputation]) -> None:
        self._known.update(changed)

    def of(self, account_id: str) -> SubmitterReputation:
        return self._known.get(account_id, UNKNOWN)

    def score(self, account_id: str) -> float:
        """From 0 to 1, now; somebody of whom nothing is known is not trusted fully (0.71)."""
        return self.of(account_id).score(self._clock.now_ms())

    def accounts(self) -> list[str]:
        return list(self._known)
