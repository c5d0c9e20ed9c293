"""The output of jobs: kept in order, bounded per attempt, read live by long poll."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from computepool.core.jobs.lifecycle import TERMINAL, AttemptState, JobState
from computepool.core.trust.verification import Mode
from computepool.hub.artifacts import inline_rows, storage_quota
from computepool.hub.artifacts.storage_quota import StorageChanges
from computepool.hub.context import Hub
from computepool.hub.db import event_rows
from computepool.hub.db.event_rows import LogRow
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.jobs import attempt_rows
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.attempt_rows import NamedAttempt, OwnedAttempt
from computepool.hub.jobs.rows import JobRow
from computepool.hub.snapshot import Snapshot, take_for
from computepool.protocol.jobs.jobs import LogChunk, LogPage
from computepool.protocol.nodes.nodes import LogsRequest, LogText

STDOUT = "stdout"
#: Tries whose output together was held against the report of the last one (printed_output.py).
_COMPARED_MAX = 2


async def receive(hub: Hub, node: NodePrincipal, request: LogsRequest) -> None:
    ids = {chunk.attempt_id for chunk in request.chunks}
    snapshot = take_for(hub, node.node_id, ids)

    def unit(tx: Tx) -> dict[str, int]:
        rows = attempt_rows.lock_attempts(tx, ids)
        return Arrivals(snapshot, rows, request.chunks, node_id=node.node_id).write(tx)

    storage_quota.follow(hub, StorageChanges(given=await hub.store.write(unit)))


@dataclass(slots=True)
class Log:
    """What one attempt has sent, with what has just arrived."""

    job_id: str
    bytes: int
    next: int  #: number of the next piece
    account_id: str
    max_bytes: int
    stdout_chars: int  #: that are kept
    new: list[LogText] = field(default_factory=list)  #: to be kept

    @property
    def new_stdout(self) -> str:
        return "".join(chunk.text for chunk in self.new if chunk.stream == STDOUT)


class Arrivals:
    """What a node sends of its attempts' output; nothing is written before `write`.

    A piece that comes again, because the answer to it was lost, is kept once. Bytes beyond the limit are counted but not
    kept. Nothing is added to what was reported: it was compared with the report. A node's words about a foreign attempt
    are ignored.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        attempts: Mapping[str, OwnedAttempt],
        chunks: Sequence[LogText],
        *,
        node_id: str,
    ) -> None:
        self._snapshot = snapshot
        self._logs: dict[str, Log] = {}
        open_ids = {
            row.id for row in attempts.values() if row.node_id == node_id and row.report_digest is None
        }
        for chunk in chunks:
            if chunk.attempt_id in open_ids:
                log = self._logs[chunk.attempt_id] = self.of(attempts[chunk.attempt_id])
                self._add(chunk, log)

    def of(self, attempt: OwnedAttempt) -> Log:
        known = self._logs.get(attempt.id)
        return known or Log(
            job_id=attempt.job_id,
            bytes=attempt.log_bytes,
            next=attempt.log_next,
            stdout_chars=attempt.stdout_chars,
            account_id=attempt.account_id,
            max_bytes=storage_quota.log_max_bytes(self._snapshot, attempt.account_id),
        )

    def new_stdout(self, attempt_id: str) -> str:
        """What is not written yet."""
        log = self._logs.get(attempt_id)
        return "" if log is None else log.new_stdout

    def _add(self, chunk: LogText, log: Log) -> None:
        if not chunk.text or (chunk.seq is not None and chunk.seq < log.next):
            return
        text = chunk.text.replace("\x00", "\ufffd")  # PostgreSQL's text cannot hold NUL
        if log.bytes < log.max_bytes:
            log.new.append(chunk.model_copy(update={"text": text}))
            log.stdout_chars += len(text) if chunk.stream == STDOUT else 0
        log.bytes += len(text.encode())
        log.next = log.next + 1 if chunk.seq is None else chunk.seq + 1

    def write(self, tx: Tx) -> dict[str, int]:
        """By account, how many bytes more it keeps."""
        grown = [
            {"attempt": id_, "size": log.bytes, "next": log.next, "chars": log.stdout_chars}
            for id_, log in self._logs.items()
        ]
        if grown:
            event_rows.grow_logs(tx, grown)
        rows = [
            {"job_id": log.job_id, "attempt_id": id_, "stream": chunk.stream, "text": chunk.text}
            for id_, log in self._logs.items()
            for chunk in log.new
        ]
        if rows:
            event_rows.insert_logs(tx, rows)
        sizes: Counter[str] = Counter()
        for log in self._logs.values():
            if log.new:
                sizes[log.account_id] += sum(len(chunk.text.encode()) for chunk in log.new)
                tx.touch(f"log:{log.job_id}")
        for account_id, size in sizes.items():
            inline_rows.count(tx, account_id, size)
        return sizes


@dataclass(slots=True)
class _Seen:
    rows: Sequence[LogRow] = ()
    complete: bool | None = None


def _read(
    hub: Hub, connection: Connection, job_id: str, *, job: JobRow | None, after: int, limit: int
) -> _Seen:
    runs = [] if job is None else attempt_rows.get_attempts(connection, job_id)
    hidden = [] if job is None else _hidden(job, runs)
    rows = event_rows.list_logs(connection, job_id=job_id, after=after, limit=limit, without=hidden)
    return _Seen(rows, None if job is None else _is_complete(hub, job, runs))


def _hidden(job: JobRow, runs: Sequence[NamedAttempt]) -> list[str]:
    """Runs that are no part of the job's output: they only confirm it, were wrong, or came to nothing.

    While nothing is accepted the first run that came to a result is shown, as it was while it ran.
    """
    if job.accepted_attempt is not None:
        counting = _chain_of(runs, job.accepted_attempt)
        return [run.id for run in runs if run.number not in counting]
    wrong = [run.id for run in runs if run.state == AttemptState.REFUTED]
    if job.verify == Mode.NONE.value:
        return wrong
    first = min((run.number for run in runs if run.outcome is not None), default=job.attempt_no)
    return wrong + [run.id for run in runs if run.number > first]


def _chain_of(runs: Sequence[NamedAttempt], accepted: int) -> set[int]:
    """The accepted attempt, and those that it went on from."""
    before = {run.number: run.resumed_no for run in runs}
    numbers: set[int] = set()
    number: int | None = accepted
    while number is not None and number not in numbers:
        numbers.add(number)
        number = before.get(number)
    return numbers


def _is_complete(hub: Hub, job: JobRow, runs: Sequence[NamedAttempt]) -> bool | None:
    """Whether what is shown was compared with what was reported (printed_output.py), and is all of it.

    It was not where the run went on from another owner's checkpoint, or from more than one. Of functions and sealed jobs
    nothing is reported.
    """
    run = next((run for run in runs if run.number == job.accepted_attempt), None)
    if run is None or run.printed is None:
        return None
    if run.printed_chars is None or run.resumed_no is None:
        return run.printed_chars is not None and bool(run.stdout_chars >= run.printed_chars)
    shown = [each for each in runs if each.number in _chain_of(runs, run.number)]
    return (
        len(shown) == _COMPARED_MAX
        and len({each.owner_id for each in shown}) == 1
        and run.log_bytes < storage_quota.must_send_bytes(hub.settings)
        and bool(sum(each.stdout_chars for each in shown) == run.printed_chars)
    )


async def page(hub: Hub, job_id: str, *, after: int, limit: int, wait_ms: int) -> LogPage:
    """New chunks, waiting for the first of them if asked to. `ended` only when nothing more can come."""

    async def look() -> tuple[tuple[_Seen, bool], bool]:
        # The state is read first: chunks are committed no later than the report that ends the job.
        job = await hub.store.read(lambda connection: job_rows.get_job(connection, job_id))
        seen = await hub.store.read(
            lambda connection: _read(hub, connection, job_id, job=job, after=after, limit=limit)
        )
        over = job is None or JobState(job.state) in TERMINAL
        return (seen, over), bool(seen.rows) or over

    seen, over = await hub.long_poll(look, f"log:{job_id}", f"job:{job_id}", wait_ms=wait_ms)
    chunks = [LogChunk.from_attributes(row) for row in seen.rows]
    return LogPage(
        chunks=chunks,
        cursor=chunks[-1].seq if chunks else after,
        ended=over and len(chunks) < limit,
        complete=seen.complete,
    )
