"""Delivery of notices to webhooks: claimed, sent outside any transaction, and retried until they arrive.

Each is sent at least once, under one id: a hub that dies after sending sends again. Users choose the address, so every
name is resolved here, every address checked (core/network.py), and the connection goes to a checked address. No redirect
is followed and no proxy used, and only the status of the response counts.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import httpx2

from computepool.core import network
from computepool.core.backoff import double
from computepool.core.network import Address
from computepool.hub import addresses
from computepool.hub.addresses import AddressRefused
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.notifications import notices, rows, webhooks
from computepool.hub.notifications.rows import DueDelivery, WebhookRow
from computepool.hub.settings import Settings
from computepool.protocol.webhooks import signature

logger = logging.getLogger(__name__)
_DAY_MS = 24 * 3600 * 1000
_GONE = 410  #: a receiver answers this to be sent no more
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The outcome of one try. `status` 0: there was no response."""

    arrived: bool
    status: int = 0
    reason: str = ""


class _Refused(Exception):
    pass


@cache
def _tls() -> ssl.SSLContext:
    """Loading the certificates of all authorities takes 25 ms, so the hubs of a process share one context."""
    return httpx2.create_ssl_context(trust_env=False)


class Courier:
    """Calls webhooks concurrently; each webhook gets its messages one after the other.

    A slow receiver delays only its own account, which has a few calls at a time. The account served longest ago is next.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._client = httpx2.AsyncClient(
            timeout=hub.settings.webhook_call_s,
            verify=_tls(),
            trust_env=False,
            follow_redirects=False,
            limits=httpx2.Limits(max_keepalive_connections=0),
        )
        #: by webhook: its account, and the task that calls it
        self._calls: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._turn = 0
        self._turns: dict[str, int] = {}  #: by account: its latest turn

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for _, task in self._calls.values():
            task.cancel()
        await self.idle()
        await self._client.aclose()

    async def idle(self) -> None:
        await asyncio.gather(*(task for _, task in self._calls.values()), return_exceptions=True)

    async def round(self) -> int:
        """Turn new events into deliveries, and start to send what is due. Returns the number of webhooks started."""
        hub = self._hub
        await notices.gather(hub)
        due = await hub.store.read(rows.due, now_ms=hub.now_ms())
        accounts = {row.account_id for row in due}
        self._turns = {account: turn for account, turn in self._turns.items() if account in accounts}
        waiting = [row for row in due if row.webhook_id not in self._calls]
        begun = 0
        while len(self._calls) < hub.settings.webhook_calls_max and (row := self._next(waiting)) is not None:
            waiting.remove(row)
            self._begin(row)
            begun += 1
        return begun

    def _next(self, waiting: Sequence[DueDelivery]) -> DueDelivery | None:
        busy = Counter(account for account, _ in self._calls.values())
        most = self._hub.settings.webhook_account_calls_max
        able = [row for row in waiting if busy[row.account_id] < most]
        return min(able, key=lambda row: (busy[row.account_id], self._turns.get(row.account_id, 0)), default=None)

    def _begin(self, row: DueDelivery) -> None:
        self._turn += 1
        self._turns[row.account_id] = self._turn
        task = asyncio.create_task(self._serve(row))
        self._calls[row.webhook_id] = (row.account_id, task)
        task.add_done_callback(lambda _: self._calls.pop(row.webhook_id, None))

    async def _serve(self, row: DueDelivery) -> None:
        """Serve one webhook until nothing waits for it, a delivery fails, or its turn ends."""
        following: DueDelivery | None = row
        try:
            for _ in range(self._hub.settings.webhook_batch_max):
                if following is None:
                    return
                following = await self._call(following)
        except Exception:
            logger.exception("webhook.call_failed: %s", row.webhook_id)

    async def _call(self, row: DueDelivery) -> DueDelivery | None:
        """Returns the webhook's next delivery."""
        hub = self._hub
        lease_ms = round(3 * hub.settings.webhook_call_s * 1000)
        if not await hub.store.write(lambda tx: rows.claim(tx, row, until_ms=tx.now_ms + lease_ms)):
            return None
        result = await send(hub, self._client, row)
        jitter = int.from_bytes(hub.clock.entropy(2), "big") / 65_535
        settings = hub.settings
        await hub.store.write(_settle, row=row, result=result, settings=settings, jitter=jitter)
        if not result.arrived:
            return None
        found = await hub.store.read(rows.due, now_ms=hub.now_ms(), webhook_id=row.webhook_id)
        return found[0] if found else None


async def send(hub: Hub, client: httpx2.AsyncClient, row: DueDelivery) -> DeliveryResult:
    try:
        async with asyncio.timeout(hub.settings.webhook_call_s):
            return await _post(hub, client, row)
    except _Refused as refused:
        return DeliveryResult(arrived=False, reason=str(refused))
    except TimeoutError:
        return DeliveryResult(arrived=False, reason=f"no answer in {hub.settings.webhook_call_s:g} s")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        return DeliveryResult(arrived=False, reason=f"{type(error).__name__}: {error}"[:300])


async def _post(hub: Hub, client: httpx2.AsyncClient, row: DueDelivery) -> DeliveryResult:
    parts = urlsplit(row.url)
    host = network.clean_host(parts.hostname or "")
    port = parts.port or _PORTS[parts.scheme]
    address = await _checked_address(hub, host, port, scheme=parts.scheme)
    place = f"[{address}]" if address.version == 6 else str(address)
    body, now_s = row.body.encode(), hub.now_ms() // 1000
    headers = {
        "host": parts.netloc,
        "content-type": "application/json",
        "user-agent": "computepool-webhook/1",
        "webhook-id": row.id,
        "webhook-timestamp": str(now_s),
        "webhook-signature": signature(
            webhooks.secret_of(hub, row.webhook_id), message_id=row.id, timestamp_s=now_s, body=body
        ),
    }
    request = client.build_request(
        "POST",
        urlunsplit((parts.scheme, f"{place}:{port}", parts.path or "/", parts.query, "")),
        content=body,
        headers=headers,
        extensions={"sni_hostname": host},  # TLS verifies the name, the connection goes to the address
    )
    response = await client.send(request, stream=True)
    await response.aclose()  # without reading the body
    status = response.status_code
    return DeliveryResult(response.is_success, status, "" if response.is_success else f"it answered {status}")


async def _checked_address(hub: Hub, host: str, port: int, *, scheme: str) -> Address:
    """The address to connect to."""
    admitted = hub.settings.webhook_networks()
    try:
        found = await addresses.find(host, port, admitted=admitted)
    except AddressRefused as refused:
        raise _Refused(f"{refused}, which webhooks do not reach" if refused.forbidden else f"{refused}") from None
    if scheme != "https" and not all(any(network.unwrap(each) in one for one in admitted) for each in found):
        raise _Refused("without https, webhooks reach only networks that the operator named")
    return found[0]


def _settle(tx: Tx, *, row: DueDelivery, result: DeliveryResult, settings: Settings, jitter: float) -> None:
    hook = rows.get(tx.connection, row.webhook_id)
    failures = 0 if result.arrived or hook is None else hook.failures + 1
    next_ms = tx.now_ms + (_retry_ms(settings, failures, jitter=jitter) if failures else 0)
    columns: dict[str, Any] = {"status": result.status or None, "reason": result.reason or None}
    if result.arrived:
        columns |= {"state": rows.DELIVERED, "ended_at_ms": tx.now_ms}
    else:
        over = next_ms - row.created_at_ms > round(settings.webhook_retry_for_s * 1000)
        columns |= {"state": rows.FAILED, "ended_at_ms": tx.now_ms} if over else {"next_try_ms": next_ms}
    if not rows.record_try(tx, row.id, tries=row.tries + 1, **columns) or hook is None:
        return
    failing_since_ms = None if result.arrived else hook.failing_since_ms or tx.now_ms
    rows.change(tx, hook.id, next_call_ms=next_ms, failures=failures, failing_since_ms=failing_since_ms)
    if failing_since_ms is not None:
        _disable_if_dead(tx, hook, result=result, failing_since_ms=failing_since_ms, settings=settings)


def _disable_if_dead(
    tx: Tx, hook: WebhookRow, *, result: DeliveryResult, failing_since_ms: int, settings: Settings
) -> None:
    reason, failing_ms = "", tx.now_ms - failing_since_ms
    if result.status == _GONE:
        reason = "the receiver answered 410 Gone"
    elif failing_ms > round(settings.webhook_disable_after_s * 1000):
        reason = f"nothing arrived for {failing_ms / _DAY_MS:.1f} days; the last time: {result.reason}"
    if reason and rows.disable(tx, hook.id, reason=reason):
        data = {"webhook_id": hook.id, "words": reason}
        tx.emit(actor="hub", action="webhook.disabled", account_id=hook.account_id, data=data)


def _retry_ms(settings: Settings, tries: int, *, jitter: float) -> int:
    """Pause of the whole webhook. It doubles with each failure; jitter spreads the calls to a receiver that comes back."""
    full_s = double(settings.webhook_retry_base_s, tries - 1, most=settings.webhook_retry_max_s)
    return int(full_s * 1000 * (0.5 + jitter / 2))
