"""The collector: what a group waits for, what has arrived, and when it is complete.

A group is *watched* if it has registered keys, a home, or a webhook to notify. A watched group becomes complete in the
transaction that ends the last thing it waits for (`close`), on whichever hub; other groups cost nothing. A job or key that is
added to a complete group reopens it, and it becomes complete again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel

from computepool.core.errors import Conflict, NotFound, TooLarge
from computepool.hub.artifacts import storage_quota
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.groups import groups, rows as group_rows
from computepool.hub.groups.rows import FAILED, HAS_JOB, PENDING, SUCCEEDED, GroupRow
from computepool.hub.identity.access import Principal
from computepool.hub.identity.idempotency import Remembered, once
from computepool.hub.jobs.transactions import JobTx, write_stored
from computepool.hub.nodes import group_homes
from computepool.hub.notifications import rows as webhook_rows
from computepool.hub.snapshot import take
from computepool.protocol.jobs.groups import (
    ExpectedKey,
    GroupView,
    KeyReport,
    KeyReportsReply,
    KeyReportsRequest,
    KeyVerdict,
    RegisterKeysReply,
    RegisterKeysRequest,
    ReturnHomeRequest,
)

#: How long a client that waits for an unwatched group pauses between two queries, at least; and how many times longer than a
#: query takes.
_PAUSE_S = 0.25
_PAUSE_FACTOR = 10
M = TypeVar("M", bound=BaseModel)


def watch(tx: Tx, row: GroupRow) -> None:
    """Notice from now on when the group is complete, which it may be already. The caller has locked the group."""
    if not row.watched:
        group_rows.set_group(tx, row.id, watched=True)
        group_rows.watch_jobs(tx, row.id)
    tx.changed_groups.add(row.id)


def close(tx: Tx) -> None:
    """At the end of every transaction: complete the watched groups that wait for nothing more."""
    for group_id in sorted(tx.changed_groups):
        # Of two hubs that end the last two jobs at once, the second waits here, and then sees what the first did.
        row = group_rows.lock_group(tx, group_id)
        if row is None or not row.watched or row.completed_at_ms is not None:
            continue
        if group_rows.is_waiting(tx.connection, group_id):
            continue
        if row.expected or group_rows.has_jobs(tx.connection, group_id):
            _complete(tx, row)


def _complete(tx: Tx, row: GroupRow) -> None:
    """Once per round."""
    group_rows.set_group(tx, row.id, completed_at_ms=tx.now_ms, rounds=row.rounds + 1)
    data = {"round": row.rounds + 1}
    tx.emit(actor="hub", action="group.complete", account_id=row.account_id, group_id=row.id, data=data)
    tx.touch(f"group:{row.id}", _complete_topic(row.id))
    group_homes.begin(tx, row)


def _complete_topic(group_id: str) -> str:
    return f"complete:{group_id}"


def _reopen(tx: Tx, row: GroupRow, *, actor: str) -> None:
    """The group waits for something again. Its home keeps what it has; the rest follows with the next round."""
    group_rows.set_group(tx, row.id, completed_at_ms=None, home_state=None, home_reason=None)
    tx.emit(actor=actor, action="group.reopened", account_id=row.account_id, group_id=row.id)
    group_homes.touch(tx, row.home)


def join(tx: Tx, group_id: str, *, keys: Sequence[str], account_id: str) -> bool:
    """Prepare for jobs with these keys, which the caller submits into the group. True if the group is watched."""
    found = _watch_if_subscribed(tx, group_id)
    row = None if found is None else group_rows.join_group(tx, found)
    # Not even administrators submit into the groups of others, whose owners would get the results.
    if row is None or row.account_id != account_id:
        raise NotFound("There is no such group, or it is not yours.", field="group_id")
    if row.expected and keys:
        for known in group_rows.get_expected(tx.connection, group_id, keys).values():
            if known.state in (SUCCEEDED, FAILED):
                raise Conflict(
                    f"Key {known.key!r} was reported from outside already ({known.state}); the first report stands.",
                    field="items",
                )
        group_rows.give_to_jobs(tx, group_id, keys)
    if row.completed_at_ms is not None:
        _reopen(tx, row, actor=account_id)
    return bool(row.watched)


def _watch_if_subscribed(tx: Tx, group_id: str) -> GroupRow | None:
    """Watch the group if its account has a webhook for groups. A new webhook does not watch groups without open jobs."""
    row = group_rows.get_group(tx.connection, group_id)
    if row is None or row.watched or row.kind not in groups.SHOWN:
        return row
    if not webhook_rows.wants_groups(tx.connection, row.account_id):
        return row
    locked = group_rows.lock_group(tx, group_id)
    assert locked is not None
    watch(tx, locked)
    return group_rows.get_group(tx.connection, group_id)


async def register(
    hub: Hub, principal: Principal, group_id: str, *, request: RegisterKeysRequest, remembered: Remembered
) -> RegisterKeysReply:
    def effect(tx: JobTx) -> RegisterKeysReply:
        row = groups.require_owned(principal, group_rows.lock_group(tx, group_id))
        expected = {entry.key: entry for entry in request.keys}
        known = group_rows.get_expected(tx.connection, group_id, expected)
        fresh = [entry for key, entry in expected.items() if key not in known]
        most = tx.snapshot.settings.group_keys_max
        if row.expected + len(fresh) > most:
            raise TooLarge(f"A group may expect {most} keys at most.", field="keys")
        sizes = [*(len(entry.key) for entry in fresh), *(len(_meta(entry) or "") for entry in expected.values())]
        _check_space(tx, row, more=sum(sizes))
        _insert(tx, row, fresh, actor=principal.account_id)
        changed = {key: _meta(expected[key]) for key in known if expected[key].meta is not None}
        group_rows.set_meta(tx, group_id, changed)
        updated = len(expected) - len(fresh)
        return RegisterKeysReply(added=len(fresh), updated=updated, expected=row.expected + len(fresh))

    return await _write(hub, principal, effect, remembered=remembered, model=RegisterKeysReply)


async def _write(
    hub: Hub, principal: Principal, effect: Callable[[JobTx], M], *, remembered: Remembered, model: type[M]
) -> M:
    def unit(tx: JobTx) -> M:
        return once(tx, remembered, lambda: effect(tx), model=model)

    return await write_stored(hub, unit, take(hub, [principal.account_id]))


def _check_space(tx: JobTx, row: GroupRow, *, more: int) -> None:
    changes = tx.memory.storage
    storage_quota.check_group_text(tx, row.account_id, more=more, snapshot=tx.snapshot, changes=changes)


def _insert(tx: Tx, row: GroupRow, entries: Sequence[ExpectedKey], *, actor: str) -> None:
    if not entries:
        return
    working = group_rows.keys_of_jobs(tx.connection, row.id, [entry.key for entry in entries])
    rows = [
        {"key": entry.key, "state": HAS_JOB if entry.key in working else PENDING, "meta": _meta(entry)}
        for entry in entries
    ]
    group_rows.insert_expected(tx, row.id, rows)
    group_rows.set_group(tx, row.id, expected=row.expected + len(rows))
    if row.completed_at_ms is not None and len(working) < len(rows):
        _reopen(tx, row, actor=actor)
    watch(tx, row)
    data = {"keys": len(rows)}
    tx.emit(actor=actor, action="group.registered", account_id=row.account_id, group_id=row.id, data=data)


def _meta(entry: ExpectedKey) -> str | None:
    return None if entry.meta is None else json.dumps(entry.meta)


async def report(
    hub: Hub, principal: Principal, group_id: str, *, request: KeyReportsRequest, remembered: Remembered
) -> KeyReportsReply:
    """Record outcomes of keys without a job. The first report of a key counts; further ones are counted as duplicates."""

    def effect(tx: JobTx) -> KeyReportsReply:
        row = groups.require_owned(principal, group_rows.lock_group(tx, group_id))
        verdicts, ends, again = _judge(tx, row, request.reports)
        _check_space(tx, row, more=sum(len(end["value"] or "") + len(end["words"] or "") for end in ends))
        groups.end_keys(tx, row, ends, actor=principal.account_id)
        group_rows.count_duplicates(tx, group_id, again)
        return KeyReportsReply(verdicts=verdicts)

    return await _write(hub, principal, effect, remembered=remembered, model=KeyReportsReply)


def _judge(
    tx: Tx, row: GroupRow, reports: Sequence[KeyReport]
) -> tuple[list[KeyVerdict], list[dict[str, str | None]], dict[str, int]]:
    """The verdict on each report, the reports that count, and by key the number of duplicates."""
    known = group_rows.get_expected(tx.connection, row.id, {report.key for report in reports})
    verdicts: list[KeyVerdict] = []
    ends: dict[str, dict[str, str | None]] = {}
    again: dict[str, int] = {}
    for report in reports:
        expected = known.get(report.key)
        if expected is None:
            verdicts.append(KeyVerdict(key=report.key, verdict="unknown"))
        elif expected.state == PENDING and report.key not in ends:
            end = {"name": report.key, "outcome": report.outcome, "value": report.result, "words": report.error}
            ends[report.key] = end
            verdicts.append(KeyVerdict(key=report.key, verdict="accepted"))
        else:
            again[report.key] = again.get(report.key, 0) + 1
            working = expected.state == HAS_JOB
            verdicts.append(KeyVerdict(key=report.key, verdict="has_job" if working else "duplicate"))
    return verdicts, list(ends.values()), again


async def return_home(hub: Hub, principal: Principal, group_id: str, *, request: ReturnHomeRequest) -> GroupView:
    """Have the results delivered to the group's home, now or when it is complete; change the home; or cancel that."""

    def unit(tx: Tx) -> None:
        row = groups.require_owned(principal, group_rows.lock_group(tx, group_id))
        home = row.home
        if request.home is not None or (request.enabled and home is None):
            home = group_homes.find(tx.connection, row.account_id, request.home)
        group_homes.touch(tx, row.home)  # it may have to stop
        group_rows.set_group(tx, group_id, home=home, return_home=request.enabled, home_state=None, home_reason=None)
        action = "group.return_home" if request.enabled else "group.return_home_cancelled"
        tx.emit(actor=principal.account_id, action=action, account_id=row.account_id, group_id=group_id, node_id=home)
        if request.enabled:
            watch(tx, row)
        changed = group_rows.get_group(tx.connection, group_id)
        if changed is not None and changed.completed_at_ms is not None:
            group_homes.begin(tx, changed)

    await hub.store.write(unit)
    return await groups.get(hub, principal, group_id)


async def drain(hub: Hub, principal: Principal, group_id: str, *, wait_ms: int) -> GroupView:
    """Wait until the group is complete, or the time is over."""
    deadline_ms = hub.now_ms() + wait_ms
    row = await hub.store.read(groups.get_owned, principal, group_id)
    # A watched group fires its own topic when it is complete; of other groups, every result has to be looked at.
    topics = [_complete_topic(group_id)] + ([] if row.watched else [f"group:{group_id}"])
    while True:
        with hub.signals.watch(*topics) as watch_:
            began_ms = hub.now_ms()
            done = await hub.store.read(_is_complete, group_id)
            took_s = (hub.now_ms() - began_ms) / 1000
            left_ms = deadline_ms - hub.now_ms()
            if done or left_ms <= 0 or hub.process.stopping:
                return await groups.get(hub, principal, group_id)
            await watch_.wait(left_ms / 1000)
        if not row.watched:
            await asyncio.sleep(min(max(_PAUSE_S, took_s * _PAUSE_FACTOR), left_ms / 1000))


def _is_complete(connection: Connection, group_id: str) -> bool:
    row = group_rows.get_group(connection, group_id)
    assert row is not None
    if row.watched:
        return row.completed_at_ms is not None
    return not group_rows.is_open(connection, group_id) and group_rows.has_jobs(connection, group_id)
