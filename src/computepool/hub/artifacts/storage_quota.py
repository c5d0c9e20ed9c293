"""Storage quotas of accounts and nodes at the hub. Counted as jobs are: exactly when the estimate says no, or is old.

Two limits. Beyond its quota an account may send nothing more and submit nothing more; what its jobs come to is kept all the
same, up to a reserve beyond the quota, so that a full account does not lose the result of a job that is done. Beyond the
reserve a node is refused, and the job fails and says why.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from computepool.core.errors import Forbidden, QuotaExceeded
from computepool.core.words import byte_size
from computepool.hub.artifacts import inline_rows
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.artifacts.state import StorageUsage
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.groups import rows as group_rows
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.jobs.rows import JobRow
from computepool.hub.settings import Settings
from computepool.hub.snapshot import Snapshot
from computepool.protocol.nodes.nodes import LOG_SENT_MIN, OutputRef

T = TypeVar("T")
#: An estimate may miss what came through another hub, or with a report: so it is not trusted for longer.
_ESTIMATE_MS = 30_000
_ESTIMATES_MAX = 100_000
#: So much of one submission, or result, is counted but no reason to refuse it: a job's row is hardly smaller.
SMALL_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageQuota:
    """What an account keeps, and may keep."""

    bytes: int
    artifacts: int
    bytes_max: int
    keep_s: float


@dataclass(slots=True)
class StorageChanges:
    """What a unit found out and keeps, for `follow` after its commit. Made anew whenever the unit runs."""

    counted: dict[str, StorageUsage] = field(default_factory=dict)  #: by account or node
    given: dict[str, int] = field(default_factory=dict)  #: by account, how many bytes more it keeps, at most

    def give(self, account_id: str, size: int) -> None:
        self.given[account_id] = self.given.get(account_id, 0) + size


def room_of(settings: Settings, connection: Connection, account_id: str) -> StorageQuota:
    size, count = artifact_rows.kept_bytes(connection, account_id)
    size += group_rows.words_of_account(connection, account_id) + inline_rows.stored(connection, account_id)
    row = account_rows.get_account(connection, account_id)
    own_max = None if row is None else row.artifact_bytes_max
    own_keep_s = None if row is None else row.artifact_keep_s
    return StorageQuota(
        bytes=size,
        artifacts=count,
        bytes_max=settings.artifact_bytes_max if own_max is None else own_max,
        keep_s=settings.artifact_keep_s if own_keep_s is None else own_keep_s,
    )


@asynccontextmanager
async def reserved(
    hub: Hub, asker: Principal | NodePrincipal, *, digest: str, size: int
) -> AsyncIterator[None]:
    """While bytes come there is room for as many as were announced, whatever else is sent at the same time."""
    owner = asker.node_id if isinstance(asker, NodePrincipal) else asker.account_id
    there = await hub.process.in_thread(hub.artifacts.blobs.uploading, owner)

    def more() -> int:
        """This one, with what else is on its way from this owner: as long as it says, or as it lies here unfinished."""
        return size + sum(
            ({**there, **dict(sorted(hub.artifacts.arriving.get(owner, ())))} | {digest: 0}).values()
        )

    if isinstance(asker, NodePrincipal):
        known = await _usage(hub, owner, more=more(), is_node=True)
        _check(asker, known, more())
        await _check_results(hub, asker, more())
    else:
        known = await _usage(hub, owner, more=more())
    # From here to the reservation nothing is waited for: those that came at the same time see it.
    _check(asker, known, more())
    coming = hub.artifacts.arriving.setdefault(owner, [])
    coming.append((digest, size))
    try:
        yield
    finally:
        coming.remove((digest, size))
        if not coming:
            hub.artifacts.arriving.pop(owner, None)


def check_kept(tx: Tx, asker: Principal | NodePrincipal, *, size: int, snapshot: Snapshot) -> None:
    """In the transaction that keeps it: another hub may have been faster. Far from the limit the estimate is enough."""
    owner = asker.node_id if isinstance(asker, NodePrincipal) else asker.account_id
    known = _fresh(snapshot.storage.get(owner), tx.now_ms)
    if known is None or 2 * (known.bytes + size) >= known.bytes_max:
        known = _count(snapshot.settings, tx, owner, is_node=isinstance(asker, NodePrincipal))
    _check(asker, known, size)


def _check(asker: Principal | NodePrincipal, known: StorageUsage, more: int) -> None:
    if known.bytes + more <= known.bytes_max:
        return
    if isinstance(asker, NodePrincipal):
        raise QuotaExceeded(
            f"This node has sent {byte_size(known.bytes)} that no report has named; it may send {byte_size(known.bytes_max)}."
        )
    raise QuotaExceeded(
        f"{_of(known)} {byte_size(more)} more do not fit. `pool artifacts list` shows what there is, `pool artifacts rm` "
        "gives it up.",
        field="size",
    )


async def reserve_submission(hub: Hub, account_id: str, *, size: int) -> None:
    """What a submission brings along is counted as files are, and from now on, as others come at the same time, until
    `end_submission`. An account that is over its quota makes nothing new.
    """
    kept = await _usage(hub, account_id, more=hub.artifacts.submitting[account_id] + size)
    # From here to the reservation nothing is waited for.
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
    """In the transaction that keeps it: another hub may have been faster. Far from the limit the estimate is enough."""
    known = _fresh(snapshot.storage.get(account_id), tx.now_ms)
    if known is not None and 2 * known.bytes < known.bytes_max:
        return
    counted = _count(snapshot.settings, tx, account_id)
    counted.bytes += inline_rows.counted(tx, account_id)
    counted.bytes -= size
    if counted.bytes + _weight(size) > counted.bytes_max:
        raise _no_submission(counted, size)


def _weight(size: int) -> int:
    return size if size > SMALL_BYTES else 0


def _no_submission(kept: StorageUsage, size: int) -> QuotaExceeded:
    return QuotaExceeded(
        f"{_of(kept)} {byte_size(size)} of programs and arguments more do not fit. Give some up before you submit: "
        "`pool artifacts list`, `pool artifacts rm`."
    )


def log_max_bytes(snapshot: Snapshot, account_id: str) -> int:
    """Of what an attempt prints. Of an account beyond its reserve, only as much as its report is compared with. By the
    estimate: a line is no reason to count.
    """
    known, settings = snapshot.storage.get(account_id), snapshot.settings
    full = known is not None and not _has_reserve(settings, known, 0)
    return must_send_bytes(settings) if full else settings.log_max_bytes


def must_send_bytes(settings: Settings) -> int:
    """Of what an attempt writes. From there on its node may leave out the rest."""
    return min(LOG_SENT_MIN, settings.log_max_bytes)


def check_words(tx: Tx, account_id: str, *, more: int, snapshot: Snapshot, changes: StorageChanges) -> None:
    """In the transaction that keeps keys, their metadata or what is reported of them: it counts as files do."""
    known = _fresh(snapshot.storage.get(account_id), tx.now_ms)
    if known is None or 2 * (known.bytes + more) >= known.bytes_max:
        known = changes.counted[account_id] = _count(snapshot.settings, tx, account_id)
    if known.bytes + more > known.bytes_max:
        raise QuotaExceeded(f"{_of(known)} {byte_size(more)} of keys and results more do not fit.")
    changes.give(account_id, more)


async def check_group(hub: Hub, account_id: str) -> None:
    count = await hub.store.read(lambda connection: group_rows.count_of_account(connection, account_id))
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
    """In the transaction that hands files of a job to its account: what to say where there is no room for them.

    `changes`: what the transaction gives besides; they are added to it. `reserve`: it may be used, too. `text`: bytes of
    a result that is kept in the database itself. `replaces`: bytes that go when these come.
    """
    besides = changes.given.get(account_id, 0) + text - replaces
    known = _fresh(changes.counted.get(account_id) or snapshot.storage.get(account_id), tx.now_ms)
    if known is None or known.bytes + besides + sum(files.values()) > known.bytes_max:
        own = artifact_rows.readable_of(tx.connection, files, account_id=account_id)
        more = besides + sum(size for digest, size in files.items() if digest not in own)
        # Remembered for the reports that follow: a large account is not counted for each of them.
        counted = changes.counted[account_id] = _count(snapshot.settings, tx, account_id)
        most = counted.bytes_max * (1 + snapshot.settings.artifact_reserve) if reserve else counted.bytes_max
        if more > 0 and counted.bytes + more > most:
            return _full(counted, more)
    changes.give(account_id, text - replaces + sum(files.values()))
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
    """The outputs of a job that was given up become its account's, for looking at: those the node sent (`sizes`),
    and only where there is room without the reserve, which is for results.
    """
    sent = [file for file in files if file.digest in sizes]
    room = {file.digest: sizes[file.digest] for file in sent}
    full = hand_over(tx, job.account_id, files=room, snapshot=snapshot, changes=changes, reserve=False)
    if full is None:
        shared = {"account_id": job.account_id, "job_id": job.id, "role": "output"}
        artifact_rows.refer(tx, [{"digest": file.digest, "name": file.name, **shared} for file in sent])


def follow(hub: Hub, changes: StorageChanges) -> None:
    """After the commit. Far from the quota that is good enough; near it, it is counted anew."""
    for owner, counted in changes.counted.items():
        _remember(hub, owner, counted)
    for account_id, size in changes.given.items():
        count_in(hub, account_id, size)
        known = hub.artifacts.usage.get(account_id)
        if known is not None and 2 * known.bytes >= known.bytes_max:
            del hub.artifacts.usage[account_id]


def follow_and_reply(hub: Hub, done: tuple[T, StorageChanges]) -> T:
    """What a unit replies, after memory has followed what it changed."""
    reply, changes = done
    follow(hub, changes)
    return reply


async def _usage(hub: Hub, owner: str, *, more: int, is_node: bool = False) -> StorageUsage:
    before = hub.artifacts.usage.get(owner)
    known = _fresh(before, hub.now_ms())
    if known is not None and known.bytes + more <= known.bytes_max:
        return known
    had = 0 if before is None else before.bytes
    now_ms, settings = hub.now_ms(), hub.settings
    counted = await hub.store.read(lambda c: _counted(settings, c, owner, is_node=is_node, now_ms=now_ms))
    newer = hub.artifacts.usage.get(owner)
    if newer is not None and newer is not before:
        return newer  # counted at the same time, with what came since
    if before is not None:
        counted.bytes += max(0, before.bytes - had)  # it came while this was counted, or after
    return _remember(hub, owner, counted)


def _fresh(known: StorageUsage | None, now_ms: int) -> StorageUsage | None:
    old = known is None or not 0 <= now_ms - known.counted_at_ms < _ESTIMATE_MS
    return None if old else known


def _count(settings: Settings, tx: Tx, owner: str, *, is_node: bool = False) -> StorageUsage:
    return _counted(settings, tx.connection, owner, is_node=is_node, now_ms=tx.now_ms)


def _counted(
    settings: Settings, connection: Connection, owner: str, *, is_node: bool, now_ms: int
) -> StorageUsage:
    if is_node:
        sent = artifact_rows.unreported_bytes(connection, owner)
        return StorageUsage(sent, settings.unreported_max_bytes, now_ms)
    room = room_of(settings, connection, owner)
    return StorageUsage(room.bytes, room.bytes_max, now_ms)


def _remember(hub: Hub, owner: str, kept: StorageUsage) -> StorageUsage:
    while len(hub.artifacts.usage) >= _ESTIMATES_MAX:
        hub.artifacts.usage.pop(next(iter(hub.artifacts.usage)))
    hub.artifacts.usage[owner] = kept
    return kept


async def _check_results(hub: Hub, node: NodePrincipal, size: int) -> None:
    """The bytes do not say for which of its jobs they are: it is enough that one of their accounts has room."""
    owners = await hub.store.read(
        lambda connection: (
            artifact_rows.accounts_at(connection, node.node_id)
            or artifact_rows.accounts_late_at(connection, node.node_id)
        )
    )
    full = None
    for account_id in owners:
        kept = await _usage(hub, account_id, more=size)
        if _has_reserve(hub.settings, kept, size):
            return
        full = kept
    if full is None:
        raise Forbidden("This node runs no job that this could be a result of.")
    raise QuotaExceeded(_full(full, size))


def _has_reserve(settings: Settings, kept: StorageUsage, more: int) -> bool:
    return kept.bytes + more <= kept.bytes_max * (1 + settings.artifact_reserve)


def _full(kept: StorageUsage, more: int) -> str:
    return (
        f"The submitter's account keeps {byte_size(kept.bytes)} of files and job data and may keep "
        f"{byte_size(kept.bytes_max)}; there is no room for {byte_size(more)} of results."
    )


def _of(kept: StorageUsage) -> str:
    return f"Your account keeps {byte_size(kept.bytes)} of files and job data and may keep {byte_size(kept.bytes_max)}."
