"""`pool.webhooks`: notifications over HTTP, and the verification of their signatures."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from computepool.core.errors import BadRequest
from computepool.protocol import webhooks as wire
from computepool.sdk import clock
from computepool.sdk.client.resource import Resource

Webhooks: TypeAlias = list[wire.WebhookView]
_HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")


class WebhookApi(Resource):
    def add(self, url: str, *, events: Sequence[str] = wire.DEFAULT_EVENTS) -> wire.NewWebhookReply:
        """Send notifications to `url`. The reply holds the secret, which is shown only once."""
        if not url.startswith(("https://", "http://")):
            raise BadRequest("url: pass a complete URL, such as https://example.org/computepool.", field="url")
        return self._post("/webhooks", wire.NewWebhookReply, wire.WebhookRequest, url=url, events=events)

    def list(self) -> Webhooks:
        return self._transport.get("/webhooks", wire.WebhookList).webhooks

    def remove(self, webhook_id: str) -> None:
        self._transport.call("DELETE", f"/webhooks/{webhook_id}")

    def enable(self, webhook_id: str) -> wire.WebhookView:
        return self._transport.post(f"/webhooks/{webhook_id}/enable", wire.WebhookView)

    def test(self, webhook_id: str) -> wire.DeliveryView:
        """Send a test message; see `deliveries` for the outcome."""
        return self._transport.post(f"/webhooks/{webhook_id}/test", wire.DeliveryView)

    def deliveries(self, webhook_id: str, *, limit: int = 100) -> Iterator[wire.DeliveryView]:
        """Iterate over deliveries, newest first."""
        path = f"/webhooks/{webhook_id}/deliveries"
        return self._each(path, wire.DeliveryPage, lambda page: page.deliveries, limit=limit)


class WebhookError(ValueError):
    """The message has no valid signature, or may be a replay."""


def verify_webhook(
    headers: Mapping[str, str], body: bytes | str, secret: str, *, tolerance: int = 300, now: int | None = None
) -> dict[str, Any]:
    """Verify a webhook and return its body. Raises WebhookError unless it is signed and at most `tolerance` seconds old.

    Messages may arrive more than once: store the `webhook-id` header and ignore repeats.

    >>> event = computepool.verify_webhook(request.headers, request.body, "whsec_…")
    """
    found = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, stamp, signatures = (found[name] for name in _HEADERS)
        timestamp_s = int(stamp)
        key = wire.secret_bytes(secret)
    except (KeyError, ValueError) as error:
        raise WebhookError(f"This is not a signed webhook: {error}.") from None
    now = clock.now_ms() // 1000 if now is None else now
    if abs(now - timestamp_s) > tolerance:
        raise WebhookError(f"This webhook was signed {now - timestamp_s} s ago; it may be a replay.")
    data = body.encode() if isinstance(body, str) else bytes(body)
    expected = wire.signature(key, message_id=message_id, timestamp_s=timestamp_s, body=data).encode()
    # In constant time. There are several signatures while a secret is being replaced.
    matches = [hmac.compare_digest(one.encode(), expected) for one in signatures.split(" ")]
    if not any(matches):
        raise WebhookError("This webhook is not signed with this secret.")
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise WebhookError("The body of this webhook is not a JSON object.")
    return fields
