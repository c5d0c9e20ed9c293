"""Volumes of an account: create, list, show, remove, and their versions."""

from __future__ import annotations

from computepool.core.errors import Conflict, NotFound, TooLarge
from computepool.core.jobs import volumes as rules
from computepool.hub.artifacts import garbage_collection
from computepool.hub.clock import new_id
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity.access import Principal
from computepool.hub.identity.idempotency import Remembered, write_once
from computepool.hub.jobs.attempt_rows import job_id_of
from computepool.hub.volumes import rows
from computepool.hub.volumes.rows import VersionRow, VolumeRow
from computepool.protocol.volumes.volumes import (
    HeadRequest,
    VersionPage,
    VolumeList,
    VolumeRequest,
    VolumeVersion,
    VolumeView,
)

#: Volumes pruned, and jobs whose uses are dropped, in one transaction.
_BATCH = 100


async def create(hub: Hub, principal: Principal, request: VolumeRequest, *, remembered: Remembered) -> VolumeView:
    volume_id, account, most = new_id(hub.clock, "vol"), principal.account_id, hub.settings.volumes_max

    def effect(tx: Tx) -> VolumeView:
        if rows.count_of_account(tx.connection, account) >= most:
            raise TooLarge(f"An account may have {most} volumes; remove one first.")
        if not rows.insert(tx, volume_id=volume_id, account_id=account, name=request.name):
            raise Conflict(f"You already have a volume named {request.name}.", field="name")
        tx.emit_own(account, "volume.created", volume=request.name)
        return _view(tx.connection, get_own(tx.connection, principal, request.name))

    return await write_once(hub, remembered, effect, model=VolumeView)


async def list_own(hub: Hub, principal: Principal) -> VolumeList:
    def load(connection: Connection) -> VolumeList:
        return VolumeList(volumes=[_view(connection, row) for row in rows.of_account(connection, principal.account_id)])

    return await hub.store.read(load)


async def show(hub: Hub, principal: Principal, name: str) -> VolumeView:
    return await hub.store.read(lambda connection: _view(connection, get_own(connection, principal, name)))


async def versions(hub: Hub, principal: Principal, name: str, *, after: int | None, limit: int) -> VersionPage:
    def load(connection: Connection) -> VersionPage:
        volume = get_own(connection, principal, name)
        found = rows.list_versions(connection, volume.id, before=after, limit=limit)
        next_ = str(found[-1].number) if len(found) == limit else None
        return VersionPage(versions=[version_view(volume, row) for row in found], next=next_)

    return await hub.store.read(load)


async def version(hub: Hub, principal: Principal, name: str, *, number: int) -> VolumeVersion:
    def load(connection: Connection) -> VolumeVersion:
        volume = get_own(connection, principal, name)
        return version_view(volume, get_version(connection, volume, number))

    return await hub.store.read(load)


async def set_head(hub: Hub, principal: Principal, name: str, *, request: HeadRequest) -> VolumeView:
    """Go back to an earlier version, or take a conflict as the head. Jobs that started from another become conflicts."""

    def unit(tx: Tx) -> VolumeView:
        volume = get_own(tx.connection, principal, name)
        get_version(tx.connection, volume, request.version)
        if not rows.move_head(tx, volume.id, expected=request.expected, to=request.version):
            head = get_own(tx.connection, principal, name).head
            raise Conflict(f"The head of {name} is version {head} now, not {request.expected}; look again.")
        rows.clear_conflict(tx, volume.id, request.version)
        before, after = request.expected, request.version
        tx.emit_own(principal.account_id, "volume.rolled_back", volume=name, before=before, after=after)
        return _view(tx.connection, get_own(tx.connection, principal, name))

    return await hub.store.write(unit)


async def remove(hub: Hub, principal: Principal, name: str) -> None:
    """With all versions. Jobs that mount it must have ended."""

    def unit(tx: Tx) -> list[str]:
        volume = get_own(tx.connection, principal, name)
        rows.lock(tx, [volume.id])  # A submission that mounts it locks it, too.
        if used := rows.open_jobs(tx.connection, volume.id):
            more = f" and {len(used) - 1} more" if len(used) > 1 else ""
            raise Conflict(f"Job {used[0]}{more} still uses {name}; wait for it or cancel it first.")
        numbers = [one.number for one in rows.facts(tx.connection, volume.id)]
        places = rows.drop_versions(tx, volume.id, numbers)
        rows.remove(tx, volume.id)
        tx.emit_own(principal.account_id, "volume.removed", volume=name)
        return places

    await garbage_collection.erase(hub, await hub.store.write(unit))
    hub.artifacts.usage.pop(principal.account_id, None)


async def prune(hub: Hub) -> None:
    """Delete what is beyond the number of versions kept, and the uses of jobs that have ended."""
    kept = hub.settings.volume_versions_max

    def unit(tx: Tx) -> list[str]:
        places: list[str] = []
        found = rows.find_crowded(tx.connection, kept=kept, limit=_BATCH)
        for volume in rows.lock(tx, found).values() if found else ():
            needed = {volume.head, *rows.parents_in_use(tx.connection, volume.id)}
            surplus = rules.surplus(rows.facts(tx.connection, volume.id), kept=kept, needed=needed)
            places += rows.drop_versions(tx, volume.id, surplus)
        rows.drop_ended_uses(tx, limit=_BATCH * 10)
        return places

    await garbage_collection.erase(hub, await hub.store.write(unit))


def get_own(connection: Connection, principal: Principal, name: str) -> VolumeRow:
    row = rows.get(connection, account_id=principal.account_id, name=name)
    if row is None:
        raise NotFound(f"You have no volume named {name}. Create it: pool volume create {name}")
    return row


def get_version(connection: Connection, volume: VolumeRow, number: int) -> VersionRow:
    row = rows.get_version(connection, volume.id, number)
    if row is None:
        raise NotFound(f"{volume.name} has no version {number}; it may have been pruned.")
    return row


def version_view(volume: VolumeRow, row: VersionRow) -> VolumeVersion:
    conflict = None
    if row.conflict_head is not None:
        conflict = rules.conflict_sentence(number=row.number, parent=row.parent, head=row.conflict_head)
    job_id = None if row.attempt_id is None else job_id_of(row.attempt_id)
    is_head = row.number == volume.head
    return VolumeVersion.from_attributes(row, conflict=conflict, is_head=is_head, job_id=job_id)


def _view(connection: Connection, row: VolumeRow) -> VolumeView:
    head = rows.get_version(connection, row.id, row.head)
    return VolumeView.from_attributes(
        row,
        size=0 if head is None else head.size,
        files=0 if head is None else head.files,
        versions=rows.count_versions(connection, row.id),
        jobs=len(rows.open_jobs(connection, row.id)),
    )
