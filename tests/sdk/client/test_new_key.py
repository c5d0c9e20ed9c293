"""A local hub makes a new key when it restarts; running programs take it from the config file."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest

from computepool import connect
from computepool.core.errors import Unauthenticated
from computepool.sdk.client import transport
from computepool.sdk.client.config import Config, save_config
from tests.sdk.http_server import QuietHandler, running

REFUSED = b'{"type":"about:blank","title":"no","status":401,"code":"unauthenticated","detail":"This key was revoked."}'


class KeyHub(ThreadingHTTPServer):
    """Accepts one key, and records the keys of all requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.key = "cp_first"
        self.received: list[str] = []
        self.dropped = 0  #: requests to drop without a reply

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(QuietHandler):
    server: KeyHub

    def answer(self, body: bytes) -> None:
        if self.server.dropped:
            self.server.dropped -= 1
            self.close_connection = True
            return
        key = self.headers["Authorization"].removeprefix("Bearer ")
        self.server.received.append(key)
        if key == self.server.key:
            self.reply(b"{}")
        else:
            self.reply(REFUSED, status=401)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyHub]:
    monkeypatch.setattr(transport, "_NEW_KEY_S", 0.2)
    with running(KeyHub()) as hub:
        save_config(Config(hub=hub.url, key="cp_first"))
        yield hub


@pytest.fixture
def late_key(hub: KeyHub, monkeypatch: pytest.MonkeyPatch) -> threading.Timer:
    """Stores the hub's second key a moment after the hub demands it."""
    monkeypatch.setattr(transport, "_NEW_KEY_S", 10.0)
    return threading.Timer(0.1, save_config, [Config(hub=hub.url, key="cp_second")])


def test_a_signed_in_program_continues_with_the_new_key(hub: KeyHub, late_key: threading.Timer) -> None:
    with connect() as pool:
        pool.transport.call("GET", "/me")
        hub.key = "cp_second"
        late_key.start()
        assert pool.transport.call("GET", "/me") == b"{}"
    assert hub.received == ["cp_first", "cp_first", "cp_second"]


def test_a_program_started_during_an_outage_takes_the_new_key(hub: KeyHub, late_key: threading.Timer) -> None:
    hub.dropped, hub.key = 1, "cp_second"
    late_key.start()
    with connect() as pool:
        assert pool.transport.call("GET", "/me") == b"{}"
    assert hub.received[-1] == "cp_second"


def test_an_explicit_key_is_never_replaced(hub: KeyHub) -> None:
    with connect(hub.url, "cp_first") as pool:
        pool.transport.call("GET", "/me")
        hub.key = "cp_second"
        save_config(Config(hub=hub.url, key="cp_second"))
        with pytest.raises(Unauthenticated, match="revoked"):
            pool.transport.call("GET", "/me")


def test_the_key_of_another_hub_is_never_sent(hub: KeyHub) -> None:
    with connect() as pool:
        pool.transport.call("GET", "/me")
        hub.key = "cp_other"
        save_config(Config(hub="http://127.0.0.1:1", key="cp_other"))
        with pytest.raises(Unauthenticated):
            pool.transport.call("GET", "/me")
    assert "cp_other" not in hub.received


def test_a_wrong_first_key_is_refused_at_once(hub: KeyHub) -> None:
    hub.key = "cp_second"
    with connect() as pool, pytest.raises(Unauthenticated):
        pool.transport.call("GET", "/me")
    assert len(hub.received) == 1
