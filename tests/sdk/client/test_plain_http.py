"""The client for plain HTTP: what it keeps open, what it unpacks, and what it leaves to httpx2."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import MSG_PEEK, socket
from typing import Any

import pytest

from computepool.sdk.client.plain_http import ERRORS, PlainClient, PlainReply


class Server(ThreadingHTTPServer):
    """Answers with the path it was asked for, and counts connections."""

    daemon_threads = True
    connections = 0
    closes = False
    accepted = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        self.server.accepted = self.headers["Accept-Encoding"]
        packed = self.server.accepted == "gzip"
        body = gzip.compress(self.path.encode()) if packed else self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.server.closes  # without a word about it

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


@contextmanager
def client_of(server: Server, host: str = "127.0.0.1", path: str = "") -> Iterator[PlainClient]:
    url = f"http://{host}:{server.server_port}{path}"
    with closing(PlainClient(url, connect_timeout_s=5, connections_max=2)) as client:
        yield client


def get(client: PlainClient, path: str, params: Any = None) -> PlainReply:
    return client.request("GET", path, params=params, content=None, headers={}, timeout_s=30)


def test_a_connection_serves_several_calls(server: Server) -> None:
    with client_of(server, path="/below") as client:
        assert get(client, "/a", {"q": "x y", "n": 1}).text == "/below/a?q=x+y&n=1"
        assert get(client, "/b").text == "/below/b"
        assert server.connections == 1
        client.close()
        assert get(client, "/c").is_success
        assert server.connections == 2


def test_one_that_the_hub_closed_is_replaced(server: Server) -> None:
    server.closes = True
    with client_of(server) as client:
        for _ in range(3):
            get(client, "/a")
            wait_until_closed(client._idle[0].sock)
    assert server.connections == 3


def wait_until_closed(connection: socket) -> None:
    assert connection.recv(1, MSG_PEEK) == b""


def test_what_people_type_is_quoted(server: Server) -> None:
    with client_of(server) as client:
        assert get(client, "/jobs/a b\u00fc%20\n").text == "/jobs/a%20b%C3%BC%20%0A"


@pytest.mark.parametrize(("host", "accepted"), [("127.0.0.1", "identity"), ("0.0.0.0", "gzip")])
def test_what_leaves_the_machine_is_packed(server: Server, host: str, accepted: str) -> None:
    with client_of(server, host) as client:
        assert get(client, "/a").content == b"/a"
    assert server.accepted == accepted


def test_a_hub_that_is_away_is_one_of_the_errors(server: Server) -> None:
    server.server_close()
    with client_of(server) as client, pytest.raises(ERRORS):
        get(client, "/a")


@pytest.mark.parametrize(
    ("url", "proxy", "suits"),
    [
        ("http://hub:8000", "", True),
        ("https://hub", "", False),
        ("http://me:secret@hub", "", False),
        ("http://hub:8000", "http://proxy:3128", False),
    ],
)
def test_tls_proxies_and_passwords_are_left_to_httpx2(
    monkeypatch: pytest.MonkeyPatch, url: str, proxy: str, suits: bool
) -> None:
    for name in ("http_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", proxy)
    assert PlainClient.suits(url) is suits
