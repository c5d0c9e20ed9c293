"""The collector: what a group waits for, what came, and when it is complete.

A group is *watched* once somebody wants to know: it has registered keys, or a home, or a notice to send. Watched groups
are closed in the transaction that ends the last thing they waited for (`close`), whichever hub that happens on; other
groups cost nothing. What comes into a complete group opens it again, and it becomes complete once more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from computepool.core.errors import Conflict, NotFound, TooLarge
from computepool.hub.artifacts import storage_quota
from computepool.hub.artifacts.storage_quota import StorageChanges
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.groups import groups
from computepool.hub.groups import rows as group_rows
from computepool.hub.groups.rows import FAILED, HAS_JOB, PENDING, SUCCEEDED, GroupRow
from computepool.hub.identity.access import Principal
from computepool.hub.identity.idempotency import Remembered, once
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

#: How long a wait for a group that is not watched lets results gather before it looks again; at a huge one, where that
#: takes long, this many times longer than it took.
_LOOK_AGAIN_S = 0.25
_LOOKED = 10


# what happens to a group


def watch(tx: Tx, row: GroupRow) -> None:
    """From now on it is noted when the group is complete; perhaps it is already. The caller holds the group."""
    if not row.watched:
        group_rows.set_group(tx, row.id, watched=True)
        group_rows.watch_jobs(tx, row.id)
    tx.closing.add(row.id)


def close(tx: Tx) -> None:
    """At the end of every transaction, for the watched groups of which it ended something."""
    for group_id in sorted(tx.closing):
        # Two hubs that end the last two jobs at once take turns here, and the second one sees what the first did.
        row = group_rows.lock_group(tx, group_id)
        if row is None or not row.watched or row.completed_at_ms is not None:
            continue
        if group_rows.is_waiting(tx.connection, group_id):
            continue
        if row.expected or group_rows.has_jobs(tx.connection, group_id):
            _complete(tx, row)


def _complete(tx: Tx, row: GroupRow) -> None:
    """Once per round, whatever ended last. The one place for what follows from it."""
    group_rows.set_group(tx, row.id, completed_at_ms=tx.now_ms, rounds=row.rounds + 1)
    tx.emit(
        actor="hub",
        action="group.complete",
        account_id=row.account_id,
        group_id=row.id,
        data=json.dumps({"round": row.rounds + 1}),
    )
    tx.touch(f"group:{row.id}", _complete_topic(row.id))
    group_homes.begin(tx, row)


def _complete_topic(group_id: str) -> str:
    return f"complete:{group_id}"


def _reopen(tx: Tx, row: GroupRow, *, actor: str) -> None:
    """It waits for something again. What its home has of it stays there; the rest follows with the next round."""
    group_rows.set_group(tx, row.id, completed_at_ms=None, home_state=None, home_reason=None)
    tx.emit(actor=actor, action="group.reopened", account_id=row.account_id, group_id=row.id)
    group_homes.touch(tx, row.home)


def join(tx: Tx, group_id: str, *, keys: Sequence[str], account_id: str) -> bool:
    """Jobs with these keys are about to be submitted into the group. True: it is watched."""
    found = _watch_if_subscribed(tx, group_id)
    row = None if found is None else group_rows.join_group(tx, found)
    # Not even an admin's jobs go into somebody else's group: its results are for its owner.
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
    """A webhook may be younger than a group in which nothing was open when it was made."""
    row = group_rows.get_group(tx.connection, group_id)
    if row is None or row.watched or row.kind not in groups.SHOWN:
        return row
    if not webhook_rows.hears_of_groups(tx.connection, row.account_id):
        return row
    locked = group_rows.lock_group(tx, group_id)
    assert locked is not None
    watch(tx, locked)
    return group_rows.get_group(tx.connection, group_id)


# what clients say


async def register(
    hub: Hub, principal: Principal, group_id: str, *, request: RegisterKeysRequest, remembered: Remembered
) -> RegisterKeysReply:
    snapshot = take(hub, [principal.account_id])

    def effect(tx: Tx, changes: StorageChanges) -> RegisterKeysReply:
        row = groups.owned_row(principal, group_rows.lock_group(tx, group_id))
        expected = {entry.key: entry for entry in request.keys}
        known = group_rows.get_expected(tx.connection, group_id, expected)
        fresh = [entry for key, entry in expected.items() if key not in known]
        most = snapshot.settings.group_keys_max
        if row.expected + len(fresh) > most:
            raise TooLarge(f"A group may expect {most} keys at most.", field="keys")
        words = sum(len(entry.key) for entry in fresh) + sum(
            len(_words(entry) or "") for entry in expected.values()
        )
        storage_quota.check_words(tx, row.account_id, more=words, snapshot=snapshot, changes=changes)
        _insert(tx, row, fresh, actor=principal.account_id)
        changed = {key: _words(expected[key]) for key in known if expected[key].meta is not None}
        group_rows.set_meta(tx, group_id, changed)
        return RegisterKeysReply(
            added=len(fresh), updated=len(expected) - len(fresh), expected=row.expected + len(fresh)
        )

    def unit(tx: Tx) -> tuple[RegisterKeysReply, StorageChanges]:
        changes = StorageChanges()
        return once(tx, remembered, lambda: effect(tx, changes), model=RegisterKeysReply), changes

    return storage_quota.follow_and_reply(hub, await hub.store.write(unit))


def _insert(tx: Tx, row: GroupRow, entries: Sequence[ExpectedKey], *, actor: str) -> None:
    if not entries:
        return
    working = group_rows.keys_of_jobs(tx.connection, row.id, [entry.key for entry in entries])
    rows = [
        {
            "group_id": row.id,
            "key": entry.key,
            "state": HAS_JOB if entry.key in working else PENDING,
            "meta": _words(entry),
        }
        for entry in entries
    ]
    group_rows.insert_expected(tx, rows)
    group_rows.set_group(tx, row.id, expected=row.expected + len(rows))
    if row.completed_at_ms is not None and len(working) < len(rows):
        _reopen(tx, row, actor=actor)
    watch(tx, row)
    data = json.dumps({"keys": len(rows)})
    tx.emit(actor=actor, action="group.registered", account_id=row.account_id, group_id=row.id, data=data)


def _words(entry: ExpectedKey) -> str | None:
    return None if entry.meta is None else json.dumps(entry.meta)


async def report(
    hub: Hub, principal: Principal, group_id: str, *, request: KeyReportsRequest, remembered: Remembered
) -> KeyReportsReply:
    """How keys without a job ended. The first report of a key stands; the others are counted."""

    snapshot = take(hub, [principal.account_id])

    def effect(tx: Tx, changes: StorageChanges) -> KeyReportsReply:
        row = groups.owned_row(principal, group_rows.lock_group(tx, group_id))
        verdicts, ends, again = _judge(tx, row, request.reports)
        words = sum(len(end["value"] or "") + len(end["words"] or "") for end in ends)
        storage_quota.check_words(tx, row.account_id, more=words, snapshot=snapshot, changes=changes)
        groups.end_keys(tx, row, ends, actor=principal.account_id)
        if again:
            group_rows.add_duplicates(tx, group_id, sum(again.values()))
            group_rows.count_duplicates(tx, group_id, again)
        return KeyReportsReply(verdicts=verdicts)

    def unit(tx: Tx) -> tuple[KeyReportsReply, StorageChanges]:
        changes = StorageChanges()
        return once(tx, remembered, lambda: effect(tx, changes), model=KeyReportsReply), changes

    return storage_quota.follow_and_reply(hub, await hub.store.write(unit))


def _judge(
    tx: Tx, row: GroupRow, reports: Sequence[KeyReport]
) -> tuple[list[KeyVerdict], list[dict[str, str | None]], dict[str, int]]:
    """The verdict on each, those that stand, and how often each of the other keys was reported again."""
    known = group_rows.get_expected(tx.connection, row.id, {report.key for report in reports})
    verdicts: list[KeyVerdict] = []
    ends: dict[str, dict[str, str | None]] = {}
    again: dict[str, int] = {}
    for report in reports:
        expected = known.get(report.key)
        if expected is None:
            verdicts.append(KeyVerdict(key=report.key, verdict="unknown"))
        elif expected.state == PENDING and report.key not in ends:
            ends[report.key] = {
                "name": report.key,
                "outcome": report.outcome,
                "value": report.result,
                "words": report.error,
            }
            verdicts.append(KeyVerdict(key=report.key, verdict="accepted"))
        else:
            again[report.key] = again.get(report.key, 0) + 1
            working = expected.state == HAS_JOB
            verdicts.append(KeyVerdict(key=report.key, verdict="has_job" if working else "duplicate"))
    return verdicts, list(ends.values()), again


async def return_home(
    hub: Hub, principal: Principal, group_id: str, *, request: ReturnHomeRequest
) -> GroupView:
    """Ask for it, now or later; ask again; change the home; or call it off."""

    def unit(tx: Tx) -> None:
        row = groups.owned_row(principal, group_rows.lock_group(tx, group_id))
        home = row.home
        if request.home is not None or (request.enabled and home is None):
            home = group_homes.find(tx.connection, row.account_id, request.home)
        group_homes.touch(tx, row.home)  # which may have to stop
        group_rows.set_group(
            tx, group_id, home=home, return_home=request.enabled, home_state=None, home_reason=None
        )
        action = "group.return_home" if request.enabled else "group.return_home_cancelled"
        tx.emit(
            actor=principal.account_id,
            action=action,
            account_id=row.account_id,
            group_id=group_id,
            node_id=home,
        )
        if request.enabled:
            watch(tx, row)
        changed = group_rows.get_group(tx.connection, group_id)
        if changed is not None and changed.completed_at_ms is not None:
            group_homes.begin(tx, changed)

    await hub.store.write(unit)
    return await groups.get(hub, principal, group_id)


# waiting for it


async def drain(hub: Hub, principal: Principal, group_id: str, *, wait_ms: int) -> GroupView:
    """The group when it is complete, or as it is when the time is over."""
    deadline_ms = hub.now_ms() + wait_ms
    row = await hub.store.read(lambda connection: groups.owned(connection, principal, group_id))
    # Every result is news to who waits for a group that is not watched; of the others there is one word at the end.
    topics = [_complete_topic(group_id)] + ([] if row.watched else [f"group:{group_id}"])
    while True:
        with hub.signals.watch(*topics) as watch_:
            began_ms = hub.now_ms()
            done = await hub.store.read(lambda connection: _is_complete(connection, group_id))
            looked_s = (hub.now_ms() - began_ms) / 1000
            left_ms = deadline_ms - hub.now_ms()
            if done or left_ms <= 0 or hub.process.stopping:
                return await groups.get(hub, principal, group_id)
            await watch_.wait(left_ms / 1000)
        if not row.watched:
            await asyncio.sleep(min(max(_LOOK_AGAIN_S, looked_s * _LOOKED), left_ms / 1000))


def _is_complete(connection: Connection, group_id: str) -> bool:
    row = group_rows.get_group(connection, group_id)
    assert row is not None
    if row.watched:
        return row.completed_at_ms is not None
    return not group_rows.is_open(connection, group_id) and group_rows.has_jobs(connection, group_id)
