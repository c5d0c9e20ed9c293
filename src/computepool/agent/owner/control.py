"""The control socket of a running agent, for `pool node status|pause|resume|drain|leave`: one JSON line each way.

The socket is in the agent's folder, which only its user may enter; being able to connect is the permission.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from computepool.agent.network.unix_path import short_path
from computepool.agent.storage.cache_usage import CLEARED
from computepool.core.errors import BadRequest, Unavailable

_log = logging.getLogger(__name__)

SOCKET = "agent.sock"
#: Followed by `cache`, for everything, or by a kind of what is cached.
CLEAR = "clear_"
_SLOW = ("rekey", "environments", f"{CLEAR}cache", *(f"{CLEAR}{kind}" for kind in CLEARED))
COMMANDS = ("status", "pause", "resume", "drain", "leave", "leave_now", *_SLOW)
_LINE_MAX = 1024 * 1024
_TIMEOUT_S = 5.0
_SLOW_S = 30.0  #: a new key waits for the disk and the hub, clearing a large cache for the disk

Handler = Callable[[str], Awaitable[dict[str, Any]]]


class ControlServer:
    def __init__(self, data_dir: Path, handler: Handler) -> None:
        self._data_dir = data_dir
        self._handler = handler
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(FileNotFoundError):
            (self._data_dir / SOCKET).unlink()
        with short_path(self._data_dir, SOCKET) as path:
            listener.bind(path)
        (self._data_dir / SOCKET).chmod(0o600)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_LINE_MAX)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            (self._data_dir / SOCKET).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SLOW_S):
                line = await reader.readline()
                writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
                await writer.drain()
        except (TimeoutError, OSError, ValueError) as error:
            _log.debug("control connection ended: %s", error)
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            command = request["do"]
        except (ValueError, KeyError, TypeError):
            return {"error": 'send one line of JSON: {"do": "status"}'}
        if command not in COMMANDS:
            return {"error": f"unknown command; choose one of {', '.join(COMMANDS)}"}
        return await self._handler(command)


def call(data_dir: Path, command: str) -> dict[str, Any]:
    """Send a command to the agent that runs on `data_dir`. Raises Unavailable if none does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_SLOW_S if command in _SLOW else _TIMEOUT_S)
    with connection:
        try:
            with short_path(data_dir, SOCKET) as path:
                connection.connect(path)
            connection.sendall(json.dumps({"do": command}).encode() + b"\n")
            line = connection.makefile("rb").readline(_LINE_MAX)
        except PermissionError as error:
            raise Unavailable(f"The agent in {data_dir} belongs to another user; run this as that user.") from error
        except OSError as error:
            raise Unavailable(f"No agent is running in {data_dir}; start it with `pool node start`.") from error
    try:
        reply: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise Unavailable("The agent did not answer; it may be stopping.") from error
    if "error" in reply:
        raise BadRequest(str(reply["error"]))
    return reply
