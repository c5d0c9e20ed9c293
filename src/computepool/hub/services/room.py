"""How much an account, or a node, may keep at the hub. Counted as jobs are: exactly when the estimate says no, or is old.

Two limits. Beyond its quota an account may send nothing more and submit nothing more; what its jobs come to is kept all the
same, up to a reserve beyond the quota, so that a full account does not lose the result of a job that is done. Beyond the
reserve a node is refused, and the job fails and says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from computepool.core.errors import QuotaExceeded
from computepool.hub.services.access import NodePrincipal, Principal
from computepool.hub.services.context import Hub, Kept
from computepool.hub.services.threads import in_thread
from computepool.hub.store import accounts
from computepool.hub.store import artifacts as artifact_rows
from computepool.hub.store.session import Connection

#: An estimate may miss what came through another hub, or with a report: so it is not trusted for longer.
_ESTIMATE_MS = 30_000
_ESTIMATES_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What an account keeps, and may keep."""

    bytes: int
    artifacts: int
    bytes_max: int
    keep_s: float


def room_of(hub: Hub, connection: Connection, account_id: str) -> Room:
    size, count = artifact_rows.kept_bytes(connection, account_id)
    row, settings = accounts.get_account(connection, account_id), hub.settings
    own_max = None if row is None else row.artifact_bytes_max
    own_keep_s = None if row is None else row.artifact_keep_s
    return Room(
        bytes=size,
        artifacts=count,
        bytes_max=settings.artifact_bytes_max if own_max is None else own_max,
        keep_s=settings.artifact_keep_s if own_keep_s is None else own_keep_s,
    )


async def check_upload(
    hub: Hub, asker: Principal | NodePrincipal, *, digest: str, size: int, owner: str
) -> None:
    """Before bytes are taken: with what else is on its way from this owner, and this one as long as it says."""
    size += await in_thread(hub, hub.blobs.uploading, owner, but=digest)
    if isinstance(asker, NodePrincipal):
        await _check_node(hub, asker, size)
        return
    kept = await _kept(hub, owner, more=size)
    if kept.bytes + size > kept.bytes_max:
        raise QuotaExceeded(
            f"{_of(kept)} {_size(size)} more do not fit. `pool artifacts list` shows what there is, `pool artifacts rm` "
            "gives it up.",
            field="size",
        )


async def check_submit(hub: Hub, account_id: str) -> None:
    """An account that is over its quota makes nothing new, or its jobs would fill the hub one by one."""
    kept = await _kept(hub, account_id, more=0)
    if kept.bytes > kept.bytes_max:
        raise QuotaExceeded(
            f"{_of(kept)} Give some up before you submit: `pool artifacts list`, `pool artifacts rm`."
        )


def count_in(hub: Hub, owner: str, size: int) -> None:
    if owner in hub.kept:
        hub.kept[owner].bytes += size


def note_results(hub: Hub, account_ids: Iterable[str]) -> None:
    """What reports handed on is not in the estimate. Far from the quota that can wait; near it, it is counted anew."""
    for account_id in account_ids:
        known = hub.kept.get(account_id)
        if known is not None and 2 * known.bytes >= known.bytes_max:
            del hub.kept[account_id]


async def _kept(hub: Hub, account_id: str, *, more: int) -> Kept:
    known, now_ms = hub.kept.get(account_id), hub.now_ms()
    old = known is None or not 0 <= now_ms - known.counted_at_ms < _ESTIMATE_MS
    if known is not None and not old and known.bytes + more <= known.bytes_max:
        return known
    room = await hub.store.read(lambda connection: room_of(hub, connection, account_id))
    return _remember(hub, account_id, Kept(room.bytes, room.bytes_max, now_ms))


def _remember(hub: Hub, owner: str, kept: Kept) -> Kept:
    while len(hub.kept) >= _ESTIMATES_MAX:
        hub.kept.pop(next(iter(hub.kept)))
    hub.kept[owner] = kept
    return kept


async def _check_node(hub: Hub, node: NodePrincipal, size: int) -> None:
    most = hub.settings.unreported_max_bytes
    known, now_ms = hub.kept.get(node.node_id), hub.now_ms()
    if known is None or now_ms - known.counted_at_ms >= _ESTIMATE_MS or known.bytes + size > most:
        sent = await hub.store.read(
            lambda connection: artifact_rows.unreported_bytes(connection, node.node_id)
        )
        known = _remember(hub, node.node_id, Kept(sent, most, now_ms))
    if known.bytes + size > most:
        raise QuotaExceeded(
            f"This node has sent {_size(known.bytes)} that no report has named; it may send {_size(most)}."
        )
    await _check_results(hub, node, size)


async def _check_results(hub: Hub, node: NodePrincipal, size: int) -> None:
    """The bytes do not say for which of its jobs they are: it is enough that one of their accounts has room."""
    owners = await hub.store.read(lambda connection: artifact_rows.accounts_at(connection, node.node_id))
    full = None
    for account_id in owners:
        kept = await _kept(hub, account_id, more=size)
        if kept.bytes + size <= kept.bytes_max * (1 + hub.settings.artifact_reserve):
            return
        full = kept
    if full is not None:
        raise QuotaExceeded(
            f"The submitter's account keeps {_size(full.bytes)} of files and may keep {_size(full.bytes_max)}; there is no "
            f"room for {_size(size)} of results."
        )


def _of(kept: Kept) -> str:
    return f"Your account keeps {_size(kept.bytes)} of files and may keep {_size(kept.bytes_max)}."


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
