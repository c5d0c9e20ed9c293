"""Notifications of what other hubs of the pool committed (PostgreSQL LISTEN). SQLite has a single hub."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

import psycopg
from sqlalchemy import make_url

from computepool.hub.db.dialect import CHANNEL, KEEPALIVE, is_sqlite

logger = logging.getLogger(__name__)
_RETRY_S = 1.0
_CHECK_S = 0.5


class Listener:
    """Calls `receive(topics)` on the event loop, with `{"*"}` after a gap, when anything may have been missed."""

    def __init__(self, url: str, *, hub_id: str, receive: Callable[[set[str]], None]) -> None:
        self._url = url
        self._hub_id = hub_id
        self._receive = receive
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if not is_sqlite(self._url):
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, args=(loop,), name="store-listen", daemon=True)
            self._thread.start()

    async def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        address = make_url(self._url).set(drivername="postgresql").render_as_string(hide_password=False)
        while not self._stop.is_set():
            try:
                with psycopg.connect(address, autocommit=True, **KEEPALIVE) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    loop.call_soon_threadsafe(self._receive, {"*"})
                    self._forward(connection, loop)
            except psycopg.Error as error:
                logger.warning("store.listen: %s", error)
                self._stop.wait(_RETRY_S)

    def _forward(self, connection: psycopg.Connection[tuple[object, ...]], loop: asyncio.AbstractEventLoop) -> None:
        while not self._stop.is_set():
            for note in connection.notifies(timeout=_CHECK_S):
                sender, *topics = note.payload.split(" ")
                if sender != self._hub_id:
                    loop.call_soon_threadsafe(self._receive, set(topics))
                if self._stop.is_set():
                    return
