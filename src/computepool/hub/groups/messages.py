"""Messages of running jobs to their collector: kept in the order of arrival, bounded, read live by long poll."""

from __future__ import annotations

from collections.abc import Sequence

from computepool.core.errors import Conflict, NotFound, TooLarge
from computepool.core.jobs.lifecycle import LIVE_ATTEMPT, AttemptState
from computepool.hub.artifacts import storage_quota
from computepool.hub.artifacts.inline_rows import size_of
from computepool.hub.artifacts.storage_quota import StorageChanges
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.groups import groups, message_rows
from computepool.hub.groups import rows as group_rows
from computepool.hub.groups.message_rows import MessageRow
from computepool.hub.identity.access import NodePrincipal, Principal
from computepool.hub.jobs import attempt_rows
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.running import checkpoints
from computepool.hub.snapshot import Snapshot, take_for
from computepool.protocol.jobs.children import MessagePage, MessageReply, MessageRequest, MessageView

#: Among a summary's first things.
NEWEST = 20


async def receive(hub: Hub, node: NodePrincipal, attempt_id: str, *, request: MessageRequest) -> MessageReply:
    size, most = size_of(request.value), hub.settings.message_max_bytes
    if size > most:
        raise TooLarge(f"A message may have {most} bytes; this one has {size}. Write a file to outputs().")
    snapshot = take_for(hub, node.node_id, [attempt_id])

    def unit(tx: Tx) -> tuple[MessageReply, StorageChanges]:
        changes = StorageChanges()
        number = _receive(tx, node, attempt_id, request=request, snapshot=snapshot, changes=changes)
        return MessageReply(number=number), changes

    return storage_quota.follow_and_reply(hub, await hub.store.write(unit))


def _receive(
    tx: Tx,
    node: NodePrincipal,
    attempt_id: str,
    *,
    request: MessageRequest,
    snapshot: Snapshot,
    changes: StorageChanges,
) -> int:
    # Jobs before attempts before groups, as everywhere.
    job_id, _, _ = attempt_id.rpartition("-")
    job = job_rows.lock_jobs(tx, [job_id]).get(job_id)
    attempt = attempt_rows.lock_attempts(tx, [attempt_id]).get(attempt_id)
    if job is None or attempt is None or attempt.node_id != node.node_id:
        raise NotFound("This node holds no such attempt.")
    known = message_rows.find(tx.connection, job_id=job.id, attempt_no=attempt.number, seq=request.seq)
    if known is not None:
        return int(known.number)  # the answer to the first time was lost
    if AttemptState(attempt.state) not in LIVE_ATTEMPT:
        raise Conflict("This attempt is over.")
    if job.group_id is None or job.hub_job is not None:
        raise Conflict("The job is in no group, so it has no collector.")
    if checkpoints.spec_of(tx, snapshot, job).seal_to is not None:
        raise Conflict("The hub could read it, and the job is sealed.")
    most = snapshot.settings.messages_max
    if message_rows.count_of(tx.connection, job_id=job.id, attempt_no=attempt.number) >= most:
        raise Conflict(f"An attempt may send {most} messages.")
    size = size_of(request.value)
    storage_quota.check_words(tx, job.account_id, more=size, snapshot=snapshot, changes=changes)
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


async def page(
    hub: Hub, principal: Principal, group_id: str, *, after: int, limit: int, wait_ms: int
) -> MessagePage:
    """What came since the cursor; waits for the first new one if asked to, unless the group is over."""
    await groups.check_owner(hub, principal, group_id)

    async def look() -> tuple[tuple[int, list[MessageView]], bool]:
        # First what is open: whoever hears that nothing is asks no more.
        pending = await groups.unfinished(hub, group_id)
        found = await hub.store.read(
            lambda connection: views(
                connection, message_rows.page(connection, group_id, after=after, limit=limit)
            )
        )
        return (pending, found), bool(found) or not pending

    topics = f"messages:{group_id}", f"group:{group_id}"
    pending, found = await hub.long_poll(look, *topics, wait_ms=wait_ms)
    if not found:
        return MessagePage(messages=[], cursor=after, open=pending)
    return MessagePage(messages=found, cursor=found[-1].number)


def views(connection: Connection, rows: Sequence[MessageRow]) -> list[MessageView]:
    keys = {row.id: row.key for row in job_rows.get_jobs(connection, sorted({row.job_id for row in rows}))}
    return [
        MessageView.from_attributes(row, key=keys.get(row.job_id), attempt=row.attempt_no) for row in rows
    ]


def newest(connection: Connection, group_id: str) -> tuple[int, list[MessageView]]:
    """How many there are, and the last of them."""
    rows = message_rows.newest(connection, group_id, limit=NEWEST)
    return (rows[-1].number if rows else 0), views(connection, rows)
