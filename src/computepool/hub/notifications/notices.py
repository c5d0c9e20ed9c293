"""Notices to accounts when something happens, and their words. How it gets there is in deliveries.py.

The events are the outbox: they are written in the transaction of what they are about. Each webhook has its own place in
them, and moves on past what it has turned into deliveries, in one guarded write. So nothing is told that did not
happen, nothing that happened is forgotten, and a job that nobody wants to hear of costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from computepool.hub.context import Hub
from computepool.hub.db.event_rows import EventRow
from computepool.hub.db.session import Connection, Tx
from computepool.hub.groups import groups
from computepool.hub.groups import rows as group_rows
from computepool.hub.notifications import rows
from computepool.hub.notifications.rows import WebhookRow
from computepool.protocol.webhooks import PAYLOAD_VERSION

COMPLETE, HOME, FINISHED = rows.COMPLETE, "group.home", "job.finished"
#: In one look at the events of one account, and looks in a round: one busy account does not keep the others waiting.
_LOOK_MAX = 2_000
_LOOKS_MAX = 10
_NAMES_MAX = 300  #: characters of a person's words


def wants(hook: WebhookRow, event: str) -> bool:
    return event in hook.events.split(",")


@dataclass(frozen=True, slots=True)
class _News:
    hook: WebhookRow
    cursor: int
    deliveries: list[dict[str, Any]]
    full: bool


async def gather(hub: Hub) -> int:
    """One round: what happened since the last one becomes deliveries. Returns how many."""
    notified = 0
    busy = [hook.id for hook in await hub.store.read(rows.enabled)]
    for _ in range(_LOOKS_MAX):
        looks = [(hook_id, await _look(hub, hook_id)) for hook_id in busy]
        notified += sum(count for _, (count, _) in looks)
        busy = [hook_id for hook_id, (_, more) in looks if more]
    return notified


async def _look(hub: Hub, webhook_id: str) -> tuple[int, bool]:
    """How much there is to tell, and whether there is more to look at."""
    address = hub.settings.address

    def load(connection: Connection) -> _News | None:
        hook = rows.get(connection, webhook_id)
        return None if hook is None else _news(connection, hook, address=address)

    found = await hub.store.read(load)
    if found is None or not await hub.store.write(lambda tx: _take(tx, found)):
        return 0, False
    return len(found.deliveries), found.full


def _take(tx: Tx, news: _News) -> bool:
    if not rows.move_on(tx, news.hook, cursor=news.cursor):
        return False
    rows.insert_deliveries(tx, news.deliveries)
    return True


def _news(connection: Connection, hook: WebhookRow, *, address: str) -> _News | None:
    found = rows.news(connection, hook, limit=_LOOK_MAX)
    if not found:
        return None
    notified = [(row, event) for row in found if (event := _event(row)) and wants(hook, event)]
    about = _About(connection, [row for row, _ in notified])
    deliveries = [
        {
            "id": delivery_id(hook.id, row.seq),
            "webhook_id": hook.id,
            "event": event,
            "body": payload(address, event, at_ms=row.at_ms, data=data),
        }
        for row, event in notified
        if (data := about.data(row, event)) is not None
    ]
    return _News(hook, found[-1].seq, deliveries, full=len(found) == _LOOK_MAX)


def _event(row: EventRow) -> str:
    """What an event of the audit trail is called outside; empty for one that nobody is told of."""
    if row.action in (COMPLETE, HOME):
        return str(row.action)
    return FINISHED if row.final and row.job_id is not None and row.action.startswith("job.") else ""


def delivery_id(webhook_id: str, seq: int) -> str:
    """The same for the same event, and in the events' order."""
    return f"msg_{seq:013x}_{webhook_id.rpartition('_')[2]}"


def payload(address: str, event: str, *, at_ms: int, data: dict[str, Any]) -> str:
    """Ids and counts; never results, and no more of a person's words than names."""
    fields = {"version": PAYLOAD_VERSION, "type": event, "at_ms": at_ms, "hub": address, "data": data}
    return json.dumps(fields, separators=(",", ":"))


class _About:
    """What the events of one look are about, read together."""

    def __init__(self, connection: Connection, found: Sequence[EventRow]) -> None:
        self._connection = connection
        jobs = sorted({row.job_id for row in found if row.job_id is not None})
        self._jobs = rows.keys_of_jobs(connection, jobs) if jobs else {}

    def data(self, row: EventRow, event: str) -> dict[str, Any] | None:
        if event == FINISHED:
            return self._finished_job(row)
        group = group_rows.get_group(self._connection, row.group_id or "")
        if group is None:
            return None
        fields = json.loads(row.data or "{}")
        data = {"group_id": group.id, "name": group.name[:_NAMES_MAX]}
        if event == HOME:
            numbers = {name: fields.get(name) for name in ("items", "files", "bytes")}
            return {**data, "node_id": row.node_id, **numbers}
        view = groups.view(self._connection, group)
        counts = {name: view[name] for name in ("total", "succeeded", "failed")}
        return {**data, "round": fields.get("round"), **counts}

    def _finished_job(self, row: EventRow) -> dict[str, Any] | None:
        job = self._jobs.get(row.job_id or "")
        if job is None or job.hub_job is not None:  # hub jobs are nobody's business
            return None
        words = {"key": job.key and job.key[:_NAMES_MAX], "name": job.name[:_NAMES_MAX]}
        return {
            "job_id": row.job_id,
            "group_id": row.group_id,
            "state": row.after,
            "reason": row.reason,
            **words,
        }
