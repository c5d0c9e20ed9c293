"""Groups: jobs that belong together, their counts and their stream of results. What completes them is in collector.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from computepool.core.jobs.lifecycle import TERMINAL, JobState, Reason
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.artifacts import storage_quota
from computepool.hub.clock import new_id
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.groups import rows as group_rows
from computepool.hub.groups.rows import ExpectedKeyRow, GroupJobRow, GroupRow, ResultRow
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal
from computepool.hub.identity.idempotency import Remembered, once
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs import transitions, views
from computepool.hub.jobs.running import children
from computepool.hub.jobs.running.children import Parent
from computepool.hub.jobs.transitions import Effects, Settlement
from computepool.hub.nodes import group_homes
from computepool.hub.nodes import rows as node_rows
from computepool.hub.notifications import rows as webhook_rows
from computepool.hub.settlement import after_commit, follow_ups
from computepool.hub.snapshot import Snapshot, write
from computepool.protocol.jobs.groups import GroupPage, GroupRequest, GroupView, ResultPage
from computepool.protocol.jobs.jobs import JobResult

#: Groups a person made on purpose; an SDK client's own session is listed only when asked for.
SHOWN = ("group", "map", "slices")
#: How a key without a job is counted while nothing is known of it.
EXPECTED = "expected"
_CANCEL_BATCH = 500
_CANCEL_ROUNDS = 20
_OWNERS_MAX = 100_000

_Sized = TypeVar("_Sized", ResultRow, GroupJobRow, ExpectedKeyRow)


def view(connection: Connection, row: GroupRow, *, hub: Hub | None = None) -> dict[str, Any]:
    """The fields of a GroupView; with the hub it is known whether its home is there."""
    # Keys first: one that becomes a job in between is counted twice, never not at all.
    keys = group_rows.count_keys(connection, row.id) if row.expected else {}
    counts = job_rows.count_group(connection, row.id)
    for state, count in keys.items():
        shown = EXPECTED if state == group_rows.PENDING else state
        counts[shown] = counts.get(shown, 0) + count
    total, succeeded = sum(counts.values()), counts.get(JobState.SUCCEEDED, 0)
    failed = sum(counts.get(state, 0) for state in TERMINAL if state is not JobState.SUCCEEDED)
    pending = total - succeeded - failed
    node = None if row.home is None else node_rows.get_node(connection, row.home)
    offline_ms = None if hub is None or node is None else group_homes.offline_since(hub, node)
    return row._asdict() | {
        "counts": counts,
        "total": total,
        "succeeded": succeeded,
        "failed": failed,
        "pending": pending,
        "complete": row.completed_at_ms is not None if row.watched else total > 0 and not pending,
        "home": group_homes.view(row, node, offline_ms=offline_ms),
    }


async def create(
    hub: Hub,
    principal: Principal,
    request: GroupRequest,
    *,
    remembered: Remembered,
    parent: Parent | None = None,
) -> GroupView:
    """`parent`: the running job that makes it, for jobs that it submits."""
    await storage_quota.check_group(hub, principal.account_id)
    group_id, settings = new_id(hub.clock, "grp"), hub.settings

    def effect(tx: Tx) -> GroupView:
        account = principal.account_id
        named = request.home is not None or request.return_home
        home = group_homes.find(tx.connection, account, request.home) if named else None
        group_rows.insert_group(
            tx,
            group_id=group_id,
            account_id=account,
            name=request.name,
            kind=request.kind,
            home=home,
            return_home=request.return_home,
            watched=request.return_home
            or (request.kind in SHOWN and webhook_rows.hears_of_groups(tx.connection, account)),
        )
        tx.emit(actor=account, action="group.created", account_id=account, group_id=group_id)
        if parent is not None:
            children.admit_group(tx, parent, group_id=group_id, settings=settings)
        row = group_rows.get_group(tx.connection, group_id)
        assert row is not None
        return GroupView(**view(tx.connection, row))

    return await hub.store.write(lambda tx: once(tx, remembered, lambda: effect(tx), model=GroupView))


def owned(connection: Connection, principal: Principal, group_id: str) -> GroupRow:
    return owned_row(principal, group_rows.get_group(connection, group_id))


def owned_row(principal: Principal, row: GroupRow | None) -> GroupRow:
    return access.owned(principal, row, what="group")


async def check_owner(hub: Hub, principal: Principal, group_id: str) -> None:
    """A group's owner never changes, so a result stream asks the store about it once."""
    owner = hub.jobs.group_owners.get(group_id)
    if owner is None:
        row = await hub.store.read(lambda connection: owned(connection, principal, group_id))
        owner = row.account_id
        if len(hub.jobs.group_owners) >= _OWNERS_MAX:
            hub.jobs.group_owners.clear()
        hub.jobs.group_owners[group_id] = owner
    access.check_owner(principal, owner, what="group")


async def get(hub: Hub, principal: Principal, group_id: str) -> GroupView:
    return await hub.store.read(
        lambda connection: GroupView(**view(connection, owned(connection, principal, group_id), hub=hub))
    )


async def search(
    hub: Hub, principal: Principal, text: str, *, kind: str | None, after: str | None, limit: int
) -> GroupPage:
    """By a part of the name."""

    def load(connection: Connection) -> GroupPage:
        rows, seen = group_rows.search_groups(
            connection,
            text,
            account_id=access.scope(principal),
            kinds=SHOWN if kind is None else (kind,),
            before=after,
            limit=limit,
        )
        return GroupPage(groups=[GroupView(**view(connection, row)) for row in rows], next=seen)

    return await hub.store.read(load)


async def page(
    hub: Hub, principal: Principal, *, kind: str | None, name: str | None, after: str | None, limit: int
) -> GroupPage:
    def load(connection: Connection) -> list[GroupView]:
        rows = group_rows.list_groups(
            connection,
            account_id=access.scope(principal),
            kinds=SHOWN if kind is None else (kind,),
            name=name,
            before=after,
            limit=limit,
        )
        return [GroupView(**view(connection, row)) for row in rows]

    groups = await hub.store.read(load)
    return GroupPage(groups=groups, next=groups[-1].id if len(groups) == limit else None)


async def results(
    hub: Hub, principal: Principal, group_id: str, *, after: int, limit: int, wait_ms: int
) -> ResultPage:
    """What finished since the cursor; waits for the first new one if asked to."""
    await check_owner(hub, principal, group_id)

    def load(connection: Connection) -> list[JobResult]:
        return _load_results(hub, connection, group_id, after=after, limit=limit)

    async def look() -> tuple[list[JobResult], bool]:
        found = await hub.store.read(load)
        return found, bool(found)

    found = await hub.long_poll(look, f"group:{group_id}", wait_ms=wait_ms)
    if not found:
        # Who hears that nothing is open asks no more. So once more, in this order: what ended since is among the results.
        pending = await unfinished(hub, group_id)
        found = await hub.store.read(load) if pending == 0 else []
        if not found:
            return ResultPage(results=[], cursor=after, open=pending)
    return ResultPage(results=found, cursor=found[-1].seq)


def _load_results(
    hub: Hub, connection: Connection, group_id: str, *, after: int, limit: int
) -> list[JobResult]:
    rows = within(
        group_rows.list_results(connection, group_id=group_id, after=after, limit=limit),
        hub.settings.result_page_bytes,
    )
    outputs = artifact_rows.outputs_of(connection, [row.id for row in rows if row.has_job]) if rows else {}
    reported_keys = {
        row.seq: str(json.loads(row.event_data or "{}")["key"]) for row in rows if not row.has_job
    }
    keys = group_rows.get_expected(connection, group_id, set(reported_keys.values())) if reported_keys else {}
    return [
        views.job_result(row, seq=row.seq, outputs=outputs)
        if row.has_job
        else key_result(keys[reported_keys[row.seq]], seq=row.seq)
        for row in rows
    ]


def key_result(row: ExpectedKeyRow, *, seq: int) -> JobResult:
    """Of a key that was reported from outside: there is no job."""
    return JobResult.from_attributes(row, seq=seq, job_id="", reason=Reason.REPORTED)


def within(rows: Sequence[_Sized], bytes_max: int) -> list[_Sized]:
    """As many as fit a reply of sensible size, and at least one: the cursor brings the rest."""
    kept: list[_Sized] = []
    for row in rows:
        bytes_max -= len(row.result or "") + len(row.error or "")
        if kept and bytes_max < 0:
            break
        kept.append(row)
    return kept


async def unfinished(hub: Hub, group_id: str) -> int:
    def load(connection: Connection) -> int:
        keys = group_rows.count_keys(connection, group_id).get(group_rows.PENDING, 0)  # first, as in `view`
        counts = job_rows.count_group(connection, group_id)
        return keys + sum(count for state, count in counts.items() if JobState(state) not in TERMINAL)

    return await hub.store.read(load)


async def cancel(hub: Hub, principal: Principal, group_id: str) -> GroupView:
    """Cancel every unfinished job of the group, in batches, so that a huge group does not hold the store.

    Keys that nobody has reported fail with it: nobody will wait for them any more.
    """
    await hub.store.read(lambda connection: owned(connection, principal, group_id))
    for _ in range(_CANCEL_ROUNDS):  # somebody may still be submitting into it
        job_ids = await hub.store.read(lambda connection: job_rows.open_in_group(connection, group_id))
        if not job_ids:
            break
        for start in range(0, len(job_ids), _CANCEL_BATCH):
            batch = job_ids[start : start + _CANCEL_BATCH]
            unit = partial(_cancel_batch, job_ids=batch, by=principal)
            await after_commit.follow(hub, await write(hub, unit))
    while await hub.store.write(lambda tx: _fail_keys(tx, group_id, principal)):
        pass
    return await get(hub, principal, group_id)


def _cancel_batch(tx: Tx, snapshot: Snapshot, *, job_ids: list[str], by: Principal) -> Settlement:
    effects = Effects()
    for row in job_rows.lock_jobs(tx, job_ids).values():
        if JobState(row.state) not in TERMINAL:
            transitions.finish(
                tx,
                row,
                JobState.CANCELLED,
                actor=by.account_id,
                reason=Reason.CANCELLED_BY_USER,
                effects=effects,
            )
    return follow_ups.follow(tx, snapshot, effects)


def _fail_keys(tx: Tx, group_id: str, principal: Principal) -> bool:
    """True while there may be more."""
    row = owned_row(principal, group_rows.lock_group(tx, group_id))
    keys = group_rows.pending_keys(tx.connection, group_id, limit=_CANCEL_BATCH)
    ends = [
        {"name": key, "outcome": group_rows.FAILED, "value": None, "words": "The group was cancelled."}
        for key in keys
    ]
    end_keys(tx, row, ends, actor=principal.account_id)
    return len(keys) == _CANCEL_BATCH


def end_keys(tx: Tx, row: GroupRow, ends: Sequence[dict[str, Any]], *, actor: str) -> None:
    """Keys without a job are over. The caller holds the group, and knows that they were pending."""
    if not ends:
        return
    group_rows.report(tx, row.id, ends)
    for end in ends:
        tx.emit(
            actor=actor,
            action=f"key.{end['outcome']}",
            final=True,
            account_id=row.account_id,
            group_id=row.id,
            before=EXPECTED,
            after=end["outcome"],
            reason=Reason.REPORTED.value,
            data=json.dumps({"key": end["name"]}),
        )
    tx.touch(f"group:{row.id}", "events")
    tx.closing.add(row.id)
