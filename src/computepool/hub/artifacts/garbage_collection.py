"""Garbage collection: deletes references past their time, artifacts without references, and bytes without a row.

It works in batches, each in its own transaction, a bounded number a round; the next round continues where this one stopped.
Several hubs may do it at once: only one can delete a row, and a place that no row names is nobody's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence

from computepool.core.errors import ComputePoolError
from computepool.core.ids import make_id
from computepool.core.jobs.lifecycle import TERMINAL, JobState
from computepool.core.retention import ArtifactReference, KeepRules, find_end_ms, is_over
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.artifacts.rows import KeptJob, KeptReference
from computepool.hub.artifacts.storage.base import Stored
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity.access import POOL_ACCOUNT

logger = logging.getLogger(__name__)
BATCH = 500
#: Batches of each kind in one round.
BATCHES_MAX = 40
_PLACE = re.compile(r"^[0-9a-f]{2}/([0-9a-f]{64})(\.[0-9a-f]{16})?$")
_BEGIN = (-1, "")


async def collect(hub: Hub) -> None:
    """One round. If one part fails, for example because the blob store does not answer, the others still run."""
    for part in (drop_stale_uploads, end_references, drop_inline, drop_unreferred, erase_unnamed):
        try:
            await part(hub)
        except ComputePoolError as error:
            logger.warning("artifacts.collecting: %s: %s", part.__name__, error.detail)


async def drop_stale_uploads(hub: Hub) -> None:
    before_s = hub.now_ms() / 1000 - hub.settings.upload_idle_s
    await hub.process.in_thread(hub.artifacts.blobs.drop_stale_uploads, before_s=before_s)


# references past their time


async def end_references(hub: Hub) -> None:
    for _ in range(BATCHES_MAX):
        rows = await _next_references(hub)
        over = [row for row in rows if is_over(_facts(row), _rules(hub, row), now_ms=hub.now_ms())]
        if over:
            await erase(hub, await hub.store.write(_end, rows=over))
        if len(rows) < BATCH:
            hub.artifacts.sweeps.refs = _BEGIN
            return
        hub.artifacts.sweeps.refs = (rows[-1].created_at_ms, rows[-1].place)


async def _next_references(hub: Hub) -> Sequence[KeptReference]:
    settings = hub.settings
    own_s = await hub.store.read(artifact_rows.shortest_keep_s)
    times = (settings.artifact_keep_s, settings.unreported_keep_s, 0 if own_s is None else own_s)
    shortest_s = min(times if own_s is not None else times[:2])
    # Younger ones cannot be over, except those kept explicitly for a shorter time, and they may wait.
    before_ms = hub.now_ms() - round(shortest_s * 1000) + 1
    after = hub.artifacts.sweeps.refs
    return await hub.store.read(artifact_rows.refs_after, after=after, before_ms=before_ms, limit=BATCH)


def _end(tx: Tx, rows: Sequence[KeptReference]) -> list[str]:
    artifact_rows.drop_listed(tx, rows)
    return artifact_rows.drop_unused(tx, {row.digest for row in rows})


def until_ms(hub: Hub, row: KeptReference) -> int | None:
    """Until when a reference keeps its artifact; None: not known yet."""
    return find_end_ms(_facts(row), _rules(hub, row))


def _facts(row: KeptReference) -> ArtifactReference:
    return ArtifactReference(
        role=row.role,
        created_at_ms=row.created_at_ms,
        kept_until_ms=row.kept_until_ms,
        # Results that go to the group's home are needed until they have arrived.
        job_open=bool(row.goes_home) or (row.job_state is not None and JobState(row.job_state) not in TERMINAL),
        job_ended_ms=row.job_ended_ms,
    )


def _rules(hub: Hub, row: KeptReference | KeptJob) -> KeepRules:
    keep_s = hub.settings.artifact_keep_s if row.artifact_keep_s is None else row.artifact_keep_s
    if row.account_id == POOL_ACCOUNT:
        keep_s = 0  # hub jobs use artifacts of others
    return KeepRules(keep_ms=round(keep_s * 1000), unreported_ms=max(0, round(hub.settings.unreported_keep_s * 1000)))


# inline data of finished jobs


async def drop_inline(hub: Hub) -> None:
    """Drop a job's arguments, results and output when its files would go. Its row stays and records that."""
    before = make_id("job", hub.now_ms(), bytes(10))
    for _ in range(BATCHES_MAX):
        after = hub.artifacts.sweeps.jobs
        rows = await hub.store.read(artifact_rows.jobs_after, after=after, before=before, limit=BATCH)
        over = [row.id for row in rows if row.dropped_at_ms is None and _is_job_over(hub, row)]
        if over:
            await hub.store.write(artifact_rows.drop_inline, job_ids=over)
        hub.artifacts.sweeps.jobs = rows[-1].id if len(rows) == BATCH else ""
        if not hub.artifacts.sweeps.jobs:
            return


def _is_job_over(hub: Hub, row: KeptJob) -> bool:
    # A result whose pay is held will be checked, which needs the job's arguments.
    needed = row.goes_home or row.held_until_ms or JobState(row.state) not in TERMINAL
    kept = ArtifactReference(
        role="payload", created_at_ms=row.created_at_ms, job_open=bool(needed), job_ended_ms=row.finished_at_ms
    )
    return is_over(kept, _rules(hub, row), now_ms=hub.now_ms())


# artifacts without references


async def drop_unreferred(hub: Hub) -> None:
    """Delete artifacts that were not deleted together with their last reference."""
    before_ms = hub.now_ms() - _grace_ms(hub)
    for _ in range(BATCHES_MAX):
        rows = await hub.store.read(artifact_rows.list_stored, after=hub.artifacts.sweeps.rows, limit=BATCH)
        unused = [row.digest for row in rows if not row.referred and row.created_at_ms < before_ms]
        if unused:
            await erase(hub, await hub.store.write(artifact_rows.drop_unused, digests=unused))
        hub.artifacts.sweeps.rows = rows[-1].digest if len(rows) == BATCH else ""
        if not hub.artifacts.sweeps.rows:
            return


async def erase(hub: Hub, places: Iterable[str]) -> None:
    """Erase bytes, after the commit that dropped their rows. `erase_unnamed` finds what fails here."""
    for place in places:
        await hub.process.in_thread(hub.artifacts.blobs.erase, place)


# bytes without a row


async def erase_unnamed(hub: Hub) -> None:
    """Erase what a hub left that died between placing bytes and writing their row, or between dropping it and erasing."""
    before_s = (hub.now_ms() - _grace_ms(hub)) / 1000
    for _ in range(BATCHES_MAX):
        stored = await hub.process.in_thread(hub.artifacts.blobs.walk, after=hub.artifacts.sweeps.places, limit=BATCH)
        for place in await _find_unnamed(hub, [blob for blob in stored if blob.at_s < before_s]):
            logger.warning("artifacts.unnamed: erasing %s", place)
            await erase(hub, [place])
        hub.artifacts.sweeps.places = stored[-1].place if len(stored) == BATCH else ""
        if not hub.artifacts.sweeps.places:
            return


async def _find_unnamed(hub: Hub, stored: Sequence[Stored]) -> list[str]:
    """Places without a row. Files whose names the hub would not give are left alone."""
    digests = {blob.place: found[1] for blob in stored if (found := _PLACE.match(blob.place))}
    if not digests:
        return []
    named = await hub.store.read(artifact_rows.get_places, sorted(set(digests.values())))
    return [place for place, digest in digests.items() if named.get(digest) != place]


def _grace_ms(hub: Hub) -> int:
    return round(hub.settings.artifact_grace_s * 1000)
