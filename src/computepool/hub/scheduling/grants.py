"""Grants: everything that a node is told about an attempt that it is given."""

from __future__ import annotations

import json

from computepool.core.jobs import checkpoints as rules
from computepool.core.money.pricing import affordable_ms
from computepool.hub.jobs import attempt_rows
from computepool.hub.jobs.attempt_rows import LiveAttemptRow
from computepool.hub.jobs.rows import LeasedJob
from computepool.hub.jobs.running.checkpoint_rows import CheckpointRow
from computepool.hub.money import holds
from computepool.hub.settings import Settings
from computepool.protocol.gangs import GangGrant
from computepool.protocol.nodes.nodes import Grant, OutputRef


def grant_of(
    job: LeasedJob | LiveAttemptRow,
    *,
    job_id: str,
    attempt_no: int,
    lane: str,
    gpus: list[int],
    price: int,
    checkpoint: CheckpointRow | None,
    settings: Settings,
) -> Grant:
    """`checkpoint`: from which the attempt resumes. The grant is not validated, because all of it comes from the store."""
    money = holds.for_one_run(job) if checkpoint is None else max(0, holds.for_one_run(job) - checkpoint.spent)
    return Grant.from_trusted(
        attempt_id=attempt_rows.attempt_id(job_id, attempt_no),
        attempt_no=attempt_no,
        job_id=job_id,
        lane=lane,
        spec=job.spec_digest,
        account_id=job.shown_account,
        payload=job.payload,
        payload_artifact=job.payload_artifact,
        item=job.item,
        items=job.item_count,
        gpus=gpus,
        price=price,
        paid_ms=affordable_ms(price, money),
        left_ms=None if checkpoint is None else rules.left_ms(job.longest_ms, checkpoint.covered_ms),
        checkpoint=None if checkpoint is None else _files(checkpoint),
        gang=None if job.gang is None else GangGrant(id=job.gang, start_ms=round(settings.gang_start_s * 1000)),
    )


def _files(checkpoint: CheckpointRow) -> list[OutputRef]:
    files = json.loads(checkpoint.files).items()
    return [OutputRef(name=name, digest=digest, size=size) for name, (digest, size) in files]
