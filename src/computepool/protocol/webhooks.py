"""Wire models of webhooks, and the signatures of their messages.

Headers and signatures follow the Standard Webhooks specification, so that its libraries can verify them.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from computepool.protocol.base import Page, Reply, Request

#: Changes if the meaning of a field changes, not if fields are added.
PAYLOAD_VERSION = 1
SECRET_PREFIX = "whsec_"
EVENTS = ("group.complete", "group.home", "job.finished")
EventName = Literal["group.complete", "group.home", "job.finished"]
#: job.finished must be requested explicitly, because a map of a million items would cause a million messages.
DEFAULT_EVENTS: tuple[EventName, ...] = ("group.complete", "group.home")
Url = Annotated[str, StringConstraints(min_length=8, max_length=2_000, pattern=r"^https?://[\x21-\x7e]+$")]


class WebhookRequest(Request):
    url: Url
    events: list[EventName] = Field(default=list(DEFAULT_EVENTS), min_length=1, max_length=len(EVENTS))


class WebhookView(Reply):
    id: str
    url: str
    events: list[str]
    created_at_ms: int
    failing_since_ms: int | None = None  #: nothing has arrived since then
    disabled_at_ms: int | None = None  #: nothing is sent since then
    disabled_reason: str | None = None


class NewWebhookReply(WebhookView):
    secret: str  #: shown once; receivers verify signatures with it


class WebhookList(Reply):
    webhooks: list[WebhookView]


class DeliveryView(Reply):
    id: str  #: the header webhook-id, which is the same in every try
    event: str
    state: Literal["pending", "delivered", "failed"]
    tries: int
    status: int | None = None  #: HTTP status of the last response
    reason: str | None = None  #: why the last try failed
    created_at_ms: int
    next_try_ms: int | None = None
    ended_at_ms: int | None = None


class DeliveryPage(Page):
    deliveries: list[DeliveryView]


def secret_text(secret: bytes) -> str:
    return SECRET_PREFIX + b64encode(secret).decode("ascii")


def secret_bytes(text: str) -> bytes:
    """Raises ValueError."""
    return b64decode(text.removeprefix(SECRET_PREFIX), validate=True)


def signature(secret: bytes, *, message_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of the header webhook-signature."""
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    return "v1," + b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode("ascii")
