"""Webhooks on the wire: how an account names them, what is sent to them, and the signature that proves who sent it.

The headers and the signature are those of the Standard Webhooks specification, so that its libraries can check them.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from computepool.protocol.base import Page, Reply, Request

#: Of the payload; another one comes with another meaning of a field, never with a new field.
PAYLOAD_VERSION = 1
SECRET_PREFIX = "whsec_"
EVENTS = ("group.complete", "group.home", "job.finished")
EventName = Literal["group.complete", "group.home", "job.finished"]
#: job.finished is for who asks for it: a map of a million items would be a million of them.
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
    failing_since_ms: int | None = None  #: since when nothing has arrived
    disabled_at_ms: int | None = None  #: nothing is sent any more
    disabled_reason: str | None = None


class NewWebhookReply(WebhookView):
    secret: str  #: shown once; receivers check signatures with it


class WebhookList(Reply):
    webhooks: list[WebhookView]


class DeliveryView(Reply):
    id: str  #: the header webhook-id: the same in every try
    event: str
    state: Literal["pending", "delivered", "failed"]
    tries: int
    status: int | None = None  #: of the last answer
    reason: str | None = None  #: why the last try did not succeed
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
    """The header webhook-signature."""
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    return "v1," + b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode("ascii")
