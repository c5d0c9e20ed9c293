"""Rows of webhooks and their deliveries. Every change is guarded by what the caller has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, literal_column, select

from computepool.hub.db.event_rows import EventRow
from computepool.hub.db.group_tables import IS_UNDELIVERED, deliveries, webhooks
from computepool.hub.db.queries import before_cursor, count, matches, scalars, set_where
from computepool.hub.db.session import Tx
from computepool.hub.db.tables import events, groups, jobs
from computepool.hub.db.typed_rows import TypedRow

COMPLETE = "group.complete"
PENDING, DELIVERED, FAILED = "pending", "delivered", "failed"


class WebhookRow(TypedRow, of=webhooks):
    id: str
    account_id: str
    url: str
    events: str
    cursor: int
    created_at_ms: int
    failing_since_ms: int | None
    failures: int
    next_call_ms: int
    disabled_at_ms: int | None
    disabled_reason: str | None

    def wants(self, event: str) -> bool:
        return event in self.events.split(",")


class DeliveryRow(TypedRow, of=deliveries):
    id: str
    webhook_id: str
    event: str
    body: str
    state: str
    tries: int
    next_try_ms: int
    status: int | None
    reason: str | None
    created_at_ms: int
    ended_at_ms: int | None


class DueDelivery(DeliveryRow, of=webhooks):
    url: str
    account_id: str
    next_call_ms: int


class JobName(TypedRow, of=jobs):
    id: str
    key: str | None
    name: str
    hub_job: str | None


def insert(tx: Tx, **columns: Any) -> None:
    tx.connection.execute(webhooks.insert().values(created_at_ms=tx.now_ms, **columns))


def get(connection: Connection, webhook_id: str) -> WebhookRow | None:
    return WebhookRow.find(connection, webhooks.c.id == webhook_id)


def of_account(connection: Connection, account_id: str) -> list[WebhookRow]:
    return WebhookRow.fetch(connection, webhooks.c.account_id == account_id, order=webhooks.c.id)


def count_of_account(connection: Connection, account_id: str) -> int:
    return count(connection, webhooks.c.account_id == account_id)


def list_enabled(connection: Connection) -> list[WebhookRow]:
    return WebhookRow.fetch(connection, webhooks.c.disabled_at_ms.is_(None))


def wants_groups(connection: Connection, account_id: str) -> bool:
    """Whether a webhook of the account wants to know when a group is complete, so that the group must be watched."""
    hooks = of_account(connection, account_id)
    return any(hook.disabled_at_ms is None and hook.wants(COMPLETE) for hook in hooks)


def remove(tx: Tx, webhook_id: str) -> None:
    tx.connection.execute(delete(deliveries).where(deliveries.c.webhook_id == webhook_id))
    tx.connection.execute(delete(webhooks).where(webhooks.c.id == webhook_id))


def change(tx: Tx, webhook_id: str, **columns: Any) -> None:
    set_where(tx, webhooks, webhooks.c.id == webhook_id, **columns)


def disable(tx: Tx, webhook_id: str, *, reason: str) -> bool:
    """Disable it and fail its pending deliveries. False: it is already disabled, or gone."""
    enabled = webhooks.c.id == webhook_id, webhooks.c.disabled_at_ms.is_(None)
    if not set_where(tx, webhooks, *enabled, disabled_at_ms=tx.now_ms, disabled_reason=reason):
        return False
    over = {"state": FAILED, "ended_at_ms": tx.now_ms, "reason": "the webhook was disabled"}
    set_where(tx, deliveries, deliveries.c.webhook_id == webhook_id, IS_UNDELIVERED, **over)
    return True


def next_events(connection: Connection, hook: WebhookRow, *, limit: int) -> list[EventRow]:
    """The account's next events of every kind: the caller selects, and moves the cursor past all of them."""
    which = events.c.account_id == hook.account_id, events.c.seq > hook.cursor
    return EventRow.fetch(connection, *which, order=events.c.seq, limit=limit)


def keys_of_jobs(connection: Connection, ids: Sequence[str]) -> dict[str, JobName]:
    return {row.id: row for row in JobName.fetch(connection, jobs.c.id.in_(ids))}


def advance(tx: Tx, hook: WebhookRow, *, cursor: int) -> bool:
    """False: another hub did so first, or the webhook is gone or disabled."""
    unchanged = webhooks.c.id == hook.id, webhooks.c.cursor == hook.cursor, webhooks.c.disabled_at_ms.is_(None)
    return set_where(tx, webhooks, *unchanged, cursor=cursor) == 1


def insert_deliveries(tx: Tx, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        base = {"state": PENDING, "next_try_ms": tx.now_ms, "created_at_ms": tx.now_ms}
        tx.connection.execute(deliveries.insert(), [{**base, **row} for row in rows])


def due(connection: Connection, *, now_ms: int, webhook_id: str | None = None) -> list[DueDelivery]:
    """The next delivery of each webhook that may be called now, or of one. The cost does not grow with those behind it."""
    waiting = deliveries.alias("waiting")
    first = (
        select(waiting.c.id)
        .where(waiting.c.webhook_id == webhooks.c.id, waiting.c.state == literal_column(f"'{PENDING}'"))
        .where(waiting.c.next_try_ms <= now_ms)
        .order_by(waiting.c.next_try_ms, waiting.c.id)
        .limit(1)
        .correlate(webhooks)
        .scalar_subquery()
    )
    statement = (
        DueDelivery.select()
        .select_from(webhooks.join(deliveries, deliveries.c.id == first))
        .where(
            webhooks.c.disabled_at_ms.is_(None), webhooks.c.next_call_ms <= now_ms, matches(webhooks.c.id, webhook_id)
        )
        .order_by(deliveries.c.next_try_ms, deliveries.c.id)
    )
    return DueDelivery.all(connection.execute(statement))


def claim(tx: Tx, believed: DueDelivery, *, until_ms: int) -> bool:
    """Take the webhook and the next try of the delivery. False: another hub took it first."""
    hook = webhooks.c.id == believed.webhook_id, webhooks.c.next_call_ms == believed.next_call_ms
    if not set_where(tx, webhooks, *hook, next_call_ms=until_ms):
        return False
    message = (
        deliveries.c.id == believed.id,
        deliveries.c.state == PENDING,
        deliveries.c.next_try_ms == believed.next_try_ms,
        deliveries.c.tries == believed.tries,
    )
    if set_where(tx, deliveries, *message, next_try_ms=until_ms, tries=believed.tries + 1):
        return True
    change(tx, believed.webhook_id, next_call_ms=believed.next_call_ms)
    return False


def recent(connection: Connection, account_id: str, *, event: str, since_ms: int) -> int:
    """The number of deliveries of a kind created for the account's webhooks since then."""
    own = deliveries.c.webhook_id == webhooks.c.id, webhooks.c.account_id == account_id
    return count(connection, *own, deliveries.c.event == event, deliveries.c.created_at_ms > since_ms)


def record_try(tx: Tx, delivery_id: str, *, tries: int, **columns: Any) -> bool:
    """False: there was another try since."""
    unchanged = deliveries.c.id == delivery_id, deliveries.c.state == PENDING, deliveries.c.tries == tries
    return set_where(tx, deliveries, *unchanged, **columns) == 1


def page(connection: Connection, webhook_id: str, *, before: str | None, limit: int) -> list[DeliveryRow]:
    """Newest first."""
    which = deliveries.c.webhook_id == webhook_id, before_cursor(deliveries.c.id, before)
    return DeliveryRow.fetch(connection, *which, order=deliveries.c.id.desc(), limit=limit)


def prune(tx: Tx, *, before_ms: int) -> None:
    old = (deliveries.c.created_at_ms < before_ms) & (deliveries.c.state != PENDING)
    tx.connection.execute(delete(deliveries).where(old))


def unwatched_groups(connection: Connection, account_id: str, *, kinds: Sequence[str], limit: int) -> list[str]:
    """Groups whose completion is not watched for, newest first."""
    statement = (
        select(groups.c.id)
        .where(groups.c.account_id == account_id, ~groups.c.watched, groups.c.kind.in_(kinds))
        .order_by(groups.c.id.desc())
        .limit(limit)
    )
    return scalars(connection, statement)
