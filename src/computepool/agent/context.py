"""The context that all parts of a running agent share: the client of the hub, the identity, the clock and the limits."""

from __future__ import annotations

from dataclasses import dataclass

from computepool.agent.clock import AgentClock
from computepool.agent.config import AgentLimits
from computepool.agent.hub_link.hub_client import HubClient
from computepool.agent.hub_link.identity import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    client: HubClient
    identity: Identity
    clock: AgentClock
    limits: AgentLimits
