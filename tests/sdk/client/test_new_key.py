"""A hub of one's own makes a new key when it starts again; programs that wait take it from where the old one was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from computepool import connect
from computepool.sdk.client import transport
from computepool.sdk.client.config import Config, save_config
from computepool.sdk.errors import Unauthenticated

REFUSED = b'{"type":"about:blank","title":"no","status":401,"code":"unauthenticated","detail":"This key was revoked."}'


class KeyHub(ThreadingHTTPServer):
    """Takes one key, and remembers which ones it was shown."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.key = "cp_first"
        self.shown: list[str] = []
        self.away = 0  #: so many requests are not answered

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        hub = self.server
        assert isinstance(hub, KeyHub)
        if hub.away:
            hub.away -= 1
            self.close_connection = True
            return
        shown = self.headers["Authorization"].removeprefix("Bearer ")
        hub.shown.append(shown)
        body = b"{}" if shown == hub.key else REFUSED
        self.send_response(200 if shown == hub.key else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyHub]:
    monkeypatch.setattr(transport, "_NEW_KEY_S", 0.2)
    with KeyHub() as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        save_config(Config(hub=hub.url, key="cp_first"))
        yield hub
        hub.shutdown()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_NEW_KEY_S", 5.0)


@pytest.mark.usefixtures("patient")
def test_a_program_that_was_signed_in_goes_on_with_the_new_key(hub: KeyHub) -> None:
    with connect() as pool:
        pool.transport.call("GET", "/me")
        hub.key = "cp_second"
        threading.Timer(0.1, save_config, [Config(hub=hub.url, key="cp_second")]).start()  # a moment too late
        assert pool.transport.call("GET", "/me") == b"{}"
    assert hub.shown == ["cp_first", "cp_first", "cp_second"]


@pytest.mark.usefixtures("patient")
def test_a_program_that_was_started_while_the_hub_was_away_takes_the_new_key(hub: KeyHub) -> None:
    hub.away, hub.key = 1, "cp_second"
    threading.Timer(0.1, save_config, [Config(hub=hub.url, key="cp_second")]).start()
    with connect() as pool:
        assert pool.transport.call("GET", "/me") == b"{}"
    assert hub.shown[-1] == "cp_second"


def test_a_key_that_was_given_is_never_exchanged(hub: KeyHub) -> None:
    with connect(hub.url, "cp_first") as pool:
        pool.transport.call("GET", "/me")
        hub.key = "cp_second"
        save_config(Config(hub=hub.url, key="cp_second"))
        with pytest.raises(Unauthenticated, match="revoked"):
            pool.transport.call("GET", "/me")


def test_the_key_of_another_hub_is_never_shown_to_this_one(hub: KeyHub) -> None:
    with connect() as pool:
        pool.transport.call("GET", "/me")
        hub.key = "cp_other"
        save_config(Config(hub="http://127.0.0.1:1", key="cp_other"))
        with pytest.raises(Unauthenticated):
            pool.transport.call("GET", "/me")
    assert "cp_other" not in hub.shown


def test_somebody_who_never_was_signed_in_is_told_at_once(hub: KeyHub) -> None:
    hub.key = "cp_second"
    with connect() as pool, pytest.raises(Unauthenticated):
        pool.transport.call("GET", "/me")
    assert len(hub.shown) == 1
