"""Storage quotas of accounts and nodes at the hub. Usage is estimated in memory, and counted exactly when the estimate is
old or says no.

There are two limits. An account over its quota can neither upload nor submit. Results of its jobs are still kept, up to a
reserve beyond the quota, so that a full account does not lose finished work. Beyond the reserve the hub refuses the node's
upload, and the job fails with that reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from computepool.core.errors import Forbidden, QuotaExceeded
from computepool.core.words import byte_size
from computepool.hub.artifacts import inline_rows, rows as artifact_rows
from computepool.hub.artifacts.state import StorageUsage
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.groups import rows as group_rows
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.jobs.rows import JobRow
from computepool.hub.settings import Settings
from computepool.hub.snapshot import Snapshot
from computepool.protocol.artifacts import StorageView
from computepool.protocol.nodes.nodes import LOG_SENT_MIN, OutputRef

#: How long an estimate is valid: it may miss what came through another hub, or with a report.
_ESTIMATE_MS = 30_000
_ESTIMATES_MAX = 100_000
#: A submission or result up to this size is counted but never refused: a job's row is hardly smaller.
SMALL_BYTES = 4096


@dataclass(slots=True)
class StorageChanges:
    """What a unit counted and stored, for `apply` after its commit. Created anew whenever the unit runs."""

    counted: dict[str, StorageUsage] = field(default_factory=dict)  #: by account or node
    added: dict[str, int] = field(default_factory=dict)  #: by account: an upper bound of the bytes added

    def add(self, account_id: str, size: int) -> None:
        self.added[account_id] = self.added.get(account_id, 0) + size


def load_usage(settings: Settings, connection: Connection, account_id: str) -> StorageView:
    size, count = artifact_rows.kept_bytes(connection, account_id)
    size += group_rows.words_of_account(connection, account_id) + inline_rows.stored_bytes(connection, account_id)
    row = account_rows.get_account(connection, account_id)
    own_max = None if row is None else row.artifact_bytes_max
    own_keep_s = None if row is None else row.artifact_keep_s
    return StorageView(
        bytes=size,
        artifacts=count,
        bytes_max=settings.artifact_bytes_max if own_max is None else own_max,
        keep_s=settings.artifact_keep_s if own_keep_s is None else own_keep_s,
    )


@asynccontextmanager
async def reserve(hub: Hub, asker: Principal | NodePrincipal, *, digest: str, size: int) -> AsyncIterator[None]:
    """Reserve room for the announced size while the bytes arrive, whatever else is sent at the same time."""
    owner, is_node = asker.holder, isinstance(asker, NodePrincipal)
    unfinished = await hub.process.in_thread(hub.artifacts.blobs.upload_sizes, owner)

    def more() -> int:
        """This upload and the owner's others: each by its announced size, or by the bytes that are here unfinished."""
        others = {**unfinished, **dict(sorted(hub.artifacts.arriving.get(owner, ())))} | {digest: 0}
        return size + sum(others.values())

    known = await _usage(hub, owner, more=more(), is_node=is_node)
    if isinstance(asker, NodePrincipal):
        _check(asker, known, more())
        await _check_results(hub, asker, more())
    # No await from here to the reservation, so that concurrent uploads see it.
    _check(asker, known, more())
    arriving = hub.artifacts.arriving.setdefault(owner, [])
    arriving.append((digest, size))
    try:
        yield
    finally:
        arriving.remove((digest, size))
        if not arriving:
            hub.artifacts.arriving.pop(owner, None)


def check_kept(tx: Tx, asker: Principal | NodePrincipal, *, size: int, snapshot: Snapshot) -> None:
    """In the transaction that keeps an artifact: another hub may have added to the account meanwhile."""
    is_node = isinstance(asker, NodePrincipal)
    _check(asker, _usage_in(tx, asker.holder, more=size, snapshot=snapshot, is_node=is_node), size)


def _usage_in(tx: Tx, owner: str, *, more: int, snapshot: Snapshot, is_node: bool = False) -> StorageUsage:
    """The estimate if it is fresh and far from the limit; otherwise counted in this transaction."""
    known = _fresh(snapshot.storage.get(owner), tx.now_ms)
    if known is None or 2 * (known.bytes + more) >= known.bytes_max:
        return _count(snapshot.settings, tx.connection, owner, is_node=is_node, now_ms=tx.now_ms)
    return known


def _check(asker: Principal | NodePrincipal, known: StorageUsage, more: int) -> None:
    if known.bytes + more <= known.bytes_max:
        return
    if isinstance(asker, NodePrincipal):
        raise QuotaExceeded(
            f"This node has sent {byte_size(known.bytes)} that no report has named; its limit is "
            f"{byte_size(known.bytes_max)}."
        )
    raise QuotaExceeded(
        f"{_sentence(known)} There is no room for another {byte_size(more)}. `pool artifacts list` shows your artifacts, and "
        "`pool artifacts rm` deletes them.",
        field="size",
    )


async def reserve_submission(hub: Hub, account_id: str, *, size: int) -> None:
    """Reserve room for a submission's programs and arguments until `end_submission`. They count as files do."""
    kept = await _usage(hub, account_id, more=hub.artifacts.submitting[account_id] + size)
    # No await from here to the reservation.
    if kept.bytes + hub.artifacts.submitting[account_id] + _weight(size) > kept.bytes_max:
        raise _no_submission(kept, size)
    hub.artifacts.submitting[account_id] += size


def end_submission(hub: Hub, account_id: str, *, size: int, is_kept: bool) -> None:
    hub.artifacts.submitting[account_id] -= size
    if not hub.artifacts.submitting[account_id]:
        del hub.artifacts.submitting[account_id]
    if is_kept:
        count_in(hub, account_id, size)


def check_submission(tx: Tx, account_id: str, *, size: int, snapshot: Snapshot) -> None:
    """In the transaction that stores a submission, after its rows: another hub may have added to the account meanwhile."""
    known = _usage_in(tx, account_id, more=0, snapshot=snapshot)
    if known is snapshot.storage.get(account_id):
        return
    known.bytes += inline_rows.uncommitted_bytes(tx, account_id) - size
    if known.bytes + _weight(size) > known.bytes_max:
        raise _no_submission(known, size)


def _weight(size: int) -> int:
    return size if size > SMALL_BYTES else 0


def _no_submission(kept: StorageUsage, size: int) -> QuotaExceeded:
    return QuotaExceeded(
        f"{_sentence(kept)} There is no room for another {byte_size(size)} of programs and arguments. Delete some artifacts "
        "before you submit: `pool artifacts list`, `pool artifacts rm`."
    )


def log_max_bytes(snapshot: Snapshot, account_id: str) -> int:
    """How much of an attempt's output is kept. If the account is beyond its reserve, only what its report is compared with.

    Uses the estimate: a line of output is no reason to count.
    """
    known, settings = snapshot.storage.get(account_id), snapshot.settings
    full = known is not None and not _has_reserve(settings, known, 0)
    return must_send_bytes(settings) if full else settings.log_max_bytes


def must_send_bytes(settings: Settings) -> int:
    """How much of an attempt's output its node must send; it may leave out the rest."""
    return min(LOG_SENT_MIN, settings.log_max_bytes)


def check_group_text(tx: Tx, account_id: str, *, more: int, snapshot: Snapshot, changes: StorageChanges) -> None:
    """In the transaction that stores a group's keys, their metadata or reported results, which count as files do."""
    known = _usage_in(tx, account_id, more=more, snapshot=snapshot)
    if known is not snapshot.storage.get(account_id):
        changes.counted[account_id] = known
    if known.bytes + more > known.bytes_max:
        raise QuotaExceeded(f"{_sentence(known)} There is no room for another {byte_size(more)} of keys and results.")
    changes.add(account_id, more)


async def check_group(hub: Hub, account_id: str) -> None:
    count = await hub.store.read(group_rows.count_of_account, account_id)
    if count >= hub.settings.groups_max:
        raise QuotaExceeded(f"An account may have {hub.settings.groups_max} groups at most.")


def count_in(hub: Hub, owner: str, size: int) -> None:
    if owner in hub.artifacts.usage:
        hub.artifacts.usage[owner].bytes += size


def hand_over(
    tx: Tx,
    account_id: str,
    *,
    files: Mapping[str, int],
    snapshot: Snapshot,
    changes: StorageChanges,
    reserve: bool = True,
    text: int = 0,
    replaces: int = 0,
) -> str | None:
    """In the transaction that hands a job's files to its account: a sentence if there is no room, otherwise None.

    `changes`: what the transaction has added already; the files are added to it. `reserve`: whether the reserve may be used.
    `text`: bytes of a result in the database itself. `replaces`: bytes that these files replace.
    """
    besides = changes.added.get(account_id, 0) + text - replaces
    known = _fresh(changes.counted.get(account_id) or snapshot.storage.get(account_id), tx.now_ms)
    if known is None or known.bytes + besides + sum(files.values()) > known.bytes_max:
        own = artifact_rows.readable_of(tx.connection, files, account_id=account_id)
        more = besides + sum(size for digest, size in files.items() if digest not in own)
        # Kept for the following reports: a large account is not counted for each of them.
        counted = changes.counted[account_id] = _count(snapshot.settings, tx.connection, account_id, now_ms=tx.now_ms)
        most = counted.bytes_max * (1 + snapshot.settings.artifact_reserve) if reserve else counted.bytes_max
        if more > 0 and counted.bytes + more > most:
            return _full_sentence(counted, more)
    changes.add(account_id, text - replaces + sum(files.values()))
    return None


def keep_of_failed(
    tx: Tx,
    job: JobRow,
    *,
    files: Sequence[OutputRef],
    sizes: Mapping[str, int],
    snapshot: Snapshot,
    changes: StorageChanges,
) -> None:
    """Keep the outputs of a failed job for its account: those the node has sent (`sizes`), if they fit without the
    reserve, which is for results."""
    sent = [file for file in files if file.digest in sizes]
    sent_sizes = {file.digest: sizes[file.digest] for file in sent}
    full = hand_over(tx, job.account_id, files=sent_sizes, snapshot=snapshot, changes=changes, reserve=False)
    if full is None:
        shared = {"account_id": job.account_id, "job_id": job.id, "role": "output"}
        artifact_rows.refer(tx, [{"digest": file.digest, "name": file.name, **shared} for file in sent])


def apply(hub: Hub, changes: StorageChanges) -> None:
    """Update the estimates after the commit. Those near the quota are dropped, so that the next use counts."""
    for owner, counted in changes.counted.items():
        _remember(hub, owner, counted)
    for account_id, size in changes.added.items():
        count_in(hub, account_id, size)
        known = hub.artifacts.usage.get(account_id)
        if known is not None and 2 * known.bytes >= known.bytes_max:
            del hub.artifacts.usage[account_id]


async def _usage(hub: Hub, owner: str, *, more: int, is_node: bool = False) -> StorageUsage:
    before = hub.artifacts.usage.get(owner)
    known = _fresh(before, hub.now_ms())
    if known is not None and known.bytes + more <= known.bytes_max:
        return known
    had = 0 if before is None else before.bytes
    now_ms, settings = hub.now_ms(), hub.settings
    counted = await hub.store.read(lambda c: _count(settings, c, owner, is_node=is_node, now_ms=now_ms))
    newer = hub.artifacts.usage.get(owner)
    if newer is not None and newer is not before:
        return newer  # another call has counted meanwhile, and added what came since
    if before is not None:
        counted.bytes += max(0, before.bytes - had)  # what came during the count
    return _remember(hub, owner, counted)


def _fresh(known: StorageUsage | None, now_ms: int) -> StorageUsage | None:
    old = known is None or not 0 <= now_ms - known.counted_at_ms < _ESTIMATE_MS
    return None if old else known


def _count(
    settings: Settings, connection: Connection, owner: str, *, now_ms: int, is_node: bool = False
) -> StorageUsage:
    if is_node:
        sent = artifact_rows.unreported_bytes(connection, owner)
        return StorageUsage(sent, settings.unreported_max_bytes, now_ms)
    usage = load_usage(settings, connection, owner)
    return StorageUsage(usage.bytes, usage.bytes_max, now_ms)


def _remember(hub: Hub, owner: str, kept: StorageUsage) -> StorageUsage:
    while len(hub.artifacts.usage) >= _ESTIMATES_MAX:
        hub.artifacts.usage.pop(next(iter(hub.artifacts.usage)))
    hub.artifacts.usage[owner] = kept
    return kept


async def _check_results(hub: Hub, node: NodePrincipal, size: int) -> None:
    """The hub cannot tell for which of the node's jobs the bytes are, so one account with room is enough."""
    owners = await hub.store.read(artifact_rows.accounts_at, node.node_id)
    full = None
    for account_id in owners:
        kept = await _usage(hub, account_id, more=size)
        if _has_reserve(hub.settings, kept, size):
            return
        full = kept
    if full is None:
        raise Forbidden("This node runs no job that this could be a result of.")
    raise QuotaExceeded(_full_sentence(full, size))


def _has_reserve(settings: Settings, kept: StorageUsage, more: int) -> bool:
    return kept.bytes + more <= kept.bytes_max * (1 + settings.artifact_reserve)


def _full_sentence(kept: StorageUsage, more: int) -> str:
    return (
        f"The submitter's account stores {byte_size(kept.bytes)} of files and job data and may store "
        f"{byte_size(kept.bytes_max)}; there is no room for {byte_size(more)} of results."
    )


def _sentence(kept: StorageUsage) -> str:
    return (
        f"Your account stores {byte_size(kept.bytes)} of files and job data and may store {byte_size(kept.bytes_max)}."
    )
