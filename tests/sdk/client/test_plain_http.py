"""The client for plain HTTP: connection reuse, quoting, compression, and the limits of its use."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import ThreadingHTTPServer
from socket import MSG_PEEK, socket
from typing import Any

import pytest

from computepool.sdk.client.plain_http import CONNECTION_ERRORS, PlainClient, PlainReply
from tests.sdk.http_server import QuietHandler, running


class Server(ThreadingHTTPServer):
    """Replies with the requested path, and counts connections."""

    connections = 0
    closes = False  #: each connection after its first reply, without saying so
    accepted = ""


class Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def answer(self, body: bytes) -> None:
        self.server.accepted = self.headers["Accept-Encoding"]
        if self.server.accepted == "gzip":
            self.reply(gzip.compress(self.path.encode()), Content_Encoding="gzip")
        else:
            self.reply(self.path.encode())
        self.close_connection = self.server.closes


@pytest.fixture
def server() -> Iterator[Server]:
    with running(Server(("127.0.0.1", 0), Handler)) as server:
        yield server


@contextmanager
def client_of(server: Server, host: str = "127.0.0.1", path: str = "") -> Iterator[PlainClient]:
    url = f"http://{host}:{server.server_port}{path}"
    with closing(PlainClient(url, connect_timeout_s=5, connections_max=2)) as client:
        yield client


def send(
    client: PlainClient, path: str, *, method: str = "GET", params: Any = None, content: bytes | None = None
) -> PlainReply:
    return client.request(method, path, params=params, content=content, headers={}, timeout_s=30)


def test_a_connection_is_reused_until_it_is_closed(server: Server) -> None:
    with client_of(server, path="/below") as client:
        assert send(client, "/a", params={"q": "x y", "n": 1}).text == "/below/a?q=x+y&n=1"
        assert send(client, "/b").text == "/below/b"
        assert server.connections == 1
        client.close()
        assert send(client, "/c").is_success
        assert server.connections == 2


def test_a_connection_that_the_hub_closed_is_replaced(server: Server) -> None:
    server.closes = True
    with client_of(server) as client:
        for _ in range(3):
            send(client, "/a")
            assert client._idle[0].sock.recv(1, MSG_PEEK) == b"", "the server has closed it"
    assert server.connections == 3


def test_paths_are_quoted(server: Server) -> None:
    with client_of(server) as client:
        assert send(client, "/jobs/a b\u00fc%20\n").text == "/jobs/a%20b%C3%BC%20%0A"


@pytest.mark.parametrize(("host", "accepted"), [("127.0.0.1", "identity"), ("0.0.0.0", "gzip")])
def test_replies_are_compressed_only_between_machines(server: Server, host: str, accepted: str) -> None:
    with client_of(server, host) as client:
        assert send(client, "/a").content == b"/a"
    assert server.accepted == accepted


def test_an_absent_hub_raises_a_connection_error(server: Server) -> None:
    server.server_close()
    with client_of(server) as client, pytest.raises(CONNECTION_ERRORS):
        send(client, "/a")


@pytest.mark.parametrize(
    ("url", "proxy", "supported"),
    [
        ("http://hub:8000", "", True),
        ("https://hub", "", False),
        ("http://me:secret@hub", "", False),
        ("http://hub:8000", "http://proxy:3128", False),
    ],
)
def test_tls_proxies_and_passwords_are_left_to_httpx2(
    monkeypatch: pytest.MonkeyPatch, url: str, proxy: str, supported: bool
) -> None:
    for name in ("http_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    assert PlainClient.supports(url) is supported


def test_a_request_is_sent_in_one_write(server: Server) -> None:
    """Two writes would wake the hub twice."""
    writes: list[bytes] = []

    class Recorder:
        def __init__(self, sock: socket) -> None:
            self._sock = sock

        def sendall(self, data: bytes) -> None:
            writes.append(data)
            self._sock.sendall(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._sock, name)

    with client_of(server) as client:
        connection = client._connection()
        connection.sock = Recorder(connection.sock)
        client._idle.append(connection)
        assert send(client, "/a", method="POST", content=b"body").status_code == 200
        assert send(client, "/b").status_code == 200
    assert len(writes) == 2
    assert writes[0].endswith(b"\r\n\r\nbody")
