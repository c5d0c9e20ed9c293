"""Seals a job's outputs, results, errors and logs before they leave the node.

The sealed copy of a file is an unnamed file in the agent's own folders until it is sent.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

from computepool.agent.execution.attempt_result import AttemptResult, clean_text
from computepool.core.errors import BadRequest
from computepool.core.jobs.lifecycle import Outcome, Reason
from computepool.protocol import sealing
from computepool.protocol.base import TEXT_MAX
from computepool.protocol.jobs.jobs import JobSpec
from computepool.protocol.sealing import About, Seal

_UNSEALED = "the node failed to seal the result, so it did not send it"


def seal_of(spec: JobSpec, job_id: str) -> Seal | None:
    """The recipient's seal; None if the job is not sealed."""
    return None if spec.seal_to is None else Seal(sealing.public_bytes(spec.seal_to), job_id)


@asynccontextmanager
async def sealed_file(
    fd: int, size: int, *, to: bytes, about: About, folder: Path
) -> AsyncIterator[tuple[int, int]]:
    """A descriptor of the sealed copy of a file's first `size` bytes, and the copy's size."""
    with tempfile.TemporaryFile(dir=folder) as target:
        await asyncio.to_thread(sealing.seal, _Section(fd, size).read, target.write, to=to, about=about)
        target.flush()
        yield target.fileno(), os.fstat(target.fileno()).st_size


@asynccontextmanager
async def sealed_result(text: str, *, seal: Seal, folder: Path) -> AsyncIterator[tuple[int, int]]:
    with tempfile.TemporaryFile(dir=folder) as target:
        source = BytesIO(text.encode("utf-8", "replace"))
        sealing.seal(source.read, target.write, to=seal.to, about=seal.about(sealing.RESULT))
        target.flush()
        yield target.fileno(), os.fstat(target.fileno()).st_size


class _Section:
    """The first bytes of a file: a job's file may still grow if a process survived."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd, self._size, self._at = fd, size, 0

    def read(self, size: int) -> bytes:
        count = min(size, self._size - self._at)
        if not count:
            return b""
        data = os.pread(self._fd, count, self._at)
        if not data:
            raise BadRequest("An output was truncated while it was sealed.")
        self._at += len(data)
        return data


def close(ending: AttemptResult, spec: JobSpec, job_id: str) -> AttemptResult:
    """Remove or seal everything readable before the report. A result that is still plain is a bug in the agent."""
    seal = seal_of(spec, job_id)
    if seal is None:
        return ending
    ending.printed = None  # even its digest would let a guess be checked
    if ending.result is not None:
        ending.result = None
        ending.outcome, ending.reason, ending.error = Outcome.FAILED, Reason.NODE_ERROR, _UNSEALED
    if ending.error is not None:
        room = _room_for_error(seal)
        words = clean_text(ending.error, room)
        while len(words.encode()) > room:
            words = clean_text(words, len(words) * 2 // 3)
        ending.error = seal.text(words, sealing.ERROR)
    return ending


def _room_for_error(seal: Seal) -> int:
    """The length of an error message that still fits its field when sealed."""
    around = sealing.sealed_size(0, seal.about(sealing.ERROR))
    return TEXT_MAX * 3 // 4 - around - 16 - len(sealing.TEXT_PREFIX)
