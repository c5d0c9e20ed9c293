"""The hub: what every use case gets as its first argument. Built once, in app.py; each domain owns its state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from computepool.hub.artifacts.state import ArtifactsState
from computepool.hub.clock import Clock
from computepool.hub.db.session import Store
from computepool.hub.db.signals import Signals
from computepool.hub.identity.state import IdentityState
from computepool.hub.jobs.state import JobsState
from computepool.hub.money.state import MoneyState
from computepool.hub.nodes.state import NodesState
from computepool.hub.observability.state import ObservabilityState
from computepool.hub.process import ProcessState
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
    settlement: SettlementState
    observability: ObservabilityState

    def now_ms(self) -> int:
        return self.clock.now_ms()

    async def long_poll(self, look: Callable[[], Awaitable[tuple[T, bool]]], *topics: str, wait_ms: int) -> T:
        """What is found, as soon as `look` says that this is enough, or the time is over. It looks again whenever one of the
        topics may have changed."""
        deadline_ms = self.now_ms() + wait_ms
        while True:
            with self.signals.watch(*topics) as watch:
                found, enough = await look()
                left_ms = deadline_ms - self.now_ms()
                if enough or left_ms <= 0 or self.process.stopping:
                    return found
                await watch.wait(left_ms / 1000)
