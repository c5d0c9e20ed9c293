"""A TCP proxy for large transfers: it passes bytes as fast as it can, and breaks every connection at given totals."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Sequence

_BLOCK = 1024 * 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: closing sends RST


class BreakingProxy:
    """`breaks`: after so many bytes, of both directions together, all connections are reset; each once."""

    def __init__(self, port: int, breaks: Sequence[int]) -> None:
        self._hub_port = port
        self._left = sorted(breaks, reverse=True)
        self._passed = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.broken = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.close()
        self._break_all()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                hub = socket.create_connection(("127.0.0.1", self._hub_port))
                threading.Thread(target=self._join, args=(client, hub), daemon=True).start()

    def _join(self, client: socket.socket, hub: socket.socket) -> None:
        with self._lock:
            self._open |= {client, hub}
        back = threading.Thread(target=self._pass, args=(hub, client), daemon=True)
        back.start()
        self._pass(client, hub)
        back.join()
        with self._lock:
            self._open -= {client, hub}
        # Not before nobody uses them: the number of a closed socket is given to the next connection.
        client.close()
        hub.close()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        buffer = memoryview(bytearray(_BLOCK))
        with contextlib.suppress(OSError):
            while size := source.recv_into(buffer):
                sink.sendall(buffer[:size])
                self._count(size)
        _break(source)
        _break(sink)

    def _count(self, size: int) -> None:
        with self._lock:
            self._passed += size
            due = bool(self._left) and self._passed >= self._left[-1]
            if due:
                self._left.pop()
                self.broken += 1
        if due:
            self._break_all()

    def _break_all(self) -> None:
        with self._lock:
            for one in self._open:
                _break(one)


def _break(one: socket.socket) -> None:
    """Wakes whoever reads or writes it; closing it then sends a reset."""
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        one.shutdown(socket.SHUT_RDWR)
