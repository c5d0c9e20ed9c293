"""Groups: jobs that belong together, with their counts and their stream of results. collector.py completes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from computepool.core.jobs.lifecycle import TERMINAL, JobState, Reason
from computepool.hub.artifacts import rows as artifact_rows, storage_quota
from computepool.hub.clock import new_id
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.groups import rows as group_rows
from computepool.hub.groups.rows import ExpectedKeyRow, GroupJobRow, GroupRow, ResultRow
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal
from computepool.hub.identity.idempotency import Remembered, write_once
from computepool.hub.jobs import rows as job_rows, transitions, views
from computepool.hub.jobs.running import children
from computepool.hub.jobs.running.children import Parent
from computepool.hub.nodes import group_homes, rows as node_rows
from computepool.hub.notifications import rows as webhook_rows
from computepool.hub.settlement import follow_ups
from computepool.protocol.jobs.groups import GroupPage, GroupRequest, GroupView, ResultPage
from computepool.protocol.jobs.views import JobResult

#: Kinds of groups that people create on purpose; an SDK client's own session is listed only on request.
SHOWN = ("group", "map", "slices")
EXPECTED = "expected"  #: the state of a key without a job that nobody has reported
_CANCEL_BATCH = 500
_CANCEL_ROUNDS = 20
_OWNERS_MAX = 100_000
#: Results that are looked for on the event loop, for who has waited for the next one.
_FEW = 8

_Sized = TypeVar("_Sized", ResultRow, GroupJobRow, ExpectedKeyRow)


def view(connection: Connection, row: GroupRow, *, hub: Hub | None = None) -> dict[str, Any]:
    """The fields of a GroupView; with `hub`, also whether its home is online."""
    # Keys first: a key that gets a job in between is counted twice, which is better than not at all.
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
    hub: Hub, principal: Principal, request: GroupRequest, *, remembered: Remembered, parent: Parent | None = None
) -> GroupView:
    """`parent`: the running job that creates it."""
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
            or (request.kind in SHOWN and webhook_rows.wants_groups(tx.connection, account)),
        )
        tx.emit(actor=account, action="group.created", account_id=account, group_id=group_id)
        if parent is not None:
            children.admit_group(tx, parent, group_id=group_id, settings=settings)
        row = group_rows.get_group(tx.connection, group_id)
        assert row is not None
        return GroupView(**view(tx.connection, row))

    return await write_once(hub, remembered, effect, model=GroupView)


def get_owned(connection: Connection, principal: Principal, group_id: str) -> GroupRow:
    return require_owned(principal, group_rows.get_group(connection, group_id))


def require_owned(principal: Principal, row: GroupRow | None) -> GroupRow:
    return access.require_owned(principal, row, what="group")


async def check_owner(hub: Hub, principal: Principal, group_id: str) -> None:
    """A group's owner never changes, so the store is asked once."""
    owner = hub.groups.owners.get(group_id)
    if owner is None:
        row = await hub.store.read(get_owned, principal, group_id)
        owner = row.account_id
        if len(hub.groups.owners) >= _OWNERS_MAX:
            hub.groups.owners.clear()
        hub.groups.owners[group_id] = owner
    access.check_owner(principal, owner, what="group")


async def get(hub: Hub, principal: Principal, group_id: str) -> GroupView:
    return await hub.store.read(
        lambda connection: GroupView(**view(connection, get_owned(connection, principal, group_id), hub=hub))
    )


async def page(
    hub: Hub, principal: Principal, *, kind: str | None, name: str | None, text: str, after: str | None, limit: int
) -> GroupPage:
    """`text`: a part of the name."""
    which: dict[str, Any] = {"kinds": SHOWN if kind is None else (kind,), "before": after, "limit": limit}

    def load(connection: Connection) -> GroupPage:
        if text:
            rows, seen = group_rows.search_groups(connection, text, account_id=access.scope(principal), **which)
        else:
            rows = group_rows.list_groups(connection, name=name, account_id=access.scope(principal), **which)
            seen = rows[-1].id if len(rows) == limit else None
        return GroupPage(groups=[GroupView(**view(connection, row)) for row in rows], next=seen)

    return await hub.store.read(load)


async def results(hub: Hub, principal: Principal, group_id: str, *, after: int, limit: int, wait_ms: int) -> ResultPage:
    """Results after the cursor; with `wait_ms`, wait for the first."""
    await check_owner(hub, principal, group_id)
    left_ms = await _wait_for_news(hub, group_id, after=after, wait_ms=wait_ms)
    load = partial(_load_results, hub, group_id=group_id, after=after)
    has_waited = left_ms is not None

    async def look() -> tuple[list[JobResult], bool]:
        nonlocal has_waited
        watch = hub.signals.watch(_topic(group_id))
        try:
            found, complete = await hub.store.read_few(load, limit=min(limit, _FEW)) if has_waited else ([], False)
            if not complete:
                found, complete = await hub.store.read(load, limit=limit)
            has_waited = True
        except BaseException:
            watch.close()
            raise
        if found and complete:
            hub.groups.nothing_new.keep(group_id, found[-1].seq, watch)
        else:
            watch.close()
        return found, bool(found)

    found = await hub.long_poll(look, _topic(group_id), wait_ms=wait_ms if left_ms is None else left_ms)
    if not found:
        # A client that hears that nothing is unfinished stops asking. So read the results once more after counting.
        pending = await count_unfinished(hub, group_id)
        found, _ = await hub.store.read(load, limit=limit) if pending == 0 else ([], True)
        if not found:
            return ResultPage(results=[], cursor=after, open=pending)
    return ResultPage(results=found, cursor=found[-1].seq)


def _topic(group_id: str) -> str:
    return f"group:{group_id}"


async def _wait_for_news(hub: Hub, group_id: str, *, after: int, wait_ms: int) -> int | None:
    """Wait without reading the store, if it is known that there is nothing after this cursor yet. Returns the time that is
    left to wait; None if it is not known."""
    watch = hub.groups.nothing_new.take(group_id, after)
    if watch is None:
        return None
    began_ms = hub.now_ms()
    with watch:
        if not wait_ms or hub.process.stopping or not await watch.wait(wait_ms / 1000):
            return 0
    return max(0, began_ms + wait_ms - hub.now_ms())


def _load_results(
    hub: Hub, connection: Connection, *, group_id: str, after: int, limit: int
) -> tuple[list[JobResult], bool]:
    """With whether these are all that there are."""
    listed = group_rows.list_results(connection, group_id=group_id, after=after, limit=limit)
    rows = within(listed, hub.settings.result_page_bytes)
    with_outputs = [row.id for row in rows if row.has_outputs]
    outputs = artifact_rows.outputs_of(connection, with_outputs) if with_outputs else {}
    reported_keys = {row.seq: str(json.loads(row.event_data or "{}")["key"]) for row in rows if not row.has_job}
    keys = group_rows.get_expected(connection, group_id, set(reported_keys.values())) if reported_keys else {}
    found = [
        views.job_result(row, seq=row.seq, outputs=outputs)
        if row.has_job
        else JobResult.from_attributes(keys[reported_keys[row.seq]], seq=row.seq, job_id="", reason=Reason.REPORTED)
        for row in rows
    ]
    return found, len(rows) == len(listed) < limit


def within(rows: Sequence[_Sized], bytes_max: int) -> list[_Sized]:
    """As many rows as fit into one reply, but at least one; the cursor brings the rest."""
    kept: list[_Sized] = []
    for row in rows:
        bytes_max -= len(row.result or "") + len(row.error or "")
        if kept and bytes_max < 0:
            break
        kept.append(row)
    return kept


async def count_unfinished(hub: Hub, group_id: str) -> int:
    def load(connection: Connection) -> int:
        keys = group_rows.count_keys(connection, group_id).get(group_rows.PENDING, 0)  # keys first, as in `view`
        counts = job_rows.count_group(connection, group_id)
        return keys + sum(count for state, count in counts.items() if JobState(state) not in TERMINAL)

    return await hub.store.read(load)


async def cancel(hub: Hub, principal: Principal, group_id: str) -> GroupView:
    """Cancel every unfinished job of the group, in batches, so that other writes need not wait for a huge group. Keys without
    a job fail."""
    await hub.store.read(get_owned, principal, group_id)
    for _ in range(_CANCEL_ROUNDS):  # more jobs may be submitted meanwhile
        job_ids = await hub.store.read(job_rows.open_in_group, group_id)
        if not job_ids:
            break
        for start in range(0, len(job_ids), _CANCEL_BATCH):
            batch = job_ids[start : start + _CANCEL_BATCH]
            cancel_all = partial(transitions.cancel, actor=principal.account_id, reason=Reason.CANCELLED_BY_USER)
            await follow_ups.commit(hub, partial(cancel_all, job_ids=batch))
    while await hub.store.write(_fail_keys, group_id, principal):
        pass
    return await get(hub, principal, group_id)


def _fail_keys(tx: Tx, group_id: str, principal: Principal) -> bool:
    """True while there may be more."""
    row = require_owned(principal, group_rows.lock_group(tx, group_id))
    keys = group_rows.pending_keys(tx.connection, group_id, limit=_CANCEL_BATCH)
    ends = [
        {"name": key, "outcome": group_rows.FAILED, "value": None, "words": "The group was cancelled."} for key in keys
    ]
    end_keys(tx, row, ends, actor=principal.account_id)
    return len(keys) == _CANCEL_BATCH


def end_keys(tx: Tx, row: GroupRow, ends: Sequence[dict[str, Any]], *, actor: str) -> None:
    """Record the outcomes of keys without a job. The caller has locked the group, and knows that they were pending."""
    if not ends:
        return
    group_rows.report(tx, row.id, ends)
    emit = partial(tx.emit, actor=actor, account_id=row.account_id, group_id=row.id, reason=Reason.REPORTED.value)
    for end in ends:
        outcome, data = end["outcome"], {"key": end["name"]}
        emit(action=f"key.{outcome}", final=True, before=EXPECTED, after=outcome, data=data)
    tx.touch(f"group:{row.id}")
    tx.changed_groups.add(row.id)
