"""Routes of webhooks: where an account wants to be told."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Request

from computepool.hub.http.dependencies import Cursor, HubDep, IdPath, Limit, RememberedDep, SignedIn, for_body
from computepool.hub.http.guard import guarded
from computepool.hub.http.openapi import examples
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.notifications import webhooks
from computepool.protocol.webhooks import (
    DeliveryPage,
    DeliveryView,
    NewWebhookReply,
    WebhookList,
    WebhookRequest,
    WebhookView,
)

router = guarded(tags=["accounts"])


@router.get("/webhooks", summary="List your webhooks")
async def list_webhooks(principal: SignedIn, hub: HubDep) -> WebhookList:
    return await webhooks.page(hub, principal)


@router.post(
    "/webhooks",
    status_code=201,
    summary="Be told at an address when groups are complete; the secret is shown once",
    responses=refuses(409, 413),
)
async def create_webhook(
    request: Request,
    body: Annotated[WebhookRequest, Body(openapi_examples=examples.WEBHOOK)],
    principal: SignedIn,
    hub: HubDep,
    key: RememberedDep,
) -> NewWebhookReply:
    remembered = for_body(key, principal, await request.body())
    return await webhooks.create(hub, principal, body, remembered=remembered)


@router.delete("/webhooks/{webhook_id}", status_code=204, summary="Remove a webhook", responses=refuses(404))
async def remove_webhook(webhook_id: IdPath, principal: SignedIn, hub: HubDep) -> None:
    await webhooks.remove(hub, principal, webhook_id)


@router.post(
    "/webhooks/{webhook_id}/enable",
    summary="Send to it again, after it was disabled because nothing arrived",
    responses=refuses(404),
)
async def enable_webhook(webhook_id: IdPath, principal: SignedIn, hub: HubDep) -> WebhookView:
    return await webhooks.enable(hub, principal, webhook_id)


@router.post(
    "/webhooks/{webhook_id}/test",
    status_code=202,
    summary="Send it a message that says it is a test",
    responses=refuses(404, 409, 429),
)
async def test_webhook(webhook_id: IdPath, principal: SignedIn, hub: HubDep) -> DeliveryView:
    return await webhooks.test(hub, principal, webhook_id)


@router.get(
    "/webhooks/{webhook_id}/deliveries",
    summary="What was sent to it, newest first, and how that went",
    responses=refuses(404),
)
async def list_deliveries(
    webhook_id: IdPath, principal: SignedIn, hub: HubDep, *, after: Cursor = None, limit: Limit = 100
) -> DeliveryPage:
    return await webhooks.deliveries(hub, principal, webhook_id, after=after, limit=limit)
