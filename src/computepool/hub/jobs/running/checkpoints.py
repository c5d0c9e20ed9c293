"""Checkpoints: kept with the job while its run lasts, given to the next attempt, and paid for if they were used.

A checkpoint belongs to one run. It is dropped when the run has a result, or the job ends. If another run is needed to confirm
the result, that run starts from the beginning.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from computepool.core.errors import Forbidden
from computepool.core.jobs import checkpoints as rules
from computepool.core.jobs.checkpoints import Checkpoint, Link, Refusal
from computepool.core.jobs.lifecycle import LIVE_ATTEMPT, AttemptState, Reason
from computepool.core.money.pricing import affordable_ms, charge_of
from computepool.core.trust.reputation import FAULT_ACTION
from computepool.hub.artifacts import rows as artifact_rows, storage_quota
from computepool.hub.context import Hub
from computepool.hub.db import event_rows
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import authenticator
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.jobs import attempt_rows
from computepool.hub.jobs.attempt_rows import AttemptRow, LiveAttemptRow
from computepool.hub.jobs.rows import JobRow, LeasedJob
from computepool.hub.jobs.running import checkpoint_rows
from computepool.hub.jobs.running.checkpoint_rows import CheckpointRow
from computepool.hub.jobs.transactions import JobTx, attempt_event, lock_attempt, write_stored
from computepool.hub.money import holds
from computepool.hub.money.holds import RunCharge
from computepool.hub.nodes import group_homes, hosts, rows as node_rows
from computepool.hub.snapshot import take_for
from computepool.protocol.jobs.checkpoints import CheckpointDetail, CheckpointReply, CheckpointReport
from computepool.protocol.jobs.views import CheckpointView, OutputFile

KEPT_ACTION = "checkpoint.saved"
UNDECLARED = "This job did not declare that it saves checkpoints."
UNMOVING = "This job did not declare that it moves."


# a node reports one


async def receive(hub: Hub, node: NodePrincipal, report: CheckpointReport) -> CheckpointReply:
    if not authenticator.is_signed_by_node(node, report.signature, report.signed_text()):
        raise Forbidden("The checkpoint is not signed with this node's key.")
    snapshot = take_for(hub, node.node_id, [report.attempt_id])
    return await write_stored(hub, lambda tx: _receive(tx, node, report), snapshot)


def _receive(tx: JobTx, node: NodePrincipal, report: CheckpointReport) -> CheckpointReply:
    job, attempt = lock_attempt(tx, node, report.attempt_id)
    if AttemptState(attempt.state) not in LIVE_ATTEMPT or job.attempt_no != attempt.number:
        return CheckpointReply(kept=False, reason=Refusal.NOT_LIVE.sentence, over=True)
    spec = tx.spec(job.spec_digest)
    if not spec.saves or (report.move_to is not None and not spec.moves):
        _blame(tx, job, attempt)
        return CheckpointReply(kept=False, reason=UNMOVING if spec.saves else UNDECLARED, over=True)
    before = None if job.checkpoint_no is None else checkpoint_rows.get(tx.connection, job.id)
    if before is not None and (before.attempt_no, before.seq) == (attempt.number, report.seq):
        return CheckpointReply(kept=True)  # sent again because the first reply was lost
    refusal = _refusal(tx, report, attempt, before=before)
    if refusal is not None:
        return CheckpointReply(kept=False, reason=refusal.sentence)
    sizes = _sizes(tx, node, report, before=before)
    missing = [file.name for file in report.files if file.digest not in sizes]
    if missing:
        return CheckpointReply(kept=False, reason=f"Not uploaded: {missing[0]}.")
    most = tx.snapshot.settings.checkpoint_max_bytes
    if sum(sizes[file.digest] for file in report.files) > most:
        return CheckpointReply(kept=False, reason=f"A checkpoint may have {most} bytes at most.")
    replaces, changes = 0 if before is None else before.size, tx.memory.storage
    full = storage_quota.hand_over(
        tx, job.account_id, files=sizes, replaces=replaces, snapshot=tx.snapshot, changes=changes
    )
    if full is not None:
        return CheckpointReply(kept=False, reason=full)
    _keep(tx, job, attempt, report=report, before=before, sizes=sizes)
    # From now on only that host may resume from it, even if the node is lost before it reports the move. If there is no such
    # host, that report ends the job (migration.py).
    if report.move_to is not None and (pinned := destination(tx, job, host=report.move_to)) is not None:
        checkpoint_rows.pin(tx, job.id, pinned)
    return CheckpointReply(kept=True)


def destination(tx: JobTx, job: JobRow, *, host: str) -> str | None:
    """The id of the node that `host` names. A node of another owner must be the one that the job's own needs name, if any."""
    found = {row.id: row for row in hosts.find_nodes(tx.connection, job.account_id, host)}
    online = tx.snapshot.ask(group_homes.OnlineNodes.among(found.values()))
    meant = hosts.meant_ids(job.account_id, host, rows=found.values(), online=online)
    if len(meant) != 1 or hosts.ids_beginning_with(tx.connection, host, but=meant[0]):
        return None
    if found[meant[0]].account_id == job.account_id:
        return meant[0]
    return meant[0] if tx.spec(job.spec_digest).needs.host in (None, meant[0]) else None


def _blame(tx: Tx, job: JobRow, attempt: AttemptRow) -> None:
    """No job asked for this checkpoint, so it counts as the node's fault, once per attempt."""
    if not event_rows.has_event(tx.connection, job_id=job.id, attempt_id=attempt.id, action=FAULT_ACTION):
        attempt_event(tx, job, attempt, action=FAULT_ACTION, actor=attempt.node_id, reason=Reason.NODE_ERROR.value)


def _refusal(
    tx: JobTx, report: CheckpointReport, attempt: AttemptRow, *, before: CheckpointRow | None
) -> Refusal | None:
    kept = None
    if before is not None:
        kept = Checkpoint(
            attempt_no=before.attempt_no, seq=before.seq, at_ms=before.at_ms, progress=before.progress, last=before.last
        )
    reported = Checkpoint(
        attempt_no=attempt.number,
        seq=report.seq,
        at_ms=tx.now_ms,
        progress=report.progress,
        last=report.last,
        files=len(report.files),
    )
    return rules.refusal(kept, reported, gap_ms=round(tx.snapshot.settings.checkpoint_gap_s * 1000))


def _sizes(tx: Tx, node: NodePrincipal, report: CheckpointReport, *, before: CheckpointRow | None) -> dict[str, int]:
    """By digest, for the files that the hub has and that this node uploaded, or was given with the checkpoint before."""
    named = sorted({file.digest for file in report.files})
    if not named:
        return {}
    known = artifact_rows.readable_of(tx.connection, named, account_id=node.node_id)
    if before is not None:
        known |= {digest for digest, _ in json.loads(before.files).values()}
    sizes = artifact_rows.get_sizes(tx.connection, named)
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
    data = {"files": len(files), "size": size, "progress": progress}
    attempt_event(tx, job, attempt, action=KEPT_ACTION, actor=attempt.node_id, group_id=job.group_id, data=data)
    tx.touch(f"job:{job.id}", "events")


def _own_ms(tx: Tx, job: JobRow, attempt: AttemptRow, *, reported_ms: int, progress: float | None) -> int:
    """How long the attempt has run, which is set aside in its lane: a second is paid once, whichever attempt it counts for."""
    node_rows.lock_node(tx, attempt.node_id)
    lane_ms = attempt_rows.lanes_billed(tx.connection, [attempt.lane]).get(attempt.lane, 0)
    held_ms = tx.now_ms - (attempt.lane_since_ms or attempt.leased_at_ms)
    aside_ms = attempt.checkpoint_ms or 0
    own_ms = rules.covered_ms(
        reported_ms=reported_ms,
        leased_at_ms=attempt.leased_at_ms,
        now_ms=tx.now_ms,
        lane_left_ms=held_ms - (lane_ms - aside_ms),
        limit_left_ms=rules.left_ms(rules.earned_ms(job.longest_ms, progress), attempt.covered_ms or 0),
    )
    own_ms = max(own_ms, aside_ms)
    checkpoint_rows.note_time(tx, attempt.id, checkpoint_ms=own_ms, lane_billed_ms=lane_ms - aside_ms + own_ms)
    return own_ms


# the next attempt resumes from it


def resume(tx: Tx, leased: Iterable[LeasedJob]) -> dict[str, CheckpointRow]:
    """By job, the checkpoints from which attempts resume that were just leased; most jobs have none."""
    marked = [job for job in leased if job.checkpoint_no is not None]
    if not marked:
        return {}
    found = checkpoint_rows.of_jobs(tx.connection, [job.id for job in marked])
    rows = [
        {
            "attempt": attempt_rows.attempt_id(job.id, job.attempt_no),
            "new_resumed_no": row.attempt_no,
            "new_resumed_ms": row.attempt_ms,
            "new_covered_ms": row.covered_ms,
            "new_spent": row.spent,
        }
        for job in marked
        if (row := found.get(job.id)) is not None
    ]
    checkpoint_rows.resume(tx, rows)
    return found


def adopted_checkpoints(connection: Connection, live: Sequence[LiveAttemptRow]) -> dict[str, CheckpointRow]:
    """By attempt, the checkpoint from which it resumes, if the job has no newer one: that would show that it has started."""
    resumed = [row for row in live if row.resumed_no is not None]
    found = checkpoint_rows.of_jobs(connection, [row.job_id for row in resumed])
    return {
        row.id: found[row.job_id]
        for row in resumed
        if row.job_id in found and found[row.job_id].attempt_no == row.resumed_no
    }


# the run ends


def drop(tx: Tx, job: JobRow) -> None:
    if job.checkpoint_no is not None:
        checkpoint_rows.drop(tx, job.id)


def count_failure(tx: JobTx, job: JobRow, *, attempt_no: int) -> None:
    """Count the failure of an attempt that resumed. After several the checkpoint is dropped: the next attempt starts from the
    beginning."""
    if job.checkpoint_no is None or job.checkpoint_no == attempt_no:
        return  # it did not resume, or has saved a newer checkpoint since
    kept = checkpoint_rows.get(tx.connection, job.id)
    if kept is None or kept.failures + 1 >= tx.snapshot.settings.checkpoint_failures_max:
        drop(tx, job)
    else:
        checkpoint_rows.count_failure(tx, job.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What an earlier attempt did for a run that resumed from its checkpoint."""

    attempt_id: str
    number: int
    node_id: str
    bill: RunCharge

    def row(self) -> dict[str, Any]:
        return {"attempt": self.attempt_id, "new_billed_ms": self.bill.billed_ms, "new_charge": self.bill.charge}


def contributions(tx: Tx, job: JobRow, attempt: AttemptRow) -> tuple[Contribution, ...]:
    """Of the attempts before it to the run that this attempt ended, as recorded when each of them was leased."""
    if attempt.resumed_no is None:
        return ()
    rows = {row.number: row for row in checkpoint_rows.links(tx.connection, job.id)}
    links = {
        number: Link(number=number, price=row.price, resumed_no=row.resumed_no, resumed_ms=row.resumed_ms or 0)
        for number, row in rows.items()
    }
    parts = rules.contributions(links, attempt.number, money=holds.for_one_run(job), longest_ms=job.longest_ms)
    found = []
    for part in parts:
        row = rows[part.number]
        bill = RunCharge.of(row, part.billed_ms, charge=part.charge)
        found.append(Contribution(attempt_id=row.id, number=part.number, node_id=row.node_id, bill=bill))
    return tuple(found)


# views


def view(row: CheckpointRow) -> CheckpointView:
    return CheckpointView.from_attributes(row, attempt=row.attempt_no, files=len(json.loads(row.files)))


def detail(row: CheckpointRow) -> CheckpointDetail:
    files = json.loads(row.files).items()
    outputs = [OutputFile(name=name, digest=digest, size=size) for name, (digest, size) in files]
    return CheckpointDetail.from_attributes(row, attempt=row.attempt_no, files=len(files), outputs=outputs)
