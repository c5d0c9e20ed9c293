"""DNS lookups by the system's resolver that block nothing else.

A lookup cannot be cancelled, and a hostile name server may answer slowly. So each lookup has a daemon thread of its own, for
which nothing waits, and their number is limited.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence

from computepool.core.network import Address

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]

THREADS_MAX = 16


class Lookups:
    def __init__(self) -> None:
        self._free = asyncio.Semaphore(THREADS_MAX)

    async def resolve(self, host: str, port: int) -> list[Address]:
        """All addresses of a name. Raises OSError."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Address]] = loop.create_future()

        def settle(found: list[Address] | OSError) -> None:
            self._free.release()  # Not earlier: a thread counts even if nothing waits for it.
            if answer.done():
                return
            if isinstance(found, OSError):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        def look_up() -> None:
            found: list[Address] | OSError
            try:
                entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                found = list(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in entries))
            except (OSError, ValueError) as error:
                found = OSError(str(error))
            with contextlib.suppress(RuntimeError):  # The loop may have ended.
                loop.call_soon_threadsafe(settle, found)

        threading.Thread(target=look_up, name="lookup", daemon=True).start()
        return await answer
