"""Nodes' reputations in the hub's memory and in people's words. What counts is decided in core/reputation.py."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from computepool.core.reputation import NEWCOMER, ONE, Reputation, owes_dues
from computepool.hub.services.context import Hub
from computepool.hub.store import reputations as reputation_rows
from computepool.protocol.nodes import ReputationView

_BATCH = 500
_DIGITS = 4


def follow(hub: Hub, changed: Mapping[str, Reputation]) -> None:
    """Into the registry, for placements from now on. Nodes that are not here are asked about when they come."""
    now_ms, needed = hub.now_ms(), hub.settings.dues_successes
    for node_id, reputation in changed.items():
        if node_id in hub.registry.fleet:
            hub.registry.fleet.set_reliability(node_id, reputation.score(now_ms))
            hub.registry.fleet.set_dues(node_id, owes_dues(reputation, needed))


async def refresh(hub: Hub, node_ids: Sequence[str]) -> None:
    """What the store says now: when a node comes, and when another hub recorded something about it."""
    found = await hub.store.read(lambda connection: reputation_rows.load(connection, node_ids))
    follow(hub, {node_id: found.get(node_id, NEWCOMER) for node_id in node_ids})


async def refresh_all(hub: Hub) -> None:
    """Silence fades evidence, and a word of another hub may be lost: now and then, a few nodes at a time."""
    node_ids = [session.node_id for session in hub.registry.sessions]
    for start in range(0, len(node_ids), _BATCH):
        await refresh(hub, node_ids[start : start + _BATCH])
        await asyncio.sleep(0)


def view(hub: Hub, reputation: Reputation) -> ReputationView:
    now_ms = hub.now_ms()
    success, failure = reputation.faded(now_ms)
    return ReputationView(
        score=round(reputation.score(now_ms), _DIGITS),
        successes=reputation.successes,
        failures=reputation.failures,
        success_weight=round(success / ONE, _DIGITS),
        failure_weight=round(failure / ONE, _DIGITS),
        changed_at_ms=reputation.changed_at_ms or None,
        newcomer=owes_dues(reputation, hub.settings.dues_successes),
        dues_paid=min(reputation.dues, hub.settings.dues_successes),
        dues=hub.settings.dues_successes,
        tenure_days=reputation.tenure_days,
    )


def sentence(view: ReputationView) -> str:
    """For the node's owner: what it is worth, from what, and what a newcomer has to do."""
    known = f"Reliability {view.score:.2f}"
    if view.changed_at_ms is None:
        known += ": nothing is known of it yet."
    else:
        done = "1 job" if view.successes == 1 else f"{view.successes} jobs"
        lost = "1 failure" if view.failures == 1 else f"{view.failures} failures"
        known += f", from {done} done and {lost} of its own."
    if not view.newcomer:
        return known
    return f"{known} As a newcomer it gets one job of others at a time, until {view.dues} are done ({view.dues_paid} so far)."
