"""Leaving the pool: notifies the hub, and removes the node's state from this machine."""

from __future__ import annotations

import contextlib
from pathlib import Path

from computepool.agent.config import AgentConfig
from computepool.agent.hub_link.hub_client import HubClient
from computepool.agent.owner.owner_rules import FILE as RULES
from computepool.agent.owner.saved_options import FILE as OPTIONS
from computepool.agent.sandbox.scratch import remove_tree
from computepool.core.errors import Unauthenticated
from computepool.protocol.money.market import OwnNodeView

_FORGOTTEN = ("node.key", OPTIONS, RULES, "paused")


async def leave(client: HubClient, config: AgentConfig) -> OwnNodeView | None:
    """Leave the pool; returns the hub's last view of the node, or None if the hub had removed it already."""
    known = None
    with contextlib.suppress(Unauthenticated):
        known = await client.leave()
    forget(config)
    return known


def forget(config: AgentConfig) -> None:
    """Remove the identity first: without it the rest is harmless. Caches and delivered results stay."""
    config.identity_path.unlink(missing_ok=True)
    for name in _FORGOTTEN:
        (config.data_dir / name).unlink(missing_ok=True)
    if config.outbox_dir.exists():
        remove_tree(config.outbox_dir)


def count_unreported(outbox: Path) -> int:
    """The number of report files that the hub has not received."""
    return sum(1 for _ in outbox.glob("*.json"))
