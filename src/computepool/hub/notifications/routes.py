"""Routes of webhooks."""

from __future__ import annotations

from computepool.hub.http.dependencies import Cursor, HubDep, IdPath, Limit, RememberedDep, SignedIn
from computepool.hub.http.guard import guarded_router
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

router = guarded_router(tags=["accounts"])


@router.get("/webhooks")
async def list_webhooks(principal: SignedIn, hub: HubDep) -> WebhookList:
    """List your webhooks."""
    return await webhooks.page(hub, principal)


@router.post("/webhooks", status_code=201, responses=refuses(409, 413))
async def create_webhook(
    body: WebhookRequest, principal: SignedIn, hub: HubDep, remembered: RememberedDep
) -> NewWebhookReply:
    """Create a webhook for completed groups; the secret is shown once."""
    return await webhooks.create(hub, principal, body, remembered=remembered)


@router.delete("/webhooks/{webhook_id}", status_code=204, responses=refuses(404))
async def remove_webhook(webhook_id: IdPath, principal: SignedIn, hub: HubDep) -> None:
    """Remove a webhook."""
    await webhooks.remove(hub, principal, webhook_id)


@router.post("/webhooks/{webhook_id}/enable", responses=refuses(404))
async def enable_webhook(webhook_id: IdPath, principal: SignedIn, hub: HubDep) -> WebhookView:
    """Re-enable a webhook that was disabled after failures."""
    return await webhooks.enable(hub, principal, webhook_id)


@router.post("/webhooks/{webhook_id}/test", status_code=202, responses=refuses(404, 409, 429))
async def test_webhook(webhook_id: IdPath, principal: SignedIn, hub: HubDep) -> DeliveryView:
    """Send a test message."""
    return await webhooks.test(hub, principal, webhook_id)


@router.get("/webhooks/{webhook_id}/deliveries", responses=refuses(404))
async def list_deliveries(
    webhook_id: IdPath, principal: SignedIn, hub: HubDep, *, after: Cursor = None, limit: Limit = 100
) -> DeliveryPage:
    """List deliveries to a webhook, newest first, with their outcome."""
    return await webhooks.deliveries(hub, principal, webhook_id, after=after, limit=limit)
