"""Bodies of unknown callers are not read, whatever the route and however they are sent."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection

import pytest

from computepool.hub.app import create_api
from computepool.hub.settings import Settings
from tests.hub.serving import ServedHub, serving

pytestmark = [pytest.mark.process, pytest.mark.soak]

DECLARED = 8 * 1024 * 1024
#: An answer that waits for the body would never come: the rest of it is never sent, and a slow sender is given much longer.
PATIENCE_S = 30.0
OPEN = frozenset({"/signin", "/nodes/register", "/payouts/webhook/{provider}"})
STRANGERS = {
    "nobody": "",
    "a wrong key": "Authorization: Bearer cp_0123456789abcdef_nobody\r\n",
    "a forged node": "Authorization: Bearer eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJub2RlX3gifQ.AAAA\r\n",
    "a wrong cookie": "Cookie: computepool_session=cp_0123456789abcdef_nobody\r\nSec-Fetch-Site: same-origin\r\n",
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHub]:
    # Wrong keys are slowed down elsewhere; here every one of them is to be looked at.
    chosen = {"body_grace_s": 300, "failed_signins_burst": 10_000}
    with serving(tmp_path_factory.mktemp("hub"), **chosen) as running:
        yield running


def routes() -> list[tuple[str, str]]:
    """Every documented route that takes a body."""
    document = create_api().openapi()
    found = [
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if "requestBody" in operation or method in ("post", "put", "patch")
    ]
    assert len(found) > 40
    return found


def head(method: str, path: str, *lines: str) -> bytes:
    filled = re.sub(r"\{digest\}", "0" * 64, path)
    filled = re.sub(r"\{[^}]+\}", "x", filled)
    said = "".join(lines)
    return (f"{method} /api/v1{filled} HTTP/1.1\r\nHost: hub\r\nContent-Type: application/json\r\n{said}\r\n").encode()


def still_serves(hub: ServedHub) -> bool:
    with hub.client() as client:
        return client.post("/nodes/codes").is_success


def status(connection: socket.socket) -> int:
    connection.settimeout(PATIENCE_S)
    answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer.split()[1])


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("framing", [f"Content-Length: {DECLARED}\r\n", "Transfer-Encoding: chunked\r\n"])
def test_every_route_refuses_a_stranger_before_the_body_has_come(hub: ServedHub, stranger: str, framing: str) -> None:
    part = b"400\r\n" + b"[" * 1024 + b"\r\n" if "chunked" in framing else b"[" * 1024
    for method, path in routes():
        if path in OPEN and "chunked" in framing:
            continue  # read as far as a stranger may send: the next test
        with hub.connect() as connection:
            connection.sendall(head(method, path, STRANGERS[stranger], framing) + part)
            assert status(connection) in ({413} if path in OPEN else {401}), (method, path)


@pytest.mark.parametrize("path", sorted(OPEN))
def test_an_open_route_reads_little_of_a_stranger(hub: ServedHub, path: str) -> None:
    """Chunked, so that nothing is known of its length."""
    megabyte = b"100000\r\n" + b"[" * 2**20 + b"\r\n"
    with hub.connect() as connection:
        connection.sendall(head("POST", path, "Transfer-Encoding: chunked\r\n"))
        with suppress(ConnectionError):
            connection.sendall(megabyte)
        assert status(connection) == 413


def test_a_stranger_is_not_asked_to_go_on(hub: ServedHub) -> None:
    expects = (f"Content-Length: {DECLARED}\r\n", "Expect: 100-continue\r\n")
    with hub.connect() as connection:
        connection.sendall(head("POST", "/jobs", *expects))
        assert status(connection) == 401
    with hub.connect() as connection:
        connection.sendall(head("POST", "/jobs", *expects, f"Authorization: Bearer {hub.key}\r\n"))
        assert status(connection) == 100


def test_a_refused_sender_is_not_listened_to_for_long(hub: ServedHub) -> None:
    """The rest of a refused body costs the hub little more than what the kernel has accepted already."""
    sent, ends_at = 0, time.monotonic() + PATIENCE_S
    with hub.connect() as connection:
        connection.sendall(head("POST", "/jobs", f"Content-Length: {2**40}\r\n"))
        assert status(connection) == 401
        with suppress(ConnectionError):
            while time.monotonic() < ends_at:
                sent += connection.send(b" " * 65536)
    assert time.monotonic() < ends_at, "it was listened to all the time"
    # Buffers of both sides' kernels hold some megabytes.
    assert sent < Settings().unread_body_max_bytes + 64 * 2**20


def test_a_small_body_that_is_refused_keeps_the_connection(hub: ServedHub) -> None:
    connection = HTTPConnection(*hub.address, timeout=PATIENCE_S)
    connection.connect()
    used = connection.sock
    for _ in range(3):
        connection.request("POST", "/api/v1/jobs", b"{}", {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (401, True)
    assert connection.sock is used
    connection.close()


def test_many_large_bodies_of_strangers_cost_no_memory(hub: ServedHub) -> None:
    assert still_serves(hub)
    hub.forget_peak()
    before = hub.peak_mb()
    bomb = b"[" + b"[]," * (DECLARED // 3 - 2) + b"[]]"
    for _ in range(8):
        with hub.connect() as connection, suppress(ConnectionError):
            connection.sendall(head("POST", "/jobs", f"Content-Length: {len(bomb)}\r\n") + bomb)
            status(connection)
    assert hub.peak_mb() - before < 16
    assert still_serves(hub)


def test_an_address_has_few_bodies_on_their_way(hub: ServedHub) -> None:
    """Unfinished bodies occupy memory, so their number is limited, and other callers do not wait."""
    most = Settings().arriving_bodies_max
    waiting: list[socket.socket] = []
    try:
        for _ in range(most):
            waiting.append(hub.connect())
            waiting[-1].sendall(head("POST", "/signin", "Content-Length: 60000\r\n") + b"{")
        ends_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends_at:
            with hub.connect() as late:
                late.sendall(head("POST", "/signin", "Content-Length: 60000\r\n") + b"{")
                late.settimeout(0.5)
                with suppress(TimeoutError):
                    assert b" 429 " in late.recv(65536)
                    break
        else:
            pytest.fail("everybody was let in")
        assert still_serves(hub)
    finally:
        for connection in waiting:
            connection.close()
