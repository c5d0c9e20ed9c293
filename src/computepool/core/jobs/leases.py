"""Intervals, lease lengths and the moments a silent node is suspected and given up. One place for the arithmetic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRules:
    """Defaults are the production constants; tests scale them down together."""

    polls_per_s_max: int = 4_000
    interval_min_ms: int = 10_000
    interval_max_ms: int = 50_000
    lease_min_ms: int = 60_000
    suspect_slack_ms: int = 10_000
    self_fence_ms: int = 10_000  #: the agent stops a job this long before its lease ends
    boot_grace_min_ms: int = 120_000

    def interval_ms(self, nodes: int) -> int:
        """How long a poll is parked: as many nodes as there are, polls never exceed the named rate."""
        return max(self.interval_min_ms, min(self.interval_max_ms, nodes * 1_000 // self.polls_per_s_max))

    def lease_ms(self, interval_ms: int) -> int:
        return max(self.lease_min_ms, 3 * interval_ms)

    def suspect_after_ms(self, interval_ms: int) -> int:
        return 2 * interval_ms + self.suspect_slack_ms

    def offline_after_ms(self, interval_ms: int) -> int:
        return max(self.lease_min_ms, 3 * interval_ms)

    def boot_grace_ms(self, interval_ms: int) -> int:
        """After a start the hub knows nobody yet, so it takes nothing back for this long."""
        return max(self.boot_grace_min_ms, 3 * interval_ms)
