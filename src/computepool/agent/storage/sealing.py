"""Seals a job's outputs, results and errors before they leave the node."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from computepool.agent.execution.attempt_result import AttemptResult, clean_text
from computepool.core.errors import BadRequest
from computepool.core.jobs.lifecycle import Outcome, Reason
from computepool.protocol import sealing
from computepool.protocol.base import TEXT_MAX
from computepool.protocol.sealing import Seal

_UNSEALED = "the node failed to seal the result, so it did not send it"


@asynccontextmanager
async def sealed_copy(
    read: Callable[[int], bytes], *, seal: Seal, about: Sequence[str], folder: Path
) -> AsyncIterator[tuple[int, int]]:
    """The descriptor and the size of a sealed copy, which is an unnamed file in `folder`."""
    with tempfile.TemporaryFile(dir=folder) as target:
        await asyncio.to_thread(sealing.seal, read, target.write, to=seal.to, about=seal.about(*about))
        target.flush()
        yield target.fileno(), os.fstat(target.fileno()).st_size


class FileSection:
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


def close(result: AttemptResult, seal: Seal | None) -> None:
    """Remove or seal everything readable before the report. A result that is still plain is a bug in the agent."""
    if seal is None:
        return
    result.printed = result.printed_chars = None  # even a digest would let a guess be checked
    if result.result is not None:
        result.result = None
        result.outcome, result.reason, result.error = Outcome.FAILED, Reason.NODE_ERROR, _UNSEALED
    if result.error is not None:
        # The longest message that still fits its field when sealed.
        overhead = sealing.sealed_size(0, seal.about(sealing.ERROR)) + 16 + len(sealing.TEXT_PREFIX)
        bytes_max = TEXT_MAX * 3 // 4 - overhead
        text = clean_text(result.error, bytes_max)
        while len(text.encode()) > bytes_max:
            text = clean_text(text, len(text) * 2 // 3)
        result.error = seal.text(text, sealing.ERROR)
