"""Checkpoints in the hub: kept with the job while its run lasts, given to the next attempt, paid for when they were used.

A checkpoint belongs to one run. When a result is there, or the job is over, it is dropped; where another run is
needed to confirm the result, that one starts from nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from computepool.core.errors import Forbidden, NotFound
from computepool.core.jobs import checkpoints as rules
from computepool.core.jobs.checkpoints import Link, Refusal, ReportedCheckpoint, StoredCheckpoint
from computepool.core.jobs.lifecycle import LIVE_ATTEMPT, AttemptState, Reason
from computepool.core.money.pricing import affordable_ms, charge_of
from computepool.core.trust.reputation import FAULT_ACTION
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.artifacts import storage_quota
from computepool.hub.artifacts.storage_quota import StorageChanges
from computepool.hub.context import Hub
from computepool.hub.db import event_rows as record_rows
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import authenticator
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.jobs import attempt_rows
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.attempt_rows import AttemptRow, LiveAttemptRow
from computepool.hub.jobs.rows import JobRow, LeasedJob
from computepool.hub.jobs.running import checkpoint_rows
from computepool.hub.jobs.running.checkpoint_rows import CheckpointRow
from computepool.hub.money import holds
from computepool.hub.money.holds import RunCharge
from computepool.hub.nodes import group_homes, hosts
from computepool.hub.nodes import rows as node_rows
from computepool.hub.snapshot import Snapshot, take_for, write
from computepool.protocol.jobs.checkpoints import CheckpointDetail, CheckpointReply, CheckpointReport
from computepool.protocol.jobs.jobs import CheckpointView, JobSpec, OutputFile

KEPT_ACTION = "checkpoint.saved"
UNDECLARED = "This job did not declare that it saves checkpoints."
UNMOVING = "This job did not declare that it moves."


def spec_of(tx: Tx, snapshot: Snapshot, job: JobRow) -> JobSpec:
    known = snapshot.specs.peek(job.spec_digest)
    if known is not None:
        return known.spec
    body = job_rows.get_specs(tx.connection, [job.spec_digest])[job.spec_digest]
    return JobSpec.model_validate_json(body)


# a node has one


async def receive(hub: Hub, node: NodePrincipal, report: CheckpointReport) -> CheckpointReply:
    if not authenticator.signed_by_node(node, report.signature, report.signed_text()):
        raise Forbidden("The checkpoint is not signed with this node's key.")
    known = take_for(hub, node.node_id, [report.attempt_id])

    def unit(tx: Tx, snapshot: Snapshot) -> tuple[CheckpointReply, StorageChanges]:
        changes = StorageChanges()
        return _receive(tx, snapshot, report, node=node, changes=changes), changes

    return storage_quota.follow_and_reply(hub, await write(hub, unit, known))


def _receive(
    tx: Tx, snapshot: Snapshot, report: CheckpointReport, *, node: NodePrincipal, changes: StorageChanges
) -> CheckpointReply:
    job_id = report.attempt_id.rpartition("-")[0]
    # Jobs before attempts, as everywhere.
    job = job_rows.lock_jobs(tx, [job_id]).get(job_id)
    attempt = attempt_rows.lock_attempts(tx, [report.attempt_id]).get(report.attempt_id)
    if job is None or attempt is None or attempt.node_id != node.node_id:
        raise NotFound("This node holds no such attempt.")
    if AttemptState(attempt.state) not in LIVE_ATTEMPT or job.attempt_no != attempt.number:
        return CheckpointReply(kept=False, reason=Refusal.NOT_LIVE.sentence, over=True)
    spec = spec_of(tx, snapshot, job)
    if not spec.saves or (report.move_to is not None and not spec.moves):
        _blame(tx, job, attempt)
        return CheckpointReply(kept=False, reason=UNMOVING if spec.saves else UNDECLARED, over=True)
    before = None if job.checkpoint_no is None else checkpoint_rows.get(tx.connection, job_id)
    if before is not None and (before.attempt_no, before.seq) == (attempt.number, report.seq):
        return CheckpointReply(kept=True)  # the answer to the first time was lost
    refusal = _refusal(tx, snapshot, report, attempt=attempt, before=before)
    if refusal is not None:
        return CheckpointReply(kept=False, reason=refusal.sentence)
    sizes = _sizes(tx, node, report, before=before)
    missing = [file.name for file in report.files if file.digest not in sizes]
    if missing:
        return CheckpointReply(kept=False, reason=f"Not uploaded: {missing[0]}.")
    size = sum(sizes[file.digest] for file in report.files)
    if size > snapshot.settings.checkpoint_max_bytes:
        most = snapshot.settings.checkpoint_max_bytes
        return CheckpointReply(kept=False, reason=f"A checkpoint may have {most} bytes at most.")
    replaces = 0 if before is None else before.size
    full = storage_quota.hand_over(
        tx, job.account_id, files=sizes, replaces=replaces, snapshot=snapshot, changes=changes
    )
    if full is not None:
        return CheckpointReply(kept=False, reason=full)
    _keep(tx, job, attempt, report=report, before=before, sizes=sizes)
    if report.move_to is not None:
        _aim(tx, snapshot, job, host=report.move_to)
    return CheckpointReply(kept=True)


def _aim(tx: Tx, snapshot: Snapshot, job: JobRow, *, host: str) -> None:
    """What was saved is for that host alone, also if the node is lost before it reports the move.

    Where there is no such host the report is what ends the job (migration.py).
    """
    chosen = destination(tx, snapshot, job, host=host)
    if chosen is not None:
        checkpoint_rows.pin(tx, job.id, chosen)


def destination(tx: Tx, snapshot: Snapshot, job: JobRow, *, host: str) -> str | None:
    """The id of the node that is meant. One of another owner must be the one that the job's own rules name, if any."""
    found = {row.id: row for row in hosts.called(tx.connection, job.account_id, host)}
    online = snapshot.ask(group_homes.OnlineNodes.among(found.values()))
    meant = hosts.meant_by(job.account_id, host, rows=found.values(), online=online)
    if len(meant) == 1 and hosts.begun_ids(tx.connection, host, but=meant[0]):
        return None
    if len(meant) != 1 or found[meant[0]].account_id == job.account_id:
        return meant[0] if len(meant) == 1 else None
    return meant[0] if spec_of(tx, snapshot, job).needs.host in (None, meant[0]) else None


def _blame(tx: Tx, job: JobRow, attempt: AttemptRow) -> None:
    """No job asked for it, so it was the node's own idea: that counts as its fault, once an attempt."""
    if record_rows.has_event(tx.connection, job_id=job.id, attempt_id=attempt.id, action=FAULT_ACTION):
        return
    tx.emit(
        actor=attempt.node_id,
        action=FAULT_ACTION,
        account_id=job.account_id,
        job_id=job.id,
        attempt_id=attempt.id,
        node_id=attempt.node_id,
        reason=Reason.NODE_ERROR.value,
    )


def _refusal(
    tx: Tx, snapshot: Snapshot, report: CheckpointReport, *, attempt: AttemptRow, before: CheckpointRow | None
) -> Refusal | None:
    kept = None
    if before is not None:
        kept = StoredCheckpoint(
            attempt_no=before.attempt_no,
            seq=before.seq,
            at_ms=before.at_ms,
            progress=before.progress,
            last=before.last,
        )
    reported = ReportedCheckpoint(
        attempt_no=attempt.number,
        seq=report.seq,
        progress=report.progress,
        last=report.last,
        files=len(report.files),
    )
    gap_ms = round(snapshot.settings.checkpoint_gap_s * 1000)
    return rules.refusal(kept, reported, now_ms=tx.now_ms, gap_ms=gap_ms)


def _sizes(
    tx: Tx, node: NodePrincipal, report: CheckpointReport, *, before: CheckpointRow | None
) -> dict[str, int]:
    """By digest, of the files that are here and that this node sent, or was given with the checkpoint before."""
    named = sorted({file.digest for file in report.files})
    if not named:
        return {}
    known = artifact_rows.readable_of(tx.connection, named, account_id=node.node_id)
    if before is not None:
        known |= {digest for digest, _ in json.loads(before.files).values()}
    sizes = artifact_rows.get_artifacts(tx.connection, named)
    return {digest: size for digest, size in sizes.items() if digest in known}


def _keep(
    tx: Tx,
    job: JobRow,
    attempt: AttemptRow,
    *,
    report: CheckpointReport,
    before: CheckpointRow | None,
    sizes: Mapping[str, int],
) -> None:
    progress = rules.progress_after(None if before is None else before.progress, report.progress)
    own_ms = _own_ms(tx, job, attempt, reported_ms=report.ran_ms, progress=progress)
    earlier = attempt.spent or 0
    affordable = affordable_ms(attempt.price, holds.for_one_run(job) - earlier)
    paid_ms = own_ms if affordable is None else min(own_ms, max(0, affordable))
    files = {file.name: (file.digest, sizes[file.digest]) for file in report.files}
    size = sum(size for _, size in files.values())
    row = {
        "attempt_no": attempt.number,
        "seq": report.seq,
        "attempt_ms": own_ms,
        "covered_ms": (attempt.covered_ms or 0) + own_ms,
        "spent": earlier + charge_of(attempt.price, paid_ms),
        "progress": progress,
        "size": size,
        "files": json.dumps(files),
        "last": report.last,
    }
    checkpoint_rows.keep(tx, job.id, row)
    checkpoint_rows.drop_refs(tx, job.id)
    if before is not None and before.attempt_no == attempt.number:
        replaced = {name: digest for name, (digest, _) in json.loads(before.files).items()}
        gone = {name: digest for name, digest in replaced.items() if digest not in sizes}
        checkpoint_rows.drop_uploads(tx, gone, node_id=attempt.node_id, until_ms=before.at_ms)
    owner = {"account_id": job.account_id, "job_id": job.id, "role": checkpoint_rows.ROLE}
    artifact_rows.refer(tx, [owner | {"name": name, "digest": digest} for name, (digest, _) in files.items()])
    tx.emit(
        actor=attempt.node_id,
        action=KEPT_ACTION,
        account_id=job.account_id,
        job_id=job.id,
        attempt_id=attempt.id,
        node_id=attempt.node_id,
        group_id=job.group_id,
        data=json.dumps({"files": len(files), "size": size, "progress": progress}),
    )
    tx.touch(f"job:{job.id}", "events")


def _own_ms(tx: Tx, job: JobRow, attempt: AttemptRow, *, reported_ms: int, progress: float | None) -> int:
    """The attempt's time up to here, set aside in its lane: a second is paid for once, whoever it is paid through."""
    node_rows.lock_node(tx, attempt.node_id)
    lane_ms = attempt_rows.lanes_billed(tx.connection, [attempt.lane]).get(attempt.lane, 0)
    had_ms = tx.now_ms - (attempt.lane_since_ms or attempt.leased_at_ms)
    aside_ms = attempt.checkpoint_ms or 0
    own_ms = rules.covered_ms(
        reported_ms=reported_ms,
        leased_at_ms=attempt.leased_at_ms,
        now_ms=tx.now_ms,
        lane_left_ms=had_ms - (lane_ms - aside_ms),
        limit_left_ms=rules.left_ms(rules.earned_ms(job.longest_ms, progress), attempt.covered_ms or 0),
    )
    own_ms = max(own_ms, aside_ms)
    checkpoint_rows.note_time(
        tx, attempt.id, checkpoint_ms=own_ms, lane_billed_ms=lane_ms - aside_ms + own_ms
    )
    return own_ms


# the next attempt has it


def resume(tx: Tx, leased: Iterable[LeasedJob]) -> dict[str, CheckpointRow]:
    """By job, the checkpoints from which attempts go on that were just leased; most jobs have none."""
    marked = [job for job in leased if job.checkpoint_no is not None]
    if not marked:
        return {}
    found = checkpoint_rows.of_jobs(tx.connection, [job.id for job in marked])
    rows = [
        {
            "attempt": attempt_rows.attempt_id(job.id, job.attempt_no),
            "from_no": found[job.id].attempt_no,
            "from_ms": found[job.id].attempt_ms,
            "all_ms": found[job.id].covered_ms,
            "cost": found[job.id].spent,
        }
        for job in marked
        if job.id in found
    ]
    checkpoint_rows.resume(tx, rows)
    return found


def adopted(connection: Connection, live: Sequence[LiveAttemptRow]) -> dict[str, CheckpointRow]:
    """By attempt, what it goes on from, where that is still the job's checkpoint: a newer one says it has started."""
    resumed = [row for row in live if row.resumed_no is not None]
    found = checkpoint_rows.of_jobs(connection, [row.job_id for row in resumed])
    return {
        row.id: found[row.job_id]
        for row in resumed
        if row.job_id in found and found[row.job_id].attempt_no == row.resumed_no
    }


# what becomes of it


def drop(tx: Tx, job: JobRow) -> None:
    """The run is over, or this checkpoint is no good."""
    if job.checkpoint_no is not None:
        checkpoint_rows.drop(tx, job.id)


def cut_short(attempt: AttemptRow, reason: Reason) -> bool:
    """What it went on from had left it less than the whole: that time or money ran out is not the job's fault."""
    return reason in (Reason.TIMEOUT, Reason.BUDGET_SPENT) and bool(attempt.covered_ms or attempt.spent)


def failed(tx: Tx, snapshot: Snapshot, job: JobRow, *, attempt_no: int) -> None:
    """An attempt failed. One from which several attempts came to nothing is dropped: the next starts at the beginning."""
    if job.checkpoint_no is None or job.checkpoint_no == attempt_no:
        return  # it has saved something newer than what it went on from
    kept = checkpoint_rows.get(tx.connection, job.id)
    if kept is None or kept.failures + 1 >= snapshot.settings.checkpoint_failures_max:
        drop(tx, job)
    else:
        checkpoint_rows.count_failure(tx, job.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What an earlier attempt did for a run that went on from its checkpoint."""

    attempt_id: str
    number: int
    node_id: str
    bill: RunCharge

    def row(self) -> dict[str, Any]:
        return {"attempt": self.attempt_id, "billed": self.bill.billed_ms, "cost": self.bill.charge}


def contributions(tx: Tx, job: JobRow, attempt: AttemptRow) -> tuple[Contribution, ...]:
    """To the run that this attempt ended, by the attempts before it. Fixed by what was recorded when each was leased."""
    if attempt.resumed_no is None:
        return ()
    rows = {row.number: row for row in checkpoint_rows.links(tx.connection, job.id)}
    links = {
        number: Link(
            number=number, price=row.price, resumed_no=row.resumed_no, resumed_ms=row.resumed_ms or 0
        )
        for number, row in rows.items()
    }
    parts = rules.contributions(
        links, attempt.number, money=holds.for_one_run(job), longest_ms=job.longest_ms
    )
    return tuple(
        Contribution(
            attempt_id=rows[part.number].id,
            number=part.number,
            node_id=rows[part.number].node_id,
            bill=RunCharge(
                owner_id=rows[part.number].owner_id,
                price_version=rows[part.number].price_version,
                price=rows[part.number].price,
                billed_ms=part.billed_ms,
                charge=part.charge,
            ),
        )
        for part in parts
    )


# for people


def view(row: CheckpointRow) -> CheckpointView:
    return CheckpointView.from_attributes(row, attempt=row.attempt_no, files=len(json.loads(row.files)))


def detail(row: CheckpointRow) -> CheckpointDetail:
    files = json.loads(row.files).items()
    outputs = [OutputFile(name=name, digest=digest, size=size) for name, (digest, size) in files]
    return CheckpointDetail.from_attributes(row, attempt=row.attempt_no, files=len(files), outputs=outputs)
