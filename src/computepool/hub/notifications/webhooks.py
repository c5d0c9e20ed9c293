"""Webhooks of an account: made, listed, tried out, looked after, removed."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from computepool.core import network
from computepool.core.errors import BadRequest, Conflict, NotFound, RateLimited, TooLarge
from computepool.hub.clock import new_id
from computepool.hub.context import Hub
from computepool.hub.db import event_rows
from computepool.hub.db.session import Connection, Tx
from computepool.hub.groups import collector, groups
from computepool.hub.groups import rows as group_rows
from computepool.hub.identity.access import Principal
from computepool.hub.identity.idempotency import Remembered, once
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
#: Groups under way that a new webhook hears of, the newest.
_GROUPS_MAX = 500


def secret_of(hub: Hub, webhook_id: str) -> bytes:
    """Made from the pool's own secret: it lies in no table, and every hub of the pool comes to the same."""
    return bytes.fromhex(hub.identity.secrets.digest(f"webhook:{webhook_id}"))


def view(row: WebhookRow) -> WebhookView:
    return WebhookView.model_validate({**row._asdict(), "events": row.events.split(",")})


async def create(
    hub: Hub, principal: Principal, request: WebhookRequest, *, remembered: Remembered
) -> NewWebhookReply:
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
        _emit(tx, principal, "webhook.created", webhook_id=webhook_id)
        if notices.COMPLETE in events:
            _watch_groups(tx, account)
        row = rows.get(tx.connection, webhook_id)
        assert row is not None
        return NewWebhookReply(**view(row).model_dump(), secret=secret)

    return await hub.store.write(
        lambda tx: once(tx, remembered, lambda: effect(tx), model=NewWebhookReply, sealed=True)
    )


def _watch_groups(tx: Tx, account_id: str) -> None:
    """Those under way, too; from now on every new one is watched from its beginning."""
    found = rows.unwatched_groups(tx.connection, account_id, kinds=groups.SHOWN, limit=_GROUPS_MAX)
    for group_id in sorted(found):
        row = group_rows.lock_group(tx, group_id)
        if row is not None and group_rows.is_open(tx.connection, group_id):
            collector.watch(tx, row)


def check_url(hub: Hub, url: str) -> None:
    """What can be said of it without asking a name server; the rest is judged at every delivery."""
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
    found = await hub.store.read(lambda connection: rows.of_account(connection, principal.account_id))
    return WebhookList(webhooks=[view(row) for row in found])


async def remove(hub: Hub, principal: Principal, webhook_id: str) -> None:
    def unit(tx: Tx) -> None:
        _get_own(tx.connection, principal, webhook_id)
        rows.remove(tx, webhook_id)
        _emit(tx, principal, "webhook.removed", webhook_id=webhook_id)

    await hub.store.write(unit)


async def enable(hub: Hub, principal: Principal, webhook_id: str) -> WebhookView:
    """Again, from now on: what happened meanwhile is in `pool events` and in the groups themselves."""

    def unit(tx: Tx) -> WebhookView:
        row = _get_own(tx.connection, principal, webhook_id)
        if row.disabled_at_ms is not None:
            cursor = event_rows.last_event(tx.connection)
            state = {"disabled_at_ms": None, "disabled_reason": None, "failing_since_ms": None}
            rows.change(tx, webhook_id, cursor=cursor, failures=0, next_call_ms=0, **state)
            _emit(tx, principal, "webhook.enabled", webhook_id=webhook_id)
            if notices.wants(row, notices.COMPLETE):
                _watch_groups(tx, row.account_id)
        return view(_get_own(tx.connection, principal, webhook_id))

    return await hub.store.write(unit)


async def test(hub: Hub, principal: Principal, webhook_id: str) -> DeliveryView:
    """A delivery like any other, that says it is a test."""
    number, settings = hub.clock.entropy(8).hex(), hub.settings

    def unit(tx: Tx) -> DeliveryView:
        row = _get_own(tx.connection, principal, webhook_id)
        if row.disabled_at_ms is not None:
            raise Conflict(f"The webhook is disabled: {row.disabled_reason}. Enable it first.")
        since_ms, most = tx.now_ms - _MINUTE_MS, settings.webhook_tests_max
        if rows.recent(tx.connection, row.account_id, event=_TEST, since_ms=since_ms) >= most:
            raise RateLimited(f"An account may ask for {most} tests in a minute.", retry_after_s=60)
        delivery = f"msg_{event_rows.last_event(tx.connection):013x}_{number}"
        body = notices.payload(settings.address, _TEST, at_ms=tx.now_ms, data={"webhook_id": webhook_id})
        delivery_row = {"id": delivery, "webhook_id": webhook_id, "event": _TEST, "body": body}
        rows.insert_deliveries(tx, [delivery_row])
        [made] = rows.page(tx.connection, webhook_id, before=None, limit=1)
        return _delivery(made)

    return await hub.store.write(unit)


async def deliveries(
    hub: Hub, principal: Principal, webhook_id: str, *, after: str | None, limit: int
) -> DeliveryPage:
    def load(connection: Connection) -> list[DeliveryView]:
        _get_own(connection, principal, webhook_id)
        return [_delivery(row) for row in rows.page(connection, webhook_id, before=after, limit=limit)]

    found = await hub.store.read(load)
    return DeliveryPage(deliveries=found, next=found[-1].id if len(found) == limit else None)


def _delivery(row: DeliveryRow) -> DeliveryView:
    waits = row.state == rows.PENDING
    fields = {**row._asdict(), "next_try_ms": row.next_try_ms if waits else None}
    return DeliveryView.model_validate(fields)


def _get_own(connection: Connection, principal: Principal, webhook_id: str) -> WebhookRow:
    """Not even an admin's: the address may be a secret itself."""
    row = rows.get(connection, webhook_id)
    if row is None or row.account_id != principal.account_id:
        raise NotFound("There is no such webhook, or it is not yours.")
    return row


def _emit(tx: Tx, principal: Principal, action: str, *, webhook_id: str) -> None:
    data = json.dumps({"webhook_id": webhook_id})
    tx.emit(actor=principal.account_id, action=action, account_id=principal.account_id, data=data)
