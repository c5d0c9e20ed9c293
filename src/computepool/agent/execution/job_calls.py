"""Calls of running jobs to the hub: each call is a file in the job's folder, and the reply is a file beside it.

A job has no network and no key. The agent calls the hub on behalf of that attempt alone, and the hub decides what each
attempt may do. The job's files are untrusted: no link is followed, sizes are bounded, and only paths below the attempt's
own are requested.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from computepool.agent.context import Node
from computepool.agent.execution.attempts import Attempt
from computepool.agent.hub_link.hub_client import retry
from computepool.agent.sandbox.scratch import NEW_FILE
from computepool.agent.storage.sweeper import Sweeper
from computepool.core.errors import BadRequest, ComputePoolError, TooLarge

#: In the work folder.
CALLS = ".calls"
_PATH = re.compile(
    r"messages|groups|jobs|jobs/[A-Za-z0-9_-]{1,64}/(?:cancel|result(?:\?wait_ms=\d{1,5})?)"
    r"|groups/[A-Za-z0-9_-]{1,64}/results\?after=\d{1,18}&wait_ms=\d{1,5}"
)
_WAIT = re.compile(r"wait_ms=(\d+)")


@dataclass(eq=False)
class CallRelay:
    node: Node
    sweeper: Sweeper

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.node.limits.calls_relayed_max)

    def receive(self, attempt: Attempt, names: Sequence[str]) -> None:
        """Relay each call once, although the job announces it until it is answered."""
        calls = attempt.calls = attempt.calls or {}
        for name in names:
            if name not in calls and len(calls) < self.node.limits.calls_open_max:
                calls[name] = asyncio.get_running_loop().create_task(self._answer(attempt, name))

    async def end(self, attempt: Attempt) -> None:
        """Cancel the calls of a finished job and remove their files: a worker's folder outlives the job."""
        if attempt.calls is None:
            return
        tasks = list(attempt.calls.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        folder = None if attempt.workdir is None else attempt.workdir / attempt.folder_name(CALLS)
        if folder is not None and os.path.lexists(folder):
            self.sweeper.remove(folder)

    async def _answer(self, attempt: Attempt, name: str) -> None:
        try:
            async with self._slots:
                body = await self._ask(attempt, name)
            answer: dict[str, Any] = {"body": body}
        except ComputePoolError as error:
            answer = {"error": error.code, "detail": error.detail, "field": error.field}
        except OSError as error:
            answer = {"error": BadRequest.code, "detail": f"The call cannot be read: {error.strerror}."}
        finally:
            assert attempt.calls is not None
            del attempt.calls[name]
        with contextlib.suppress(OSError):  # the job has removed its folder, or its disk is full
            _write(attempt, name, json.dumps(answer).encode())

    async def _ask(self, attempt: Attempt, name: str) -> Any:
        data = _read(attempt, name, self.node.limits.call_bytes_max)
        method, path, body = await asyncio.to_thread(_parse, data)
        wait_ms = int(found[1]) if (found := _WAIT.search(path)) else 0
        timeout_s = wait_ms / 1000 + self.node.limits.poll_slack_s
        relay = partial(
            self.node.client.relay, method, f"/attempts/{attempt.id}/{path}", body=body, timeout_s=timeout_s
        )
        return await retry(relay, self.node.client.backoff())


def _parse(data: bytes) -> tuple[str, str, bytes | None]:
    try:
        fields = json.loads(data)
        method, path, body = fields["method"], fields["path"], fields.get("body")
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadRequest("A call must be a JSON object with method, path and body.") from None
    if method not in ("GET", "POST") or not isinstance(path, str) or not _PATH.fullmatch(path):
        raise BadRequest(f"A job cannot call {str(path)[:80]!r}.")
    return method, path, None if body is None else json.dumps(body).encode()


def is_call(attempt: Attempt, name: str) -> bool:
    """True if there is a file of that name. Any other line that looks like a call is plain output."""
    with contextlib.suppress(OSError), attempt.open_folder(CALLS) as (_, here):
        return stat.S_ISREG(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode)
    return False


def _read(attempt: Attempt, name: str, most: int) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with attempt.open_folder(CALLS) as (_, here):
        fd = os.open(name, flags, dir_fd=here)
        with os.fdopen(fd, "rb") as source:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise BadRequest("A call must be a plain file.")
            data = source.read(most + 1)
    if len(data) > most:
        raise TooLarge(f"A call may have at most {most} bytes.")
    return data


def _write(attempt: Attempt, name: str, data: bytes) -> None:
    """Write under a temporary name, then rename: the job never sees half a reply."""
    building = f".{name}.reply"
    with attempt.open_folder(CALLS) as (_, here):
        with os.fdopen(os.open(building, NEW_FILE, 0o644, dir_fd=here), "wb") as target:
            target.write(data)
        os.rename(building, f"{name}.reply", src_dir_fd=here, dst_dir_fd=here)
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=here)
