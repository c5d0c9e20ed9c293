"""Notices to accounts about events: which ones, and what they contain. deliveries.py sends them.

The events are the outbox: they are written in the transaction of what they describe. Each webhook has a cursor in them;
one guarded write moves it past the events and inserts their deliveries. So every notice is true, none is lost, and a job
without a webhook costs nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from computepool.hub.context import Hub
from computepool.hub.db.event_rows import EventRow
from computepool.hub.db.session import Connection, Tx
from computepool.hub.groups import groups, rows as group_rows
from computepool.hub.notifications import rows
from computepool.hub.notifications.rows import JobName, WebhookRow
from computepool.protocol.webhooks import PAYLOAD_VERSION

COMPLETE, HOME, FINISHED = rows.COMPLETE, "group.home", "job.finished"
#: Events in one batch of an account, and batches in a round: one busy account does not keep the others waiting.
_BATCH_MAX = 2_000
_BATCHES_MAX = 10
_NAMES_MAX = 300  #: characters of a name in a notice


@dataclass(frozen=True, slots=True)
class _Batch:
    """The next events of a webhook's account, as deliveries."""

    hook: WebhookRow
    cursor: int
    deliveries: list[dict[str, Any]]
    full: bool


async def gather(hub: Hub) -> int:
    """Turn the events since the last round into deliveries. Returns their number."""
    gathered = 0
    busy = [hook.id for hook in await hub.store.read(rows.list_enabled)]
    for _ in range(_BATCHES_MAX):
        batches = [(hook_id, await _gather_batch(hub, hook_id)) for hook_id in busy]
        gathered += sum(count for _, (count, _) in batches)
        busy = [hook_id for hook_id, (_, more) in batches if more]
    return gathered


async def _gather_batch(hub: Hub, webhook_id: str) -> tuple[int, bool]:
    """Returns the number of deliveries, and whether more events wait."""
    found = await hub.store.read(_read_batch, webhook_id, address=hub.settings.address)
    if found is None or not await hub.store.write(_apply_batch, found):
        return 0, False
    return len(found.deliveries), found.full


def _apply_batch(tx: Tx, batch: _Batch) -> bool:
    if not rows.advance(tx, batch.hook, cursor=batch.cursor):
        return False
    rows.insert_deliveries(tx, batch.deliveries)
    return True


def _read_batch(connection: Connection, webhook_id: str, *, address: str) -> _Batch | None:
    hook = rows.get(connection, webhook_id)
    if hook is None or not (found := rows.next_events(connection, hook, limit=_BATCH_MAX)):
        return None
    selected = [(row, event) for row in found if (event := _public_name(row)) and hook.wants(event)]
    job_ids = sorted({row.job_id for row, _ in selected if row.job_id is not None})
    jobs = rows.keys_of_jobs(connection, job_ids) if job_ids else {}
    deliveries = [
        {
            "id": f"msg_{row.seq:013x}_{hook.id.rpartition('_')[2]}",  # stable, and in the order of the events
            "webhook_id": hook.id,
            "event": event,
            "body": payload(address, event, at_ms=row.at_ms, data=data),
        }
        for row, event in selected
        if (data := _payload_data(connection, row, event, job=jobs.get(row.job_id or ""))) is not None
    ]
    return _Batch(hook, found[-1].seq, deliveries, full=len(found) == _BATCH_MAX)


def _public_name(row: EventRow) -> str:
    """The name of an event in notices; empty if there are none about it."""
    if row.action in (COMPLETE, HOME):
        return str(row.action)
    return FINISHED if row.final and row.job_id is not None and row.action.startswith("job.") else ""


def payload(address: str, event: str, *, at_ms: int, data: dict[str, Any]) -> str:
    """Ids, names and counts; never results or other user data."""
    fields = {"version": PAYLOAD_VERSION, "type": event, "at_ms": at_ms, "hub": address, "data": data}
    return json.dumps(fields, separators=(",", ":"))


def _payload_data(connection: Connection, row: EventRow, event: str, *, job: JobName | None) -> dict[str, Any] | None:
    if event == FINISHED:
        if job is None or job.hub_job is not None:
            return None
        names = {"key": job.key and job.key[:_NAMES_MAX], "name": job.name[:_NAMES_MAX]}
        return {"job_id": row.job_id, "group_id": row.group_id, "state": row.after, "reason": row.reason, **names}
    group = group_rows.get_group(connection, row.group_id or "")
    if group is None:
        return None
    fields = json.loads(row.data or "{}")
    data = {"group_id": group.id, "name": group.name[:_NAMES_MAX]}
    if event == HOME:
        numbers = {name: fields.get(name) for name in ("items", "files", "bytes")}
        return {**data, "node_id": row.node_id, **numbers}
    view = groups.view(connection, group)
    counts = {name: view[name] for name in ("total", "succeeded", "failed")}
    return {**data, "round": fields.get("round"), **counts}
