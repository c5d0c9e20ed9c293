"""Clients that are slow, or send too much, are disconnected, and meanwhile nobody else waits."""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.hub.settings import Settings
from computepool.protocol.tokens import b64, public_text, sign_node_token
from computepool.testing.node import PROFILE
from tests.hub.serving import ServedHub, serving

pytestmark = pytest.mark.process

SLOW = 300
DEADLINE_S = 1.0
#: The hub looks twice a second, and this machine has other things to do.
SLACK_S = 15.0
HEADERS = b"GET /api/v1/hub HTTP/1.1\r\nHost: hub\r\n"
POST = b"POST /api/v1/signin HTTP/1.1\r\nHost: hub\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHub]:
    chosen = {"header_deadline_s": DEADLINE_S, "body_grace_s": DEADLINE_S, "interval_min_s": 6, "interval_max_s": 6}
    with serving(tmp_path_factory.mktemp("hub"), **chosen) as running:
        yield running


class Node:
    """An enrolled node that keeps one connection, as agents do."""

    def __init__(self, hub: ServedHub) -> None:
        self.client = hub.client()
        code = self.client.post("/nodes/codes").json()["code"]
        key = Ed25519PrivateKey.generate()
        proof = b64(key.sign(code.encode()))
        sent = {"code": code, "public_key": public_text(key), "proof": proof, "protocol": 1, "profile": PROFILE}
        node_id = self.client.post("/nodes/register", json=sent).json()["node_id"]
        now_s = self.client.get("/hub").json()["time_ms"] // 1000
        self.client.headers["Authorization"] = (
            f"Bearer {sign_node_token(node_id, key=key, hub='computepool', now_s=now_s)}"
        )
        self.say("/next", wait_ms=0, profile=PROFILE)

    def say(self, path: str = "/heartbeat", **fields: object) -> float:
        began = time.monotonic()
        answer = self.client.post(path, json={"boot_id": "b", "wait_ms": 0, **fields})
        assert answer.status_code == 200, answer.text
        return time.monotonic() - began


@pytest.fixture
def node(hub: ServedHub) -> Iterator[Node]:
    made = Node(hub)
    yield made
    made.client.close()


def still_serves(hub: ServedHub) -> bool:
    with hub.client() as client:
        return client.get("/hub").status_code == 200


class Trickle(threading.Thread):
    """Sends one byte over each connection every half second, until the hub closes it."""

    def __init__(self, connections: list[socket.socket], piece: bytes) -> None:
        super().__init__(daemon=True)
        self.open = {connection: time.monotonic() for connection in connections}
        self.lived_s: list[float] = []
        self._piece = piece
        self.stop = threading.Event()

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for connection in self.open:
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ)
            while self.open and not self.stop.is_set():
                for key, _ in selector.select(0.5):
                    self._hear(selector, key.fileobj)  # type: ignore[arg-type]
                for connection in [*self.open]:
                    self._say(selector, connection)

    def _hear(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        try:
            heard = connection.recv(4096)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            heard = b""
        if not heard:
            self._gone(selector, connection)

    def _say(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        try:
            connection.send(self._piece)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._gone(selector, connection)

    def _gone(self, selector: selectors.BaseSelector, connection: socket.socket) -> None:
        selector.unregister(connection)
        self.lived_s.append(time.monotonic() - self.open.pop(connection))
        connection.close()


def openings() -> list[bytes]:
    """How slow clients begin: with nothing, endless headers, or a body that does not arrive."""
    body = POST + b"Content-Length: 100000\r\n\r\n{"
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    return [b"", HEADERS, HEADERS + b"X-A: ", body, chunked, b"\r\n"]


@pytest.mark.soak
def test_heartbeats_are_quick_while_hundreds_of_slow_clients_hold_on(hub: ServedHub, node: Node) -> None:
    connections = []
    for number in range(SLOW):
        connection = hub.connect()
        connection.sendall(openings()[number % len(openings())])
        connections.append(connection)
    trickle = Trickle(connections, b"a")  # fits into a header, a body and a size; into a request line less
    trickle.start()
    took = []
    ends = time.monotonic() + DEADLINE_S + SLACK_S
    while trickle.is_alive() and time.monotonic() < ends:
        took.append(node.say())
        time.sleep(0.01)
    trickle.stop.set()
    trickle.join()
    assert not trickle.open, f"{len(trickle.open)} slow clients are still connected"
    assert max(trickle.lived_s) <= DEADLINE_S + SLACK_S
    took.sort()
    assert len(took) >= 20
    assert took[int(0.9 * len(took))] < 1.0


def closed_after(connection: socket.socket, *, limit_s: float) -> float | None:
    """Seconds until the hub closes the connection; None if it does not in time."""
    began = time.monotonic()
    connection.settimeout(limit_s)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return None
    except ConnectionError:
        pass
    return time.monotonic() - began


@pytest.mark.soak
def test_each_way_to_be_slow_is_noticed(hub: ServedHub) -> None:
    """Even if they send nothing more."""
    connections = [hub.connect() for _ in openings()]
    for connection, opening in zip(connections, openings(), strict=True):
        connection.sendall(opening)
    for connection, opening in zip(connections, openings(), strict=True):
        with connection:
            assert closed_after(connection, limit_s=DEADLINE_S + SLACK_S) is not None, opening


def answered(connection: socket.socket) -> bool:
    """Whether the complete response about the hub has arrived."""
    heard = b""
    while not heard.endswith(b"}"):
        piece = connection.recv(65536)
        if not piece:
            return False
        heard += piece
    return heard.startswith(b"HTTP/1.1 200")


@pytest.mark.soak
def test_a_kept_connection_is_no_licence_to_be_slow(hub: ServedHub) -> None:
    with hub.connect() as connection:
        connection.sendall(HEADERS + b"\r\n")
        assert answered(connection)
        connection.sendall(b"\r\n\r\n")  # lines that begin nothing
        connection.sendall(HEADERS)
        assert closed_after(connection, limit_s=DEADLINE_S + SLACK_S) is not None


@pytest.mark.soak
def test_who_waits_for_an_answer_or_rests_between_requests_is_not_slow(hub: ServedHub, node: Node) -> None:
    with hub.connect() as resting:
        resting.sendall(HEADERS + b"\r\n")
        assert answered(resting)
        assert node.say("/next", wait_ms=3_000) > DEADLINE_S + 1, "it was parked longer than the deadline"
        resting.sendall(HEADERS + b"\r\n")
        assert answered(resting)


@pytest.mark.soak
def test_a_body_of_the_least_speed_is_taken(tmp_path: Path) -> None:
    """A little faster than one kilobyte a second, for longer than the grace period."""
    sent = json.dumps({"code": "x" * 32, "name": "n"}).encode()
    sent += b" " * (5_000 - len(sent))
    with serving(tmp_path, body_grace_s=2) as hub, hub.connect() as connection:
        connection.sendall(POST + b"Content-Length: 5000\r\n\r\n")
        began = time.monotonic()
        for start in range(0, 5_000, 1_000):
            connection.sendall(sent[start : start + 1_000])
            time.sleep(max(0.0, began + 0.5 * (start / 1_000 + 1) - time.monotonic()))
        assert connection.recv(65536).startswith(b"HTTP/1.1 422"), "it was read to its end, and the code is wrong"


@pytest.mark.soak
def test_endless_headers_are_cut_off(hub: ServedHub) -> None:
    with hub.connect() as connection:
        connection.sendall(HEADERS)
        with pytest.raises(ConnectionError):  # noqa: PT012 - whichever of the two notices first
            for _ in range(100):
                connection.sendall(b"X-Long: " + b"a" * 4096 + b"\r\n")
                time.sleep(0.002)
            raise ConnectionError(connection.recv(100))
    assert still_serves(hub)


@pytest.mark.soak
@pytest.mark.parametrize("framing", ["declared", "chunked"])
def test_too_large_a_body_is_refused_and_the_rest_is_not_listened_to(hub: ServedHub, framing: str) -> None:
    megabyte = b" " * 1_000_000
    most = Settings().body_max_bytes
    with hub.connect() as connection:
        if framing == "declared":
            connection.sendall(POST + f"Content-Length: {most + 1}\r\n\r\n".encode())
        else:
            connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
            try:
                for _ in range(most // len(megabyte) + 1):
                    connection.sendall(f"{len(megabyte):x}\r\n".encode() + megabyte + b"\r\n")
            except ConnectionError:
                pass
        assert b" 413 " in connection.recv(65536)
        assert closed_after(connection, limit_s=DEADLINE_S + SLACK_S) is not None
    assert still_serves(hub)


def test_the_slowest_of_too_many_makes_room(tmp_path: Path) -> None:
    with serving(tmp_path, connections_pending_max=20, header_deadline_s=60) as hub:
        silent = [hub.connect() for _ in range(40)]
        try:
            assert httpx2.get(f"http://{hub.address[0]}:{hub.address[1]}/healthz").status_code == 200
            gone = [connection for connection in silent if closed_after(connection, limit_s=0.2) is not None]
            assert len(gone) >= 19
            assert silent[-1] not in gone, "the newest is the last to go"
        finally:
            for connection in silent:
                connection.close()


@pytest.mark.soak
def test_the_limits_that_are_shipped() -> None:
    shipped = Settings()
    assert (shipped.header_deadline_s, shipped.body_grace_s, shipped.body_bytes_per_s_min) == (10, 10, 1024)
    assert shipped.header_max_bytes <= 64 * 1024
