"""RazorpayX: payouts by its HTTP API, with our payout id as its idempotency key and reference, and signed webhooks."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
from collections.abc import Mapping
from typing import Any

import httpx2

from computepool.core.errors import BadRequest, Forbidden, NotFound
from computepool.core.money.payouts import BankReply, BankStatus, Target, UpiTarget
from computepool.hub.money.banks.base import Notice, Order
from computepool.hub.settings import Settings

logger = logging.getLogger(__name__)

_PATH = "/v1/payouts"
_CURRENCY = "INR"
_NARRATION = "ComputePool payout"  #: on the receiver's statement; letters, digits and spaces, 30 at most
_IMPS_MAX_PAISE = 500_000 * 100
_REFUSALS = frozenset({400, 422})
_PER_PAGE = 100
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)  #: it becomes a part of an address
_WORDS: dict[str, BankStatus] = {
    "queued": BankStatus.PROCESSING,
    "pending": BankStatus.PROCESSING,
    "scheduled": BankStatus.PROCESSING,
    "processing": BankStatus.PROCESSING,
    "processed": BankStatus.PAID,
    "reversed": BankStatus.REFUSED,
    "failed": BankStatus.REFUSED,
    "rejected": BankStatus.REFUSED,
    "cancelled": BankStatus.REFUSED,
}
#: Which one counts of several payouts under one reference, which should never exist.
_WEIGHT = {BankStatus.PAID: 3, BankStatus.PROCESSING: 2, BankStatus.UNCLEAR: 1, BankStatus.REFUSED: 0}


class RazorpayX:
    can_look_up = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._account_number = settings.razorpayx_account_number
        self._opening = asyncio.Lock()
        self._client: httpx2.AsyncClient | None = None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _connection(self) -> httpx2.AsyncClient:
        """Opened by the first request: reading a webhook needs none."""
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(self._make_client)
            return self._client

    def _make_client(self) -> httpx2.AsyncClient:
        # It logs the address of every request, which holds the account number.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        settings = self._settings
        return httpx2.AsyncClient(
            base_url=settings.razorpayx_url,
            auth=(settings.razorpayx_key_id, settings.razorpayx_key_secret.get_secret_value()),
            timeout=None,  # `_ask` bounds each request as a whole
            verify=settings.razorpayx_url.startswith("https:"),
            follow_redirects=False,
        )

    # orders

    async def submit(self, order: Order) -> BankReply:
        content = json.dumps(self._body(order), sort_keys=True).encode()
        headers = {"Content-Type": "application/json", "X-Payout-Idempotency": order.reference}
        reply = await self._ask("POST", _PATH, content=content, headers=headers)
        if isinstance(reply, BankReply):
            return reply
        if reply.status_code in _REFUSALS:
            return _refusal(reply)
        if not reply.is_success:
            return _unclear(f"it answered {reply.status_code}")
        return _answer(_json(reply), order)

    def _body(self, order: Order) -> dict[str, Any]:
        """The same for every try: the bank refuses another body under the same key."""
        return {
            "account_number": self._account_number,
            "amount": order.paise,
            "currency": _CURRENCY,
            "mode": _mode(order),
            "purpose": "payout",
            "fund_account": _fund_account(order.target, order.account_id),
            "queue_if_low_balance": True,
            "reference_id": order.reference,
            "narration": _NARRATION,
        }

    async def look_up(self, order: Order, ref: str | None) -> BankReply:
        if ref is not None:
            reply = await self._ask("GET", f"{_PATH}/{ref}")
        else:
            query = {"account_number": self._account_number, "reference_id": order.reference, "count": _PER_PAGE}
            reply = await self._ask("GET", _PATH, params=query)
        if isinstance(reply, BankReply):
            return reply
        if not reply.is_success:
            return _unclear(f"it answered {reply.status_code}")
        found = _json(reply)
        return _answer(found, order) if ref is not None else _among(found, order)

    async def _ask(self, method: str, path: str, **request: Any) -> httpx2.Response | BankReply:
        client = await self._connection()
        try:
            # httpx bounds each wait on its own; a bank that sends a byte now and then must not hold us for ever.
            async with asyncio.timeout(self._settings.payout_call_s):
                return await client.request(method, path, **request)
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
            return _unclear(f"no answer ({type(error).__name__})")

    # webhooks

    def read_notice(self, body: bytes, signature: str) -> Notice | None:
        secret = self._settings.razorpayx_webhook_secret.get_secret_value()
        if not secret:
            raise NotFound("This hub accepts no razorpayx webhooks: no webhook secret is set.")
        expected = hmac.digest(secret.encode(), body, "sha256").hex()
        if not hmac.compare_digest(expected.encode(), signature.encode(errors="replace")):
            raise Forbidden("The webhook's signature is invalid.")
        return _notice(body)


def _mode(order: Order) -> str:
    if isinstance(order.target, UpiTarget):
        return "UPI"
    return "IMPS" if order.paise <= _IMPS_MAX_PAISE else "NEFT"


def _fund_account(target: Target, account_id: str) -> dict[str, Any]:
    contact = {"type": "vendor", "reference_id": account_id}
    if isinstance(target, UpiTarget):
        named = contact | {"name": f"Provider {account_id}"[:50]}
        return {"account_type": "vpa", "vpa": {"address": target.upi}, "contact": named}
    account = {"name": target.name, "ifsc": target.ifsc, "account_number": target.account_number}
    return {
        "account_type": "bank_account",
        "bank_account": account,
        "contact": contact | {"name": target.name[:50].rstrip(" '_/(-")},
    }


def _unclear(detail: str) -> BankReply:
    return BankReply(BankStatus.UNCLEAR, detail=detail)


def _json(reply: httpx2.Response) -> Any:
    try:
        return reply.json()
    except (ValueError, RecursionError):
        return None


def _refusal(reply: httpx2.Response) -> BankReply:
    """A complaint about the order is a definite no; one about the key means that the order had arrived before."""
    found = _json(reply)
    error = found.get("error") if isinstance(found, dict) else None
    if not isinstance(error, dict) or error.get("code") != "BAD_REQUEST_ERROR":
        return _unclear(f"it answered {reply.status_code}")
    description = f"{error.get('description') or 'no reason given'}"
    if "idempotency" in f"{description} {error.get('field')}".lower():
        return _unclear(description)
    return BankReply(BankStatus.REFUSED, detail=description)


def _answer(entity: Any, order: Order) -> BankReply:
    """The bank's answer about our payout; unclear if it is about another."""
    notice = _entity_notice(entity)
    if notice is None or notice.reference != order.reference or notice.paise != order.paise:
        return _unclear("it answered about something else")
    return notice.answer


def _among(page: Any, order: Order) -> BankReply:
    items = page.get("items") if isinstance(page, dict) else None
    if not isinstance(items, list):
        return _unclear("its list cannot be read")
    ours = [item for item in items if isinstance(item, dict) and item.get("reference_id") == order.reference]
    if not ours:
        return BankReply(BankStatus.ABSENT)
    if len(ours) > 1:
        logger.error("payout.doubled: the bank has %d payouts for %s", len(ours), order.reference)
    return max((_answer(item, order) for item in ours), key=lambda answer: _WEIGHT[answer.status])


def _notice(body: bytes) -> Notice | None:
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest("The webhook's body is not JSON.") from None
    if not isinstance(event, dict) or not str(event.get("event", "")).startswith("payout."):
        return None
    inner: Any = event
    for name in ("payload", "payout", "entity"):
        inner = inner.get(name) if isinstance(inner, dict) else None
    return _entity_notice(inner)


def _entity_notice(entity: Any) -> Notice | None:
    if not isinstance(entity, dict) or entity.get("entity") != "payout":
        return None
    reference, paise, ref = entity.get("reference_id"), entity.get("amount"), entity.get("id")
    if not isinstance(reference, str) or type(paise) is not int or not _ID.fullmatch(f"{ref}"):
        return None
    if entity.get("currency") != _CURRENCY:
        return None
    word = _WORDS.get(str(entity.get("status")), BankStatus.UNCLEAR)
    return Notice(reference=reference, paise=paise, answer=BankReply(word, f"{ref}", _failure_reason(entity)))


def _failure_reason(entity: Mapping[str, Any]) -> str:
    details = entity.get("status_details")
    description = details.get("description") if isinstance(details, dict) else None
    return f"{description or entity.get('failure_reason') or ''}"
