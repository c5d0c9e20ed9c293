"""What attempts write: bounded, decoded, progress lines taken out, and shipped to the hub while they run.

A short attempt never causes a request of its own: what it wrote travels with its report.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import logging
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from computepool.agent.clock import Clock
from computepool.agent.config import AgentLimits
from computepool.agent.hub_client import Backoff, HubClient
from computepool.core.errors import ComputePoolError, RateLimited, Unauthenticated, Unavailable
from computepool.protocol import sealing
from computepool.protocol.nodes import LOG_CHUNK_MAX, LogsRequest, LogText

_log = logging.getLogger(__name__)

STDOUT, STDERR = "stdout", "stderr"
_PROGRESS = b"::progress"
_SIGNALS = (_PROGRESS, b"::checkpoint", b"::move")
_SIGNAL_LINE_MAX = 400
#: Also behind words without a line break: what a job prints must not keep it from saving.
_ASKED = re.compile(
    rb"::(?:checkpoint (?P<name>[A-Za-z0-9_-]{1,64})(?: (?P<progress>[0-9.]{1,16}))?"
    rb"|move (?P<moving>[A-Za-z0-9_-]{1,64}) (?P<host>[^\x00-\x1f\x7f]{1,200}))\r?\n\Z"
)
#: No such line is longer, and what a job prints before it is not searched.
_ASKED_LINE_MAX = 300
#: In what is read at once, so many lines at most are looked up as marks of checkpoints; what follows is output.
_LOOKS_MAX = 1024
_TAIL = 1024
#: A character is up to four bytes, and sealed bytes are sent as base64.
_SEALED_GROWS = 6
#: How long a finished attempt waits for its long output to be taken before it is reported without it.
SETTLE_S = 20.0

NOTHING_PRINTED = hashlib.sha256().hexdigest()
_Decoder = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class Asked:
    """A line that says: a checkpoint lies in the folder of this name."""

    name: str
    progress: float | None  #: as the job said last
    host: str | None  #: where the job wants to go on
    printed: bytes | None = None  #: on standard output, before; None: too much, or a newer one came with it


class LogBuffer:
    """The output of one attempt that is not shipped yet."""

    def __init__(
        self,
        attempt_id: str,
        limits: AgentLimits,
        *,
        printed: bytes | None = b"",
        seal: sealing.Seal | None = None,
        is_mark: Callable[[str, bool], bool] | None = None,
    ) -> None:
        """`printed`: by the attempts that this one goes on from; None: nobody knows any more.

        `is_mark`: whether a line that names this folder, for a move or not, says that one was made; else it is output.
        """
        self.attempt_id = attempt_id
        self._seal = seal
        self._is_mark = is_mark
        self._sealed: dict[str, str] = {}  #: of what was taken last, should it come back
        self.progress: float | None = None
        self.seen_bytes = 0
        self._limits = limits
        self._kept_bytes = 0
        self._truncated = False
        self._decoders = {STDOUT: _Decoder("replace"), STDERR: _Decoder("replace")}
        self._held = b""  #: the start of a stdout line that may become a progress line
        self._line_start = True
        self._pending: deque[tuple[str, str]] = deque()
        self.pending_chars = 0
        self._sha = hashlib.sha256(printed or b"")
        self._known = printed is not None
        self._said: bytearray | None = None if printed is None else bytearray(printed)
        self.asked: list[Asked] = []  #: checkpoints that were made; who sees to them takes them out
        self.stderr_tail = ""  #: the last words, for the sentence that says how it ended

    @property
    def over_limit(self) -> bool:
        return self.seen_bytes > self._limits.output_bytes_max

    def feed(self, stream: str, data: bytes, *, skipped: int = 0) -> None:
        """`skipped`: bytes that followed and were not even read; only when more was read than is kept."""
        self.seen_bytes += len(data) + skipped
        if stream == STDOUT:
            data = self._without_progress(data)
            self._sha.update(data)
            self._remember(data)
        else:
            self.stderr_tail = (self.stderr_tail + data[-_TAIL:].decode(errors="replace"))[-_TAIL:]
        self._keep(stream, data)

    def _remember(self, data: bytes) -> None:
        if self._said is not None:
            self._said += data
            if len(self._said) > self._limits.checkpoint_printed_max:
                self._said = None

    def printed(self) -> str | None:
        """Names all of standard output but the progress lines: what the hub has, unless it was too much."""
        if not self._known:
            return None
        whole = self._sha.copy()
        whole.update(self._held)
        return whole.hexdigest()

    def finish(self) -> None:
        """No more will come: let go of what was held back for a rest that never came."""
        held, self._held = self._held, b""
        self._keep(STDOUT, held)
        for stream, decoder in self._decoders.items():
            self._append(stream, decoder.decode(b"", final=True))

    @property
    def fits_report(self) -> bool:
        limits = self._limits
        return (
            self.pending_chars <= limits.log_inline_chars_max
            and len(self._pending) <= limits.log_inline_chunks_max
        )

    def take(self, chunks_max: int, chars_max: int) -> list[LogText]:
        """The oldest that is pending, within both limits; at least one chunk, unless `chunks_max` is 0."""
        chunks: list[LogText] = []
        self._sealed.clear()
        while self._pending and len(chunks) < chunks_max:
            stream, text = self._pending[0]
            chars_max -= len(text)
            if chunks and chars_max < 0:
                break
            self._pending.popleft()
            self.pending_chars -= len(text)
            text = self._closed(text, stream)
            chunks.append(LogText(attempt_id=self.attempt_id, stream=stream, text=text))
        return chunks

    def _closed(self, text: str, stream: str) -> str:
        if self._seal is None:
            return text
        about = sealing.log_about(self._seal.job_id, self.attempt_id, stream)
        sealed = sealing.seal_text(text, to=self._seal.to, about=about)
        self._sealed[sealed] = text
        return sealed

    def take_rest(self) -> list[LogText]:
        return self.take(len(self._pending), self.pending_chars)

    def untake(self, chunks: list[LogText]) -> None:
        for chunk in reversed(chunks):
            text = self._sealed.get(chunk.text, chunk.text)
            self._pending.appendleft((chunk.stream, text))
            self.pending_chars += len(text)

    def drop_oldest(self) -> None:
        """Until the rest fits into the report."""
        while not self.fits_report:
            _, text = self._pending.popleft()
            self.pending_chars -= len(text)

    def _keep(self, stream: str, data: bytes) -> None:
        if not data or self._truncated:
            return
        room = self._limits.log_bytes_max - self._kept_bytes
        self._kept_bytes += len(data)
        self._append(stream, self._decoders[stream].decode(data[:room]))
        if len(data) > room:
            self._truncated = True
            self._append(stream, f"\n[output truncated: limit {self._limits.log_bytes_max} bytes]\n")

    def _append(self, stream: str, text: str) -> None:
        if not text:
            return
        # A database text cannot hold NUL, and no terminal shows it.
        text = text.replace("\x00", "\ufffd")
        size = min(self._limits.log_chunk_max, LOG_CHUNK_MAX)
        if self._seal is not None:
            size = min(size, LOG_CHUNK_MAX // _SEALED_GROWS)
        self.pending_chars += len(text)
        if self._pending and self._pending[-1][0] == stream:
            last = self._pending[-1][1]
            if len(last) + len(text) <= size:
                self._pending[-1] = (stream, last + text)
                return
        self._pending.extend((stream, text[start : start + size]) for start in range(0, len(text), size))

    def _without_progress(self, data: bytes) -> bytes:
        if not self._held and b"::" not in data and not (self._line_start and data.startswith(b":")):
            self._line_start = data.endswith(b"\n")
            held_from = data.rfind(b"\n") + 1
            if data[held_from:] != b":":
                return data
        data, self._held = self._held + data, b""
        kept: list[bytes] = []
        asked_at = None
        looks = _LOOKS_MAX
        for line in data.splitlines(keepends=True):
            if self._line_start and line.startswith(_PROGRESS) and line.endswith(b"\n"):
                self._set_progress(line[len(_PROGRESS) :])
                continue
            if looks and (found := self._looks_asked(line)) is not None:
                looks -= 1
                if self._names_one(found):
                    kept.append(line[: found.start()])
                    self._line_start = self._line_start and found.start() == 0
                    self._ask(found)
                    asked_at = len(kept)
                    continue
            if self._line_start and _may_become_signal(line):
                self._held = line
                break
            kept.append(line)
            self._line_start = line.endswith(b"\n")
        if asked_at is not None:  # Only the newest counts, and a copy for each would be the agent's memory.
            self.asked[-1] = replace(self.asked[-1], printed=self._said_before(kept[:asked_at]))
        return b"".join(kept)

    def _looks_asked(self, line: bytes) -> re.Match[bytes] | None:
        if self._is_mark is None or not line.endswith(b"\n") or b"::" not in line:
            return None
        return _ASKED.search(line, max(0, len(line) - _ASKED_LINE_MAX))

    def _names_one(self, found: re.Match[bytes]) -> bool:
        name, moves = found["name"] or found["moving"], found["host"] is not None
        return self._is_mark is not None and self._is_mark(name.decode(), moves)

    def _said_before(self, kept: list[bytes]) -> bytes | None:
        if self._said is None:
            return None
        said = bytes(self._said) + b"".join(kept)
        return said if len(said) <= self._limits.checkpoint_printed_max else None

    def _ask(self, found: re.Match[bytes]) -> None:
        if found["host"] is not None:
            host = found["host"].decode(errors="replace").strip()
            self.asked.append(Asked(found["moving"].decode(), self.progress, host))
            return
        if found["progress"] is not None:
            self._set_progress(found["progress"])
        self.asked.append(Asked(found["name"].decode(), self.progress, None))

    def _set_progress(self, text: bytes) -> None:
        try:
            value = float(text)
        except ValueError:
            return
        if value == value:  # not NaN
            self.progress = min(1.0, max(0.0, value))


def _may_become_signal(line: bytes) -> bool:
    return (
        not line.endswith(b"\n")
        and len(line) < _SIGNAL_LINE_MAX
        and any(signal.startswith(line) or line.startswith(signal) for signal in _SIGNALS)
    )


class LogShipper:
    """One request at a time, at most every `log_flush_s`, with the output of all attempts in it."""

    def __init__(self, client: HubClient, *, clock: Clock, limits: AgentLimits) -> None:
        self._client = client
        self._clock = clock
        self._limits = limits
        self._backoff = Backoff(clock, limits)
        self._dirty: dict[str, LogBuffer] = {}
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._under_way: frozenset[str] = frozenset()

    def touched(self, buffer: LogBuffer) -> None:
        """Something was written; it is shipped with the next request unless the attempt ends before."""
        if buffer.pending_chars and buffer.attempt_id not in self._dirty:
            self._dirty[buffer.attempt_id] = buffer
            self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(self._limits.log_flush_s)
            self._wake.clear()
            while self._dirty:
                async with self._turn:
                    error = await self._ship(list(self._dirty.values()))
                if error is not None:
                    await asyncio.sleep(self._backoff.delay_s(error))

    async def settle(self, buffer: LogBuffer) -> list[LogText]:
        """The last output of a finished attempt, to travel with its report. Ships what is too long for that."""
        buffer.finish()
        deadline = self._clock.steady() + SETTLE_S
        while not buffer.fits_report:
            async with self._turn:
                error = await self._ship([buffer])
            if error is not None and self._clock.steady() > deadline:
                buffer.drop_oldest()
            elif error is not None:
                await asyncio.sleep(min(1.0, self._backoff.delay_s(error)))
        while buffer.attempt_id in self._under_way:  # Chunks are numbered as they arrive: no overtaking.
            async with self._turn:
                pass
        self._dirty.pop(buffer.attempt_id, None)
        return buffer.take_rest()

    async def _ship(self, buffers: list[LogBuffer]) -> ComputePoolError | None:
        taken: list[tuple[LogBuffer, list[LogText]]] = []
        room, chars = self._limits.log_request_chunks_max, self._limits.log_request_chars_max
        for buffer in buffers:
            chunks = buffer.take(room, chars)
            if not buffer.pending_chars:
                self._dirty.pop(buffer.attempt_id, None)
            taken.append((buffer, chunks))
            room -= len(chunks)
            chars -= sum(len(chunk.text) for chunk in chunks)
            if room <= 0 or chars <= 0:
                break
        request = LogsRequest(chunks=[chunk for _, chunks in taken for chunk in chunks])
        if not request.chunks:
            return None
        self._under_way = frozenset(buffer.attempt_id for buffer, chunks in taken if chunks)
        try:
            await self._client.logs(request)
        except (Unavailable, RateLimited, Unauthenticated) as error:
            for buffer, chunks in taken:
                buffer.untake(chunks)
                self._dirty[buffer.attempt_id] = buffer
            return error
        except ComputePoolError as error:
            _log.warning("the hub does not take output: %s", error.detail)
        finally:
            self._under_way = frozenset()
        self._backoff.reset()
        return None
