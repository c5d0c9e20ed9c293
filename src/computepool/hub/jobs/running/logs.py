"""The output of jobs: kept in order, bounded per attempt, read live by long poll."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from computepool.core.jobs.lifecycle import TERMINAL, AttemptState, JobState
from computepool.core.trust.verification import Mode
from computepool.hub.artifacts import inline_rows, storage_quota
from computepool.hub.context import Hub
from computepool.hub.db import event_rows
from computepool.hub.db.event_rows import LogRow
from computepool.hub.db.session import Connection
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.jobs import attempt_rows, jobs, rows as job_rows
from computepool.hub.jobs.attempt_rows import NamedAttempt, OwnedAttempt
from computepool.hub.jobs.rows import JobRow
from computepool.hub.jobs.transactions import JobTx, write_stored
from computepool.hub.settings import Settings
from computepool.hub.snapshot import Snapshot, take_for
from computepool.protocol.jobs.views import LogChunk, LogPage
from computepool.protocol.nodes.nodes import LogsRequest, LogText

STDOUT = "stdout"
#: How many attempts' output together was compared with the report of the last one (printed_output.py).
_COMPARED_MAX = 2


async def receive(hub: Hub, node: NodePrincipal, request: LogsRequest) -> None:
    ids = {chunk.attempt_id for chunk in request.chunks}

    def unit(tx: JobTx) -> None:
        rows = attempt_rows.lock_attempts(tx, ids)
        Arrivals(tx.snapshot, rows, request.chunks, node_id=node.node_id).write(tx)

    await write_stored(hub, unit, take_for(hub, node.node_id, ids))


@dataclass(slots=True)
class Log:
    """The output of one attempt: counts of what it has sent, and what has just arrived."""

    job_id: str
    bytes: int
    next: int  #: number of the next chunk
    account_id: str
    max_bytes: int
    stdout_chars: int  #: that are stored
    new: list[LogText] = field(default_factory=list)  #: to be stored

    @property
    def new_stdout(self) -> str:
        return "".join(chunk.text for chunk in self.new if chunk.stream == STDOUT)


class Arrivals:
    """Output that a node sends for its attempts; nothing is written before `write`.

    A chunk that is sent again, because its reply was lost, is stored once. Bytes beyond the limit are counted but not stored.
    Nothing is added after the report, because the output was compared with it. Chunks for foreign attempts are ignored.
    """

    def __init__(
        self, snapshot: Snapshot, attempts: Mapping[str, OwnedAttempt], chunks: Sequence[LogText], *, node_id: str
    ) -> None:
        self._snapshot = snapshot
        self._logs: dict[str, Log] = {}
        open_ids = {row.id for row in attempts.values() if row.node_id == node_id and row.report_digest is None}
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

    def new_stdout(self) -> dict[str, str]:
        """By attempt; not written yet."""
        return {id_: log.new_stdout for id_, log in self._logs.items()}

    def _add(self, chunk: LogText, log: Log) -> None:
        if not chunk.text or (chunk.seq is not None and chunk.seq < log.next):
            return
        text = chunk.text.replace("\x00", "\ufffd")  # PostgreSQL's text cannot hold NUL
        if log.bytes < log.max_bytes:
            log.new.append(chunk.model_copy(update={"text": text}))
            log.stdout_chars += len(text) if chunk.stream == STDOUT else 0
        log.bytes += len(text.encode())
        log.next = log.next + 1 if chunk.seq is None else chunk.seq + 1

    def write(self, tx: JobTx) -> None:
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
        for log in self._logs.values():
            if log.new:
                size = sum(len(chunk.text.encode()) for chunk in log.new)
                inline_rows.count(tx, log.account_id, size)
                tx.memory.storage.add(log.account_id, size)
                tx.touch(f"log:{log.job_id}")
        tx.unsaved_output = {}


def _hidden_attempts(job: JobRow, runs: Sequence[NamedAttempt]) -> list[str]:
    """Attempts that are no part of the job's output: they only confirmed it, were wrong, or failed.

    While no result is accepted, the output of the first attempt with a result is shown, as it was while that ran.
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
    """The accepted attempt, and those from whose checkpoints it resumed."""
    before = {run.number: run.resumed_no for run in runs}
    numbers: set[int] = set()
    number: int | None = accepted
    while number is not None and number not in numbers:
        numbers.add(number)
        number = before.get(number)
    return numbers


def _is_complete(settings: Settings, job: JobRow, runs: Sequence[NamedAttempt]) -> bool | None:
    """Whether the output is complete, and was compared with the report (printed_output.py); None if nothing was reported, as
    for functions and sealed jobs. If the run resumed from another owner's checkpoint, or from several, it was not compared.
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
        and run.log_bytes < storage_quota.must_send_bytes(settings)
        and bool(sum(each.stdout_chars for each in shown) == run.printed_chars)
    )


async def page(hub: Hub, principal: Principal, job_id: str, *, after: int, limit: int, wait_ms: int) -> LogPage:
    """New chunks; with `wait_ms`, wait for the first. `ended` is true only if nothing more can come."""

    def read(connection: Connection) -> tuple[JobRow, list[LogRow], bool | None]:
        # The state is read first, because chunks are committed no later than the report that ends the job.
        job = jobs.require_owned(principal, job_rows.get_job(connection, job_id))
        runs = attempt_rows.get_attempts(connection, job_id)
        hidden = _hidden_attempts(job, runs)
        rows = event_rows.list_logs(connection, job_id=job_id, after=after, limit=limit, without=hidden)
        return job, rows, _is_complete(hub.settings, job, runs)

    async def look() -> tuple[tuple[bool, list[LogRow], bool | None], bool]:
        job, rows, complete = await hub.store.read(read)
        over = JobState(job.state) in TERMINAL
        return (over, rows, complete), bool(rows) or over

    over, rows, complete = await hub.long_poll(look, f"log:{job_id}", f"job:{job_id}", wait_ms=wait_ms)
    return LogPage(
        chunks=[LogChunk.from_attributes(row) for row in rows],
        cursor=rows[-1].seq if rows else after,
        ended=over and len(rows) < limit,
        complete=complete,
    )
