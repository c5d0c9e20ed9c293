"""A payout provider that misbehaves: a real server on the loopback interface with RazorpayX's API.

It keeps its promise about idempotency keys and its books are exact; everything else goes wrong when it is told so.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import itertools
import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

KEY_ID, KEY_SECRET = "rzp_test_key", "very secret indeed"
WEBHOOK_SECRET = "shared with the hub"
ACCOUNT_NUMBER = "7878780080316316"
#: Longer than any client here waits.
HANG_S = 120.0


class Conduct(StrEnum):
    """What happens to one order."""

    PAY = "pay"
    PROCESS = "process"  #: `processing` for some questions, then paid
    FAIL = "fail"  #: taken, and failed
    REVERSE = "reverse"  #: `processing` for some questions, then reversed
    REFUSE = "refuse"  #: a definite no
    LATE_REFUSE = "late_refuse"  #: the same, after some time
    SLOW = "slow"  #: paid, long after the client has gone
    HANG_PAID = "hang_paid"  #: paid at once, never answered
    HANG = "hang"
    ERROR_PAID = "error_paid"  #: paid, and answered with 500
    ERROR = "error"
    RESET_PAID = "reset_paid"  #: paid, and the connection is reset
    RESET = "reset"
    GARBLE_PAID = "garble_paid"  #: paid, and answered with nonsense
    BUSY = "busy"  #: 429
    LOCKED_OUT = "locked_out"  #: 401


#: Conducts after which the order is in the bank's books.
TAKES = {
    Conduct.PAY,
    Conduct.PROCESS,
    Conduct.FAIL,
    Conduct.REVERSE,
    Conduct.SLOW,
    Conduct.HANG_PAID,
    Conduct.ERROR_PAID,
    Conduct.RESET_PAID,
    Conduct.GARBLE_PAID,
}
#: Conducts that the client gives up waiting for.
NEVER_ANSWERED = {Conduct.SLOW, Conduct.HANG_PAID, Conduct.HANG}
_ENDS = {Conduct.FAIL: "failed", Conduct.REVERSE: "reversed"}


class _Hang(Exception):
    pass


class _Reset(Exception):
    pass


@dataclass
class _Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class _Entry:
    """What an idempotency key stands for."""

    body: bytes
    payout: dict[str, Any] | None = None
    refusal: tuple[int, Any] | None = None
    busy: bool = False


@dataclass
class Books:
    payouts: list[dict[str, Any]] = field(default_factory=list)
    #: (event, what the payout was then), in the order it happened
    notices: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def of(self, reference: str) -> list[dict[str, Any]]:
        return [one for one in self.payouts if one["reference_id"] == reference]

    def paid(self, reference: str) -> int:
        return sum(1 for one in self.of(reference) if one["status"] == "processed")


class MisbehavingBank:
    """Runs in its own thread, for hubs in this process and in others."""

    def __init__(self) -> None:
        self.books = Books()
        self.conduct: deque[Conduct] = deque()  #: of the next orders; then the bank is well
        self.answers: deque[str] = deque()  #: to the next questions: error, hang, busy, nothing, slow nothing, garble
        self.slowness_s = HANG_S  #: at most; it goes on as soon as it is told
        self.go_on = threading.Event()
        self.questions_in_process = 2  #: until a payout that is processing ends
        self.measurement = threading.Event()  #: something that takes long is being answered
        self.took = threading.Event()  #: an order is in the books
        self.questions = 0
        self.orders = 0  #: how many were sent here, whatever became of them
        self._keys: dict[str, _Entry] = {}
        self._left: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="bank", daemon=True)
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def settings(self) -> dict[str, Any]:
        return {
            "payout_provider": "razorpayx",
            "razorpayx_url": self.url,
            "razorpayx_key_id": KEY_ID,
            "razorpayx_key_secret": KEY_SECRET,
            "razorpayx_account_number": ACCOUNT_NUMBER,
            "razorpayx_webhook_secret": WEBHOOK_SECRET,
        }

    def heal(self) -> None:
        self.go_on.set()
        self.conduct.clear()
        self.answers.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    # the server

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            status, body = await self._answer(await _read(reader))
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
            await writer.drain()
        except _Hang:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(HANG_S)
        except _Reset:
            opened: socket.socket = writer.get_extra_info("socket")
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, request: _Request) -> tuple[int, Any]:
        expected = base64.b64encode(f"{KEY_ID}:{KEY_SECRET}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {expected}":
            return 401, _error("Authentication failed")
        if (request.method, request.path) == ("POST", "/v1/payouts"):
            return await self._order(request)
        if request.method == "GET" and request.path.startswith("/v1/payouts"):
            return await self._question(request)
        return 404, _error("no such page")

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self.slowness_s):
                while not self.go_on.is_set():  # noqa: ASYNC110 - it is set in another thread
                    await asyncio.sleep(0.005)

    # orders

    async def _order(self, request: _Request) -> tuple[int, Any]:
        self.orders += 1
        key, order = request.headers["x-payout-idempotency"], json.loads(request.body)
        assert 4 <= len(key) <= 36
        _check_order(order)
        entry = self._keys.setdefault(key, _Entry(request.body))
        if entry.body != request.body:
            return 400, _error("Different request body sent for the same Idempotency Header")
        if entry.busy:
            return 409, _error("A request with the same idempotency key is in progress")
        if entry.payout is not None:
            return 200, dict(entry.payout)
        if entry.refusal is not None:
            return entry.refusal
        return await self._treat(entry, order)

    async def _treat(self, entry: _Entry, order: dict[str, Any]) -> tuple[int, Any]:
        conduct = self.conduct.popleft() if self.conduct else Conduct.PAY
        if conduct in (Conduct.SLOW, Conduct.LATE_REFUSE):
            self.measurement.set()
            entry.busy = True
            await self._pause()
            entry.busy = False
        if conduct in TAKES:
            entry.payout = self._take(order, conduct)
        if conduct in (Conduct.REFUSE, Conduct.LATE_REFUSE):
            entry.refusal = 400, _error("The UPI handle is not known", field="fund_account.vpa.address")
            return entry.refusal
        if conduct in (Conduct.HANG, Conduct.HANG_PAID):
            raise _Hang
        if conduct in (Conduct.RESET, Conduct.RESET_PAID):
            raise _Reset
        if conduct in (Conduct.ERROR, Conduct.ERROR_PAID):
            return 500, _error("The server encountered an error", code="SERVER_ERROR")
        refused = {Conduct.BUSY: 429, Conduct.LOCKED_OUT: 401}.get(conduct)
        if refused is not None:
            return refused, _error("not now")
        if conduct is Conduct.GARBLE_PAID:
            return 200, b"<html>we will be back soon"
        assert entry.payout is not None
        return 200, dict(entry.payout)

    def _take(self, order: dict[str, Any], conduct: Conduct) -> dict[str, Any]:
        ends = conduct not in (Conduct.PROCESS, Conduct.REVERSE)
        payout = {
            "id": f"pout_{next(self._numbers):014d}",
            "entity": "payout",
            "amount": order["amount"],
            "currency": order["currency"],
            "status": "processing",
            "mode": order["mode"],
            "reference_id": order["reference_id"],
            "status_details": None,
            "_end": _ENDS.get(conduct, "processed"),
        }
        self.books.payouts.append(payout)
        self.books.notices.append(("payout.initiated", _shown(payout)))
        self._left[payout["id"]] = 0 if ends else self.questions_in_process
        if ends:
            self._end(payout)
        self.took.set()
        return payout

    def _end(self, payout: dict[str, Any]) -> None:
        payout["status"] = payout["_end"]
        if payout["status"] != "processed":
            payout["status_details"] = {"description": "The account is closed", "reason": "x"}
        self.books.notices.append((f"payout.{payout['status']}", _shown(payout)))

    # questions

    async def _question(self, request: _Request) -> tuple[int, Any]:
        self.questions += 1
        answer = self.answers.popleft() if self.answers else ""
        if answer == "hang":
            raise _Hang
        wrong = {"error": (500, _error("x")), "busy": (429, _error("x")), "garble": (200, b"[[[")}
        if answer in wrong:
            return wrong[answer]
        id_ = request.path.removeprefix("/v1/payouts").strip("/")
        if id_:
            found = [one for one in self.books.payouts if one["id"] == id_]
            return (200, self._seen(found[0])) if found else (400, _error("The id does not exist"))
        assert request.query["account_number"] == ACCOUNT_NUMBER
        found = [] if "nothing" in answer else self.books.of(request.query["reference_id"])
        if answer == "slow nothing":
            self.measurement.set()
            await self._pause()
        return 200, {"entity": "collection", "count": len(found), "items": [self._seen(one) for one in found]}

    def _seen(self, payout: dict[str, Any]) -> dict[str, Any]:
        shown = _shown(payout)
        if payout["status"] == "processing":
            self._left[payout["id"]] -= 1
            if self._left[payout["id"]] <= 0:
                self._end(payout)
        return shown


def _check_order(order: dict[str, Any]) -> None:
    assert type(order["amount"]) is int
    assert order["amount"] >= 100
    assert order["account_number"] == ACCOUNT_NUMBER
    assert (order["currency"], order["purpose"], order["queue_if_low_balance"]) == ("INR", "payout", True)
    assert len(order["reference_id"]) <= 40
    assert len(order["narration"]) <= 30
    account = order["fund_account"]
    assert 3 <= len(account["contact"]["name"]) <= 50
    if account["account_type"] == "vpa":
        assert order["mode"] == "UPI"
        assert "@" in account["vpa"]["address"]
    else:
        assert order["mode"] in ("IMPS", "NEFT")
        assert set(account["bank_account"]) == {"name", "ifsc", "account_number"}


def _shown(payout: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payout.items() if not name.startswith("_")}


def _error(description: str, *, code: str = "BAD_REQUEST_ERROR", field: str | None = None) -> dict[str, Any]:
    return {"error": {"code": code, "description": description, "field": field}}


async def _read(reader: asyncio.StreamReader) -> _Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return _Request(method, parts.path, query, headers, body)


# webhooks


def webhook(event: str, payout: dict[str, Any], *, secret: str = WEBHOOK_SECRET) -> dict[str, Any]:
    """The arguments of a POST."""
    told = {"entity": "event", "event": event, "contains": ["payout"], "payload": {"payout": {"entity": payout}}}
    body = json.dumps(told).encode()
    signature = hmac.digest(secret.encode(), body, "sha256").hex()
    return {"content": body, "headers": {"X-Razorpay-Signature": signature, "Content-Type": "application/json"}}


def webhooks(books: Books) -> Iterator[dict[str, Any]]:
    for event, payout in books.notices:
        yield webhook(event, payout)
