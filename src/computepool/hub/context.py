"""The hub: what every use case gets as its first argument. Built once, in app.py; each domain owns its state."""

from __future__ import annotations

from dataclasses import dataclass

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
