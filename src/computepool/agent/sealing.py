"""Seals what a job brings back before it leaves the node: outputs, results, and the words of errors and logs.

The sealed copy of a file lies, without a name, on the disk of the agent's own folders until it is sent.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

from computepool.agent.endings import Ending, clean_text
from computepool.core.errors import BadRequest
from computepool.core.jobs import Outcome, Reason
from computepool.protocol import sealing
from computepool.protocol.base import TEXT_MAX
from computepool.protocol.jobs import JobSpec

#: Of an error's words, so that they fit their field when they are sealed.
_ERROR_BYTES_MAX = TEXT_MAX * 3 // 4 - sealing.sealed_size(0) - 16 - len(sealing.TEXT_PREFIX)
_UNSEALED = "the node did not seal what the job brought back, so it sent none of it"


def key_of(spec: JobSpec) -> bytes | None:
    """Whom to seal for; None where nobody asked for it."""
    return None if spec.seal_to is None else sealing.public_bytes(spec.seal_to)


@asynccontextmanager
async def sealed_file(fd: int, size: int, *, to: bytes, folder: Path) -> AsyncIterator[tuple[int, int]]:
    """A descriptor of the sealed copy of a file's first `size` bytes, and the copy's size."""
    with tempfile.TemporaryFile(dir=folder) as target:
        await asyncio.to_thread(sealing.seal, _Section(fd, size).read, target.write, to=to)
        target.flush()
        yield target.fileno(), os.fstat(target.fileno()).st_size


@asynccontextmanager
async def sealed_text(text: str, *, to: bytes, folder: Path) -> AsyncIterator[tuple[int, int]]:
    with tempfile.TemporaryFile(dir=folder) as target:
        sealing.seal(BytesIO(text.encode("utf-8", "replace")).read, target.write, to=to)
        target.flush()
        yield target.fileno(), os.fstat(target.fileno()).st_size


class _Section:
    """The first bytes of a file: one of a job may still grow if something in it survived."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd, self._size, self._at = fd, size, 0

    def read(self, size: int) -> bytes:
        wanted = min(size, self._size - self._at)
        if not wanted:
            return b""
        data = os.pread(self._fd, wanted, self._at)
        if not data:
            raise BadRequest("An output became shorter while it was sealed.")
        self._at += len(data)
        return data


def close(ending: Ending, spec: JobSpec) -> Ending:
    """The last word before the report: nothing readable is left in it. A result that is still plain was a mistake here."""
    to = key_of(spec)
    if to is None:
        return ending
    ending.printed = None  # even its digest would let a guess be checked
    if ending.result is not None:
        ending.result = None
        ending.outcome, ending.reason, ending.error = Outcome.FAILED, Reason.NODE_ERROR, _UNSEALED
    if ending.error is not None:
        words = clean_text(ending.error, _ERROR_BYTES_MAX)
        while len(words.encode()) > _ERROR_BYTES_MAX:
            words = clean_text(words, len(words) * 2 // 3)
        ending.error = sealing.seal_text(words, to=to)
    return ending
