"""Groups: jobs that belong together, their counts and their stream of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from computepool.core.jobs import TERMINAL, JobState, Reason
from computepool.hub.clock import new_id
from computepool.hub.services import access, lifecycle, views
from computepool.hub.services.access import Principal
from computepool.hub.services.context import Hub
from computepool.hub.services.idempotency import Remembered, once
from computepool.hub.services.lifecycle import Effects
from computepool.hub.store import artifacts as artifact_rows
from computepool.hub.store import jobs as job_rows
from computepool.hub.store import records
from computepool.hub.store.session import AnyRow, Connection, Tx
from computepool.protocol.groups import GroupPage, GroupRequest, GroupView, ResultPage

#: Groups a person made on purpose; an SDK client's own session is listed only when asked for.
_SHOWN = ("group", "map", "slices")
_CANCEL_BATCH = 500
_OWNERS_MAX = 100_000


def _view(row: AnyRow, counts: dict[str, int]) -> GroupView:
    return GroupView(
        id=row.id,
        name=row.name,
        kind=row.kind,
        account_id=row.account_id,
        created_at_ms=row.created_at_ms,
        counts=counts,
        total=sum(counts.values()),
    )


async def create(
    hub: Hub, principal: Principal, request: GroupRequest, *, remembered: Remembered
) -> GroupView:
    group_id = new_id(hub.clock, "grp")

    def effect(tx: Tx) -> GroupView:
        account = principal.account_id
        records.insert_group(tx, group_id=group_id, account_id=account, name=request.name, kind=request.kind)
        tx.emit(actor=account, action="group.created", account_id=account, group_id=group_id)
        return GroupView(
            id=group_id,
            name=request.name,
            kind=request.kind,
            account_id=account,
            created_at_ms=tx.now_ms,
            counts={},
            total=0,
        )

    return await hub.store.write(lambda tx: once(tx, remembered, lambda: effect(tx), model=GroupView))


async def _owned(hub: Hub, principal: Principal, group_id: str) -> AnyRow:
    row = await hub.store.read(lambda connection: records.get_group(connection, group_id))
    access.check_owner(principal, row.account_id if row is not None else None, what="group")
    assert row is not None
    return row


async def _check_owner(hub: Hub, principal: Principal, group_id: str) -> None:
    """A group's owner never changes, so a result stream asks the store about it once."""
    owner = hub.group_owners.get(group_id)
    if owner is None:
        owner = (await _owned(hub, principal, group_id)).account_id
        if len(hub.group_owners) >= _OWNERS_MAX:
            hub.group_owners.clear()
        hub.group_owners[group_id] = owner
    access.check_owner(principal, owner, what="group")


async def get(hub: Hub, principal: Principal, group_id: str) -> GroupView:
    row = await _owned(hub, principal, group_id)
    return _view(row, await hub.store.read(lambda connection: job_rows.count_group(connection, group_id)))


async def page(
    hub: Hub, principal: Principal, *, kind: str | None, after: str | None, limit: int
) -> GroupPage:
    def load(connection: Connection) -> list[GroupView]:
        rows = records.list_groups(
            connection,
            account_id=access.scope(principal),
            kinds=_SHOWN if kind is None else (kind,),
            before=after,
            limit=limit,
        )
        return [_view(row, job_rows.count_group(connection, row.id)) for row in rows]

    groups = await hub.store.read(load)
    return GroupPage(groups=groups, next=groups[-1].id if len(groups) == limit else None)


async def results(
    hub: Hub, principal: Principal, group_id: str, *, after: int, limit: int, wait_ms: int
) -> ResultPage:
    """What finished since the cursor; waits for the first new one if asked to."""
    await _check_owner(hub, principal, group_id)
    deadline_ms = hub.now_ms() + wait_ms

    def load(connection: Connection) -> tuple[Any, Any]:
        rows = _within(
            records.list_results(connection, group_id=group_id, after=after, limit=limit),
            hub.settings.result_page_bytes,
        )
        return rows, artifact_rows.outputs_of(connection, [row.id for row in rows]) if rows else {}

    while True:
        with hub.signals.watch(f"group:{group_id}") as watch:
            rows, outputs = await hub.store.read(load)
            left_ms = deadline_ms - hub.now_ms()
            if rows or left_ms <= 0 or hub.stopping:
                break
            await watch.wait(left_ms / 1000)
    if not rows:
        return ResultPage(results=[], cursor=after, open=await _unfinished(hub, group_id))
    found = [views.job_result(row, seq=row.seq, outputs=outputs) for row in rows]
    return ResultPage(results=found, cursor=found[-1].seq)


def _within(rows: Sequence[AnyRow], bytes_max: int) -> list[AnyRow]:
    """As many as fit a reply of sensible size, and at least one: the cursor brings the rest."""
    kept: list[AnyRow] = []
    for row in rows:
        bytes_max -= len(row.result or "") + len(row.error or "")
        if kept and bytes_max < 0:
            break
        kept.append(row)
    return kept


async def _unfinished(hub: Hub, group_id: str) -> int:
    counts = await hub.store.read(lambda connection: job_rows.count_group(connection, group_id))
    return sum(count for state, count in counts.items() if JobState(state) not in TERMINAL)


async def cancel(hub: Hub, principal: Principal, group_id: str) -> tuple[GroupView, Effects]:
    """Cancel every unfinished job of the group, in batches, so that a huge group does not hold the store."""
    await _owned(hub, principal, group_id)
    effects = Effects()
    job_ids = await hub.store.read(lambda connection: job_rows.open_in_group(connection, group_id))
    for start in range(0, len(job_ids), _CANCEL_BATCH):
        batch = job_ids[start : start + _CANCEL_BATCH]
        part = await hub.store.write(lambda tx, batch=batch: _cancel_batch(tx, batch, principal))  # type: ignore[misc]
        effects.finished += part.finished
        effects.ended += part.ended
    return await get(hub, principal, group_id), effects


def _cancel_batch(tx: Tx, job_ids: list[str], principal: Principal) -> Effects:
    effects = Effects()
    for row in job_rows.lock_jobs(tx, job_ids).values():
        if JobState(row.state) not in TERMINAL:
            lifecycle.finish(
                tx,
                row,
                JobState.CANCELLED,
                actor=principal.account_id,
                reason=Reason.CANCELLED_BY_USER,
                effects=effects,
            )
    return effects
