"""Bring the hub's memory in step with a transaction after its commit: the one place that does so."""

from __future__ import annotations

from collections.abc import Sequence

from computepool.core.jobs.lifecycle import Reason
from computepool.hub.artifacts import storage_quota
from computepool.hub.context import Hub
from computepool.hub.jobs.transitions import NOTHING, Settlement
from computepool.protocol.nodes.nodes import Report


async def follow(hub: Hub, settlement: Settlement) -> None:
    if settlement is NOTHING:
        return
    registry, queue = hub.nodes.registry, hub.jobs.queue
    for node_id, attempt_id in settlement.over:
        registry.drop(node_id, attempt_id)
    for job_id in settlement.finished:
        queue.forget(job_id)
    for node_id, attempt_id in settlement.ended:
        registry.cancel(node_id, attempt_id)
    for node_id, until_ms in settlement.resting.items():
        registry.rest(node_id, until_ms, now_ms=hub.now_ms())
    if settlement.varying:  # else a copy for nothing
        hub.settlement.varying |= settlement.varying
    for program, owners in settlement.ties:
        hub.settlement.ties = hub.settlement.ties.note(program, owners)
    for digest, run in settlement.timed:
        hub.settlement.run_times = hub.settlement.run_times.note(digest, run)
    storage_quota.follow(hub, settlement.storage)
    if settlement.requeued:
        await queue.requeue(settlement.requeued)
    queue.wake()


def learn(hub: Hub, node_id: str, reports: Sequence[Report]) -> None:
    """How long such jobs run, while it is known what the node holds."""
    session = hub.nodes.registry.get(node_id)
    for report in reports:
        attempt = session.attempts.get(report.attempt_id) if session is not None else None
        if attempt is not None and report.reason is Reason.COMPLETED:
            hub.jobs.run_lengths.learn(attempt.grant.spec, float(report.ran_ms))
