"""Messages that running jobs send to their group's collector: stored in order of arrival, and read live by long poll."""

from __future__ import annotations

from collections.abc import Sequence

from computepool.core.errors import Conflict, TooLarge
from computepool.core.jobs.lifecycle import LIVE_ATTEMPT, AttemptState
from computepool.hub.artifacts import storage_quota
from computepool.hub.artifacts.inline_rows import size_of
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.groups import groups, message_rows, rows as group_rows
from computepool.hub.groups.message_rows import MessageRow
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.transactions import JobTx, lock_attempt, write_stored
from computepool.hub.snapshot import take_for
from computepool.protocol.jobs.children import MessagePage, MessageReply, MessageRequest, MessageView

NEWEST = 20  #: that a summary contains


async def receive(hub: Hub, node: NodePrincipal, attempt_id: str, *, request: MessageRequest) -> MessageReply:
    size, most = size_of(request.value), hub.settings.message_max_bytes
    if size > most:
        raise TooLarge(f"A message may have {most} bytes; this one has {size}. Write a file to outputs().")
    snapshot = take_for(hub, node.node_id, [attempt_id])
    number = await write_stored(hub, lambda tx: _receive(tx, node, attempt_id, request=request), snapshot)
    return MessageReply(number=number)


def _receive(tx: JobTx, node: NodePrincipal, attempt_id: str, *, request: MessageRequest) -> int:
    job, attempt = lock_attempt(tx, node, attempt_id)
    known = message_rows.find(tx.connection, job_id=job.id, attempt_no=attempt.number, seq=request.seq)
    if known is not None:
        return known.number  # sent again because the first reply was lost
    if AttemptState(attempt.state) not in LIVE_ATTEMPT:
        raise Conflict("This attempt has ended.")
    if job.group_id is None or job.hub_job is not None:
        raise Conflict("The job is in no group, so it has no collector.")
    if tx.spec(job.spec_digest).seal_to is not None:
        raise Conflict("A sealed job cannot send messages, because the hub could read them.")
    most = tx.snapshot.settings.messages_max
    if message_rows.count_of(tx.connection, job_id=job.id, attempt_no=attempt.number) >= most:
        raise Conflict(f"An attempt may send {most} messages.")
    size, changes = size_of(request.value), tx.memory.storage
    storage_quota.check_group_text(tx, job.account_id, more=size, snapshot=tx.snapshot, changes=changes)
    group_rows.lock_group(tx, job.group_id)
    number = message_rows.insert(
        tx,
        group_id=job.group_id,
        account_id=job.account_id,
        job_id=job.id,
        attempt_no=attempt.number,
        seq=request.seq,
        value=request.value,
    )
    tx.touch(f"messages:{job.group_id}")
    return number


async def page(hub: Hub, principal: Principal, group_id: str, *, after: int, limit: int, wait_ms: int) -> MessagePage:
    """Messages after the cursor; with `wait_ms`, wait for the first, unless the group is finished."""
    await groups.check_owner(hub, principal, group_id)

    async def look() -> tuple[tuple[int, list[MessageView]], bool]:
        # Count first: a client that hears that nothing is unfinished stops asking.
        pending = await groups.count_unfinished(hub, group_id)
        found = await hub.store.read(
            lambda connection: views(connection, message_rows.page(connection, group_id, after=after, limit=limit))
        )
        return (pending, found), bool(found) or not pending

    topics = f"messages:{group_id}", f"group:{group_id}"
    pending, found = await hub.long_poll(look, *topics, wait_ms=wait_ms)
    if not found:
        return MessagePage(messages=[], cursor=after, open=pending)
    return MessagePage(messages=found, cursor=found[-1].number)


def views(connection: Connection, rows: Sequence[MessageRow]) -> list[MessageView]:
    keys = {row.id: row.key for row in job_rows.get_jobs(connection, sorted({row.job_id for row in rows}))}
    return [MessageView.from_attributes(row, key=keys.get(row.job_id), attempt=row.attempt_no) for row in rows]


def newest(connection: Connection, group_id: str) -> tuple[int, list[MessageView]]:
    """The number of messages, and the newest of them."""
    rows = message_rows.newest(connection, group_id, limit=NEWEST)
    return (rows[-1].number if rows else 0), views(connection, rows)
