"""The hub: the first argument of every use case. app.py builds it once; each domain owns its part of the state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from computepool.hub.artifacts.state import ArtifactsState
from computepool.hub.clock import Clock
from computepool.hub.db.session import Store
from computepool.hub.db.signals import Signals
from computepool.hub.groups.state import GroupsState
from computepool.hub.identity.state import IdentityState
from computepool.hub.jobs.state import JobsState
from computepool.hub.money.state import MoneyState
from computepool.hub.nodes.state import NodesState
from computepool.hub.observability.state import ObservabilityState
from computepool.hub.process import ProcessState
from computepool.hub.scheduling.state import SchedulingState
from computepool.hub.settings import Settings
from computepool.hub.settlement.state import SettlementState
from computepool.hub.trust.state import TrustState

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    settings: Settings
    clock: Clock
    store: Store
    signals: Signals
    process: ProcessState
    identity: IdentityState
    artifacts: ArtifactsState
    money: MoneyState
    trust: TrustState
    nodes: NodesState
    jobs: JobsState
    scheduling: SchedulingState
    settlement: SettlementState
    groups: GroupsState
    observability: ObservabilityState

    def now_ms(self) -> int:
        return self.clock.now_ms()

    async def long_poll(self, load: Callable[[], Awaitable[tuple[T, bool]]], *topics: str, wait_ms: int) -> T:
        """Call `load` whenever one of the topics may have changed. Returns what it found as soon as it says that this is
        enough, or at the time-out."""
        deadline_ms = self.now_ms() + wait_ms
        while True:
            with self.signals.watch(*topics) as watch:
                found, enough = await load()
                left_ms = deadline_ms - self.now_ms()
                if enough or left_ms <= 0 or self.process.stopping:
                    return found
                await watch.wait(left_ms / 1000)
