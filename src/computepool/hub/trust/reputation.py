"""Nodes' reputations in memory and in views, pardons and reviews. What counts is decided in core/trust/reputation.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from computepool.core.errors import Conflict
from computepool.core.resources import NodeState
from computepool.core.trust.discounting import ONE
from computepool.core.trust.reputation import (
    NEWCOMER,
    PARDONED_ACTION,
    Reputation,
    exposure_cap,
    is_newcomer,
    newcomer_jobs_done,
)
from computepool.core.trust.violations import PROBES_RIGHT, VIOLATIONS_MAX
from computepool.core.words import pluralize
from computepool.hub.approvals import rows as approval_rows
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal
from computepool.hub.nodes import rows as node_rows
from computepool.hub.nodes.rows import NodeRow
from computepool.hub.trust import reputation_rows
from computepool.protocol.nodes.nodes import ReputationView, ReviewReply

_BATCH = 500
_DIGITS = 4
_PENDING_MAX = 1_000


def update_fleet(hub: Hub, changed: Mapping[str, Reputation]) -> None:
    """Use these reputations for placements from now on. Those of absent nodes are read when the nodes arrive."""
    now_ms, fleet = hub.now_ms(), hub.nodes.registry.fleet
    needed, base = hub.settings.newcomer_jobs, hub.settings.exposure
    for node_id, reputation in changed.items():
        if node_id in fleet:
            success, failure = reputation.fade(now_ms)
            fleet.set_reliability(node_id, reputation.score(now_ms), (success / ONE, failure / ONE))
            fleet.set_newcomer(node_id, is_newcomer(reputation, needed))
            fleet.set_cap(node_id, exposure_cap(reputation, base) if base else None)
            fleet.set_integrity(node_id, streak=reputation.streak, banned=reputation.is_banned(now_ms))
            (hub.trust.suspects.add if reputation.probation_at_ms else hub.trust.suspects.discard)(node_id)


async def refresh(hub: Hub, node_ids: Sequence[str]) -> None:
    """Read the stored reputations again: another hub may have recorded something about these nodes."""
    found = await hub.store.read(reputation_rows.load, node_ids)
    update_fleet(hub, {node_id: found.get(node_id, NEWCOMER) for node_id in node_ids})


async def refresh_all(hub: Hub) -> None:
    """Regularly, in batches: evidence fades with time, and another hub's notification may be lost."""
    node_ids = [session.node_id for session in hub.nodes.registry.sessions]
    for start in range(0, len(node_ids), _BATCH):
        await refresh(hub, node_ids[start : start + _BATCH])
        await asyncio.sleep(0)


def predecessor(tx: Tx, owner: str, *, offline_after_ms: int) -> str | None:
    """The worst of an owner's nodes that are gone (revoked, or silent for a while) or banned.

    A new node may be one of them under a new key, which the hub cannot detect; so it inherits what counts against that one.
    """
    now_ms, silent_ms = tx.now_ms, tx.now_ms - offline_after_ms
    gone = [
        (known.is_banned(now_ms), known.recent_violations(now_ms), -known.score(now_ms), node_id)
        for node_id, state, seen_ms, known in reputation_rows.of_owner(tx.connection, owner)
        if state == NodeState.REVOKED or seen_ms < silent_ms or known.is_banned(now_ms)
    ]
    return max(gone)[3] if gone else None


async def pardon(hub: Hub, admin: Principal, node_id: str) -> None:
    """Lift a node's ban and clear its violations; its streak starts again. Does nothing if there is nothing to pardon."""

    def unit(tx: Tx) -> None:
        row = access.require_found(node_rows.get_node(tx.connection, node_id), what="node")
        known = reputation_rows.of_node(tx.connection, node_id)
        if known.banned_at_ms or known.penalised_at_ms:
            emit_pardoned(tx, row, actor=admin.account_id)

    await hub.store.write(unit)
    hub.jobs.queue.wake()


async def ask_review(hub: Hub, owner: Principal, node_id: str, *, note: str) -> ReviewReply:
    """Request a review of a ban or a probation. An administrator who approves it pardons the node; the evidence against the
    node is on its evidence page and in the events."""
    clock, life_ms = hub.clock, round(hub.settings.approval_lifetime_s * 1000)

    def unit(tx: Tx) -> ReviewReply:
        node = access.require_owned(owner, node_rows.get_node(tx.connection, node_id), what="node")
        known = reputation_rows.of_node(tx.connection, node_id)
        if not (known.banned_at_ms or known.probation_at_ms):
            raise Conflict("There is nothing to review: this node is neither banned nor on probation.")
        waiting = approval_rows.list_pending(tx.connection, since_ms=tx.now_ms - life_ms, limit=_PENDING_MAX)
        reviews = [json.loads(row.request) for row in waiting if row.kind == approval_rows.REVIEW]
        if any(review["node_id"] == node_id for review in reviews):
            raise Conflict("A review of this node was already requested and waits for an administrator.")
        about = {"node_id": node_id, "name": node.name, "note": note}
        details = {**about, "wrong": known.violation_count, "banned": bool(known.banned_at_ms)}
        asker, kind = owner.account_id, approval_rows.REVIEW
        return ReviewReply(approval_id=approval_rows.ask(tx, clock, asker, kind=kind, request=details))

    return await hub.store.write(unit)


def emit_pardoned(tx: Tx, node: NodeRow, *, actor: str) -> None:
    tx.emit(actor=actor, action=PARDONED_ACTION, account_id=node.account_id, node_id=node.id)
    tx.touch(f"node:{node.id}")


def view(hub: Hub, reputation: Reputation) -> ReputationView:
    now_ms = hub.now_ms()
    success, failure = reputation.fade(now_ms)
    return ReputationView.from_attributes(
        reputation,
        score=round(reputation.score(now_ms), _DIGITS),
        success_weight=round(success / ONE, _DIGITS),
        failure_weight=round(failure / ONE, _DIGITS),
        changed_at_ms=reputation.changed_at_ms or None,
        newcomer=is_newcomer(reputation, hub.settings.newcomer_jobs),
        newcomer_jobs_done=min(newcomer_jobs_done(reputation), hub.settings.newcomer_jobs),
        newcomer_jobs=hub.settings.newcomer_jobs,
        exposure_cap=exposure_cap(reputation, hub.settings.exposure) if hub.settings.exposure else None,
        recent_violations=reputation.recent_violations(now_ms),
        probation_at_ms=reputation.probation_at_ms or None,
        banned_at_ms=reputation.banned_at_ms or None,
    )


def sentence(view: ReputationView) -> str:
    """For the node's owner: its score, the reasons, and what a newcomer has to do."""
    known = f"Reliability {view.score:.2f}"
    if view.changed_at_ms is None:
        known += ": it has no record yet."
    else:
        done = pluralize(view.successes, "job")
        lost = pluralize(view.failures, "failure")
        known += f", from {done} done and {lost} of its own."
    if view.banned_at_ms is not None:
        return f"{known} It is banned: {view.violation_count} of its results were proven wrong. It works only for its owner."
    if view.probation_at_ms is not None:
        return (
            f"{known} It is on probation, because {view.recent_violations} of its results were proven wrong: all of them are "
            f"checked, and it is tested with jobs whose results are known ({view.probes_right} of {PROBES_RIGHT} right so far)."
        )
    if view.recent_violations:
        wrong = pluralize(view.recent_violations, "result was", "results were")
        known += f" {wrong} proven wrong in the last 30 days; {VIOLATIONS_MAX} put it on probation."
    if not view.newcomer:
        return known
    return (
        f"{known} As a newcomer it gets one job of others at a time, until {view.newcomer_jobs} are done and verified "
        f"({view.newcomer_jobs_done} so far; one that nobody checks counts a quarter)."
    )
