"""What jobs print: kept in order, bounded per attempt, read live by long poll."""

from __future__ import annotations

from collections.abc import Sequence

from computepool.core.jobs import TERMINAL, JobState
from computepool.core.verification import Mode
from computepool.hub.services.access import NodePrincipal
from computepool.hub.services.context import Hub
from computepool.hub.store import attempts as attempt_rows
from computepool.hub.store import jobs as job_rows
from computepool.hub.store import records
from computepool.hub.store.session import AnyRow, Connection, Tx
from computepool.protocol.jobs import LogChunk, LogPage
from computepool.protocol.nodes import LogsRequest, LogText


async def receive(hub: Hub, node: NodePrincipal, request: LogsRequest) -> None:
    await hub.store.write(lambda tx: append(hub, tx, request.chunks, node_id=node.node_id))


def append(hub: Hub, tx: Tx, chunks: Sequence[LogText], *, node_id: str) -> None:
    """Bytes beyond the limit are counted but not kept; a node's words about a foreign attempt are ignored."""
    rows: list[dict[str, str]] = []
    for chunk in chunks:
        text = chunk.text.replace("\x00", "\ufffd")  # PostgreSQL's text cannot hold NUL
        size = len(text.encode())
        grown = records.grow_log(tx, chunk.attempt_id, node_id=node_id, size=size)
        if grown is None or grown.log_bytes - size >= hub.settings.log_max_bytes:
            continue
        rows.append(
            {"job_id": grown.job_id, "attempt_id": chunk.attempt_id, "stream": chunk.stream, "text": text}
        )
        tx.touch(f"log:{grown.job_id}")
    if rows:
        records.insert_logs(tx, rows)


def _unseen(connection: Connection, job: AnyRow | None) -> list[str]:
    """Runs that only confirm, or were wrong: what they print is no part of the job's output.

    While nothing is accepted the first run that came to a result is shown, as it was while it ran.
    """
    if job is None or job.verify == Mode.NONE.value:
        return []
    runs = attempt_rows.get_attempts(connection, job.id)
    first = min((run.number for run in runs if run.outcome is not None), default=job.attempt_no)
    if job.accepted_attempt is not None:
        return [run.id for run in runs if run.outcome is not None and run.number != job.accepted_attempt]
    return [run.id for run in runs if run.number > first]


async def page(hub: Hub, job_id: str, *, after: int, limit: int, wait_ms: int) -> LogPage:
    """New chunks, waiting for the first of them if asked to. `ended` only when nothing more can come."""
    deadline_ms = hub.now_ms() + wait_ms
    while True:
        with hub.signals.watch(f"log:{job_id}", f"job:{job_id}") as watch:
            # The state is read first: chunks are committed no later than the report that ends the job.
            job = await hub.store.read(lambda connection: job_rows.get_job(connection, job_id))
            rows = await hub.store.read(
                lambda connection, job=job: records.list_logs(  # type: ignore[misc]
                    connection, job_id=job_id, after=after, limit=limit, without=_unseen(connection, job)
                )
            )
            over = job is None or JobState(job.state) in TERMINAL
            left_ms = deadline_ms - hub.now_ms()
            if rows or over or left_ms <= 0 or hub.stopping:
                break
            await watch.wait(left_ms / 1000)
    chunks = [
        LogChunk(seq=row.seq, attempt_id=row.attempt_id, stream=row.stream, text=row.text) for row in rows
    ]
    return LogPage(
        chunks=chunks, cursor=chunks[-1].seq if chunks else after, ended=over and len(chunks) < limit
    )
