"""Poll intervals, lease lengths, and the times after which a silent node is suspected and given up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRules:
    """The defaults are for production; tests scale them down together."""

    polls_per_s_max: int = 4_000
    interval_min_ms: int = 10_000
    interval_max_ms: int = 50_000
    lease_min_ms: int = 60_000
    suspect_slack_ms: int = 10_000
    self_fence_ms: int = 10_000  #: how long before the end of its lease the agent stops a job
    boot_grace_min_ms: int = 120_000

    def interval_ms(self, nodes: int) -> int:
        """How long the hub holds a poll open. However many nodes there are, polls never exceed `polls_per_s_max`."""
        return max(self.interval_min_ms, min(self.interval_max_ms, nodes * 1_000 // self.polls_per_s_max))

    def lease_ms(self, interval_ms: int) -> int:
        """The length of a lease. A node that has been silent for this long is offline."""
        return max(self.lease_min_ms, 3 * interval_ms)

    def suspect_after_ms(self, interval_ms: int) -> int:
        return 2 * interval_ms + self.suspect_slack_ms

    def boot_grace_ms(self, interval_ms: int) -> int:
        """How long a restarted hub takes no leases back, because it has not heard from the nodes yet."""
        return max(self.boot_grace_min_ms, 3 * interval_ms)
