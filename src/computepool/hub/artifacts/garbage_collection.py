"""Garbage collection: deletes references whose time is over, artifacts without references, bytes without a row.

In batches, each a transaction of its own, and a bounded number of them a round; the next round goes on where this one
stopped. Any number of hubs may do it at once: a row is deleted by one of them, and a place that no row names is nobody's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from functools import partial

from computepool.core.errors import ComputePoolError
from computepool.core.ids import make_id
from computepool.core.jobs.lifecycle import TERMINAL, JobState
from computepool.core.retention import ArtifactReference, KeepRules, is_over, kept_until_ms
from computepool.hub.artifacts import inline_cleanup
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.artifacts.inline_cleanup import KeptJob
from computepool.hub.artifacts.rows import KeptReference
from computepool.hub.artifacts.storage.base import Stored, place_of
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
    """One round. Each part stands alone: where one fails, such as a store that does not answer, the others go on."""
    for part in (drop_stale_uploads, end_references, drop_inline, drop_unreferred, erase_unnamed):
        try:
            await part(hub)
        except ComputePoolError as error:
            logger.warning("artifacts.collecting: %s: %s", part.__name__, error.detail)


async def drop_stale_uploads(hub: Hub) -> None:
    before_s = hub.now_ms() / 1000 - hub.settings.upload_idle_s
    await hub.process.in_thread(hub.artifacts.blobs.drop_stale_uploads, before_s=before_s)


# references whose time is over


async def end_references(hub: Hub) -> None:
    for _ in range(BATCHES_MAX):
        rows = await _next_references(hub)
        over = [row for row in rows if is_over(_facts(row), _rules(hub, row), now_ms=hub.now_ms())]
        if over:
            await erase(hub, await hub.store.write(partial(_end, rows=over)))
        if len(rows) < BATCH:
            hub.artifacts.sweeps.refs = _BEGIN
            return
        hub.artifacts.sweeps.refs = (rows[-1].created_at_ms, rows[-1].place)


async def _next_references(hub: Hub) -> Sequence[KeptReference]:
    settings = hub.settings
    own_s = await hub.store.read(artifact_rows.shortest_keep_s)
    times = (settings.artifact_keep_s, settings.unreported_keep_s, 0 if own_s is None else own_s)
    shortest_s = min(times if own_s is not None else times[:2])
    # Younger ones cannot be over, but for what was kept for a shorter time, and that may wait.
    before_ms = hub.now_ms() - round(shortest_s * 1000) + 1
    return await hub.store.read(
        lambda connection: artifact_rows.refs_after(
            connection, after=hub.artifacts.sweeps.refs, before_ms=before_ms, limit=BATCH
        )
    )


def _end(tx: Tx, rows: Sequence[KeptReference]) -> list[tuple[str, str]]:
    artifact_rows.drop_listed(tx, rows)
    return artifact_rows.drop_unused(tx, {row.digest for row in rows})


def until_ms(hub: Hub, row: KeptReference) -> int | None:
    """Until when a reference keeps its artifact; None: nobody can say yet."""
    return kept_until_ms(_facts(row), _rules(hub, row))


def _facts(row: KeptReference) -> ArtifactReference:
    return ArtifactReference(
        role=row.role,
        created_at_ms=row.created_at_ms,
        kept_until_ms=row.kept_until_ms,
        # What is to come home with its group is needed until it has arrived.
        job_open=bool(row.goes_home)
        or (row.job_state is not None and JobState(row.job_state) not in TERMINAL),
        job_ended_ms=row.job_ended_ms,
    )


def _rules(hub: Hub, row: KeptReference | KeptJob) -> KeepRules:
    keep_s = hub.settings.artifact_keep_s if row.artifact_keep_s is None else row.artifact_keep_s
    if row.account_id == POOL_ACCOUNT:
        keep_s = 0  # what its hub jobs needed is somebody else's
    return KeepRules(
        keep_ms=round(keep_s * 1000), unreported_ms=max(0, round(hub.settings.unreported_keep_s * 1000))
    )


# what finished jobs keep in the database


async def drop_inline(hub: Hub) -> None:
    """Arguments, results and output of a job go when its files would. Its row stays, and says so."""
    before = make_id("job", hub.now_ms(), bytes(10))
    for _ in range(BATCHES_MAX):
        after = hub.artifacts.sweeps.jobs
        rows = await hub.store.read(
            partial(inline_cleanup.jobs_after, after=after, before=before, limit=BATCH)
        )
        over = [row.id for row in rows if row.dropped_at_ms is None and _is_job_over(hub, row)]
        if over:
            await hub.store.write(partial(inline_cleanup.drop, job_ids=over))
        hub.artifacts.sweeps.jobs = rows[-1].id if len(rows) == BATCH else ""
        if not hub.artifacts.sweeps.jobs:
            return


def _is_job_over(hub: Hub, row: KeptJob) -> bool:
    # A result whose pay is held is going to be checked, which needs the job's arguments.
    needed = row.goes_home or row.held_until_ms or JobState(row.state) not in TERMINAL
    kept = ArtifactReference(
        role="payload",
        created_at_ms=row.created_at_ms,
        job_open=bool(needed),
        job_ended_ms=row.finished_at_ms,
    )
    return is_over(kept, _rules(hub, row), now_ms=hub.now_ms())


# artifacts without references


async def drop_unreferred(hub: Hub) -> None:
    """Usually the last reference takes them along; these are what is left when it did not."""
    before_ms = hub.now_ms() - _grace_ms(hub)
    for _ in range(BATCHES_MAX):
        rows = await hub.store.read(
            partial(artifact_rows.list_stored, after=hub.artifacts.sweeps.rows, limit=BATCH)
        )
        unused = [row.digest for row in rows if not row.referred and row.created_at_ms < before_ms]
        if unused:
            await erase(hub, await hub.store.write(partial(artifact_rows.drop_unused, digests=unused)))
        hub.artifacts.sweeps.rows = rows[-1].digest if len(rows) == BATCH else ""
        if not hub.artifacts.sweeps.rows:
            return


async def erase(hub: Hub, dropped: Iterable[tuple[str, str]]) -> None:
    """After the commit that dropped their rows. What fails here is found again by `erase_unnamed`."""
    for digest, place in dropped:
        await hub.process.in_thread(hub.artifacts.blobs.erase, place or place_of(digest, ""))


# bytes without a row


async def erase_unnamed(hub: Hub) -> None:
    """A hub that died between giving bytes a place and writing its row, or between dropping the row and erasing."""
    before_s = (hub.now_ms() - _grace_ms(hub)) / 1000
    for _ in range(BATCHES_MAX):
        stored = await hub.process.in_thread(
            hub.artifacts.blobs.walk, after=hub.artifacts.sweeps.places, limit=BATCH
        )
        for place in await _find_unnamed(hub, [one for one in stored if one.at_s < before_s]):
            logger.warning("artifacts.unnamed: %s is erased", place)
            await hub.process.in_thread(hub.artifacts.blobs.erase, place)
        hub.artifacts.sweeps.places = stored[-1].place if len(stored) == BATCH else ""
        if not hub.artifacts.sweeps.places:
            return


async def _find_unnamed(hub: Hub, stored: Sequence[Stored]) -> list[str]:
    """Files with other names than we give are not ours to judge."""
    digests = {one.place: found[1] for one in stored if (found := _PLACE.match(one.place))}
    if not digests:
        return []
    named = await hub.store.read(
        lambda connection: artifact_rows.get_places(connection, sorted(set(digests.values())))
    )
    places = {place or place_of(digest, "") for digest, place in named.items()}
    return [place for place in digests if place not in places]


def _grace_ms(hub: Hub) -> int:
    return round(hub.settings.artifact_grace_s * 1000)
