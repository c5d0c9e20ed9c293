"""The one place that brings the hub's memory in step with a transaction after its commit."""

from __future__ import annotations

from computepool.hub.artifacts import storage_quota
from computepool.hub.context import Hub
from computepool.hub.jobs.transactions import MemoryChanges


async def follow(hub: Hub, changed: MemoryChanges) -> None:
    registry, queue, memory = hub.nodes.registry, hub.jobs.queue, hub.settlement
    for node_id, attempt_id in changed.reported:
        registry.drop(node_id, attempt_id)
    for job_id in changed.finished:
        queue.forget(job_id)
    for node_id, attempt_id in changed.stopped:
        registry.cancel(node_id, attempt_id)
    for node_id, until_ms in changed.cool_offs.items():
        registry.rest(node_id, until_ms, now_ms=hub.now_ms())
    if changed.varying:  # otherwise the set would be copied for nothing
        memory.varying |= changed.varying
    for program, owners in changed.ties:
        memory.ties = memory.ties.with_result(program, owners)
    for digest, run in changed.timed:
        memory.run_times = memory.run_times.with_run(digest, run)
    storage_quota.apply(hub, changed.storage)
    if changed.requeued:
        await queue.requeue(changed.requeued)
    queue.wake()
