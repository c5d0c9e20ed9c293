"""Results of other jobs that a function takes as arguments: fetched from the hub, and placed as files for the worker."""

from __future__ import annotations

from functools import partial

from computepool.agent.context import Node
from computepool.agent.execution.attempt_result import BadJob, StagingFailed
from computepool.agent.execution.staging import place_artifact, place_text
from computepool.agent.hub_link.hub_client import retry
from computepool.agent.storage.artifacts import ArtifactCache
from computepool.agent.workers.workers import WorkerHandle
from computepool.core.errors import ComputePoolError, Conflict, NotFound
from computepool.protocol.base import LIST_MAX
from computepool.protocol.nodes.arguments import ArgumentPage


async def place_results(node: Node, cache: ArtifactCache, worker: WorkerHandle, *, attempt_id: str) -> list[list[str]]:
    """Pairs of a job and the file with its result, in the worker's folder."""
    placed: list[list[str]] = []
    start: int | None = 0
    while start is not None:
        page = await _fetch(node, attempt_id, start)
        for each in page.arguments:
            name = f".argument-{worker.next_seq()}"
            if each.result_artifact is not None:
                await place_artifact(cache, each.result_artifact, worker.workdir, name=name)
            else:
                place_text(each.result or "null", worker.workdir, name=name)
            placed.append([each.job_id, name])
        start = page.next
        if start is not None and (start != len(placed) or start > LIST_MAX):  # The hub may be hostile.
            raise StagingFailed("the hub's list of arguments does not end")
    return placed


async def _fetch(node: Node, attempt_id: str, start: int) -> ArgumentPage:
    try:
        return await retry(partial(node.client.arguments, attempt_id, after=start), node.client.backoff())
    except (Conflict, NotFound) as error:
        raise BadJob(error.detail) from error
    except ComputePoolError as error:
        raise StagingFailed(f"cannot fetch the arguments: {error.detail}") from error
