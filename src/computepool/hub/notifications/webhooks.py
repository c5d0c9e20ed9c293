"""Webhooks of an account: create, list, test, enable, remove, and their deliveries."""

from __future__ import annotations

from urllib.parse import urlsplit

from computepool.core import network
from computepool.core.errors import BadRequest, Conflict, NotFound, RateLimited, TooLarge
from computepool.hub.clock import new_id
from computepool.hub.context import Hub
from computepool.hub.db import event_rows
from computepool.hub.db.session import Connection, Tx
from computepool.hub.groups import collector, groups, rows as group_rows
from computepool.hub.identity.access import Principal
from computepool.hub.identity.idempotency import Remembered, write_once
from computepool.hub.notifications import notices, rows
from computepool.hub.notifications.rows import DeliveryRow, WebhookRow
from computepool.protocol.webhooks import (
    EVENTS,
    DeliveryPage,
    DeliveryView,
    NewWebhookReply,
    WebhookList,
    WebhookRequest,
    WebhookView,
    secret_text,
)

_TEST = "webhook.test"
_MINUTE_MS = 60_000
#: Open groups that a new webhook is notified about; the newest.
_GROUPS_MAX = 500


def secret_of(hub: Hub, webhook_id: str) -> bytes:
    """Derived from the pool's own secret, so every hub of the pool has it and no table holds it."""
    return bytes.fromhex(hub.identity.secrets.digest(f"webhook:{webhook_id}"))


def view(row: WebhookRow) -> WebhookView:
    return WebhookView.from_attributes(row, events=row.events.split(","))


async def create(hub: Hub, principal: Principal, request: WebhookRequest, *, remembered: Remembered) -> NewWebhookReply:
    check_url(hub, request.url)
    webhook_id, account = new_id(hub.clock, "hook"), principal.account_id
    events = [event for event in EVENTS if event in request.events]
    most, secret = hub.settings.webhooks_max, secret_text(secret_of(hub, webhook_id))

    def effect(tx: Tx) -> NewWebhookReply:
        if rows.count_of_account(tx.connection, account) >= most:
            raise TooLarge(f"An account may have {most} webhooks; remove one first.")
        rows.insert(
            tx,
            id=webhook_id,
            account_id=account,
            url=request.url,
            events=",".join(events),
            cursor=event_rows.last_event(tx.connection),
        )
        tx.emit_own(principal.account_id, "webhook.created", webhook_id=webhook_id)
        if notices.COMPLETE in events:
            _watch_groups(tx, account)
        row = rows.get(tx.connection, webhook_id)
        assert row is not None
        return NewWebhookReply(**view(row).model_dump(), secret=secret)

    return await write_once(hub, remembered, effect, model=NewWebhookReply, sealed=True)


def _watch_groups(tx: Tx, account_id: str) -> None:
    """Watch the groups that are open now; new ones will be watched from the start."""
    found = rows.unwatched_groups(tx.connection, account_id, kinds=groups.SHOWN, limit=_GROUPS_MAX)
    for group_id in sorted(found):
        row = group_rows.lock_group(tx, group_id)
        if row is not None and group_rows.is_open(tx.connection, group_id):
            collector.watch(tx, row)


def check_url(hub: Hub, url: str) -> None:
    """Refuse what can be refused without a DNS lookup; the rest is checked at every delivery."""
    try:
        parts = urlsplit(url)
        host, _ = network.clean_host(parts.hostname or ""), parts.port
    except ValueError as error:
        raise BadRequest(f"This is not a valid webhook URL: {error}.", field="url") from None
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise BadRequest("A webhook's URL must not contain a user name, a password or #.", field="url")
    admitted = hub.settings.webhook_networks()
    if parts.scheme != "https" and not admitted:
        raise BadRequest("A webhook's URL must begin with https://.", field="url")
    address = network.literal(host)
    if address is None:
        return
    if why := network.refusal(address, admitted=admitted):
        raise BadRequest(f"{why}, which webhooks do not reach.", field="url")


async def page(hub: Hub, principal: Principal) -> WebhookList:
    found = await hub.store.read(rows.of_account, principal.account_id)
    return WebhookList(webhooks=[view(row) for row in found])


async def remove(hub: Hub, principal: Principal, webhook_id: str) -> None:
    def unit(tx: Tx) -> None:
        _get_own(tx.connection, principal, webhook_id)
        rows.remove(tx, webhook_id)
        tx.emit_own(principal.account_id, "webhook.removed", webhook_id=webhook_id)

    await hub.store.write(unit)


async def enable(hub: Hub, principal: Principal, webhook_id: str) -> WebhookView:
    """Enable it from now on. What happened meanwhile is in `pool events` and in the groups themselves."""

    def unit(tx: Tx) -> WebhookView:
        row = _get_own(tx.connection, principal, webhook_id)
        if row.disabled_at_ms is not None:
            cursor = event_rows.last_event(tx.connection)
            state = {"disabled_at_ms": None, "disabled_reason": None, "failing_since_ms": None}
            rows.change(tx, webhook_id, cursor=cursor, failures=0, next_call_ms=0, **state)
            tx.emit_own(principal.account_id, "webhook.enabled", webhook_id=webhook_id)
            if row.wants(notices.COMPLETE):
                _watch_groups(tx, row.account_id)
        return view(_get_own(tx.connection, principal, webhook_id))

    return await hub.store.write(unit)


async def test(hub: Hub, principal: Principal, webhook_id: str) -> DeliveryView:
    """Send an ordinary delivery whose event says that it is a test."""
    number, settings = hub.clock.entropy(8).hex(), hub.settings

    def unit(tx: Tx) -> DeliveryView:
        row = _get_own(tx.connection, principal, webhook_id)
        if row.disabled_at_ms is not None:
            raise Conflict(f"The webhook is disabled: {row.disabled_reason}. Enable it first.")
        since_ms, most = tx.now_ms - _MINUTE_MS, settings.webhook_tests_max
        if rows.recent(tx.connection, row.account_id, event=_TEST, since_ms=since_ms) >= most:
            raise RateLimited(f"An account may request {most} tests a minute.", retry_after_s=60)
        delivery = f"msg_{event_rows.last_event(tx.connection):013x}_{number}"
        body = notices.payload(settings.address, _TEST, at_ms=tx.now_ms, data={"webhook_id": webhook_id})
        delivery_row = {"id": delivery, "webhook_id": webhook_id, "event": _TEST, "body": body}
        rows.insert_deliveries(tx, [delivery_row])
        [made] = rows.page(tx.connection, webhook_id, before=None, limit=1)
        return _delivery(made)

    return await hub.store.write(unit)


async def deliveries(hub: Hub, principal: Principal, webhook_id: str, *, after: str | None, limit: int) -> DeliveryPage:
    def load(connection: Connection) -> list[DeliveryView]:
        _get_own(connection, principal, webhook_id)
        return [_delivery(row) for row in rows.page(connection, webhook_id, before=after, limit=limit)]

    found = await hub.store.read(load)
    return DeliveryPage(deliveries=found, next=found[-1].id if len(found) == limit else None)


def _delivery(row: DeliveryRow) -> DeliveryView:
    return DeliveryView.from_attributes(row, next_try_ms=row.next_try_ms if row.state == rows.PENDING else None)


def _get_own(connection: Connection, principal: Principal, webhook_id: str) -> WebhookRow:
    """Not even an administrator sees another account's: the address itself may be a secret."""
    row = rows.get(connection, webhook_id)
    if row is None or row.account_id != principal.account_id:
        raise NotFound("There is no such webhook, or it is not yours.")
    return row
