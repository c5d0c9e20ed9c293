"""The output of attempts: bounded, decoded, stripped of signal lines, and shipped to the hub while they run.

A short attempt never causes a request of its own: its output travels with its report.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import logging
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace

from computepool.agent.config import AgentLimits
from computepool.agent.context import Node
from computepool.agent.execution.masking import Masker
from computepool.agent.hub_link.hub_client import TRANSIENT
from computepool.core.errors import ComputePoolError
from computepool.protocol import sealing
from computepool.protocol.nodes.nodes import LOG_CHUNK_MAX, LogsRequest, LogText

_log = logging.getLogger(__name__)

STDOUT, STDERR = "stdout", "stderr"
_PROGRESS = b"::progress"
_SIGNALS = (_PROGRESS, b"::checkpoint", b"::move", b"::call")
_SIGNAL_LINE_MAX = 400
#: Also at the end of a line of output: what a job prints must not keep it from saving.
_ANNOUNCEMENT = re.compile(
    rb"::(?:checkpoint (?P<name>[A-Za-z0-9_-]{1,64})(?: (?P<progress>[0-9.]{1,16}))?"
    rb"|call (?P<call>[A-Za-z0-9_-]{1,64})"
    rb"|move (?P<moving>[A-Za-z0-9_-]{1,64}) (?P<host>[^\x00-\x1f\x7f]{1,200}))\r?\n\Z"
)
#: None is longer; output before it is not searched.
_ANNOUNCEMENT_MAX = 300
#: Announcements per read that are looked up on the disk; any further ones are output.
_LOOKUPS_MAX = 1024
_TAIL = 1024
#: A character is up to four bytes, and sealed bytes are sent as base64.
_SEALED_GROWS = 6
#: How long a finished attempt waits for the hub to take its long output.
SETTLE_S = 20.0

_Decoder = codecs.getincrementaldecoder("utf-8")


#: The digest and the length of a text; none if the text is not known as a whole.
PrintedDigest = tuple[str, int] | tuple[None, None]
NOTHING_PRINTED: PrintedDigest = (hashlib.sha256().hexdigest(), 0)


@dataclass(frozen=True, slots=True)
class CheckpointLine:
    """A line by which a job announces the checkpoint with this name."""

    name: str
    progress: float | None  #: as the job last reported
    host: str | None  #: where the job wants to continue
    printed: bytes | None = None  #: standard output before it; None: too much, or a newer checkpoint came with it
    ran_ms: int = 0  #: how long the job had run by then


@dataclass(eq=False)
class LogBuffer:
    """The output of one attempt that has not been shipped yet."""

    attempt_id: str
    limits: AgentLimits
    _: KW_ONLY
    seal: sealing.Seal | None = None
    #: Whether the named checkpoint exists (second argument: it asks for a move); otherwise the line is output.
    is_checkpoint: Callable[[str, bool], bool] | None = None
    is_call: Callable[[str], bool] | None = None  #: the same for a call to the hub

    def __post_init__(self) -> None:
        self.progress: float | None = None
        self.seen_bytes = 0
        self._kept_bytes = 0
        self._truncated = False
        self._decoders = {STDOUT: _Decoder("replace"), STDERR: _Decoder("replace")}
        self._held = b""  #: the start of a stdout line that may become a progress line
        self._line_start = True
        self._pending: deque[tuple[str, str]] = deque()
        self._returned: deque[LogText] = deque()  #: taken but not delivered; they keep their numbers
        self._next_seq = 0
        self.pending_chars = 0
        self._sha = hashlib.sha256()
        self._chars = 0
        self._known = True  #: standard output, as a whole
        self._printed: bytearray | None = bytearray()
        self._resumed = False
        self.checkpoints: list[CheckpointLine] = []  #: announced, until the sink takes them
        self.calls: list[str] = []  #: announced calls to the hub, likewise
        self._maskers: dict[str, Masker] = {}  #: of a job with secrets
        self.stderr_tail = ""  #: for the sentence that says how the attempt ended

    def mask(self, values: Sequence[str]) -> None:
        """Replace these values in all output from now on."""
        self._maskers = {stream: Masker(values) for stream in (STDOUT, STDERR)}

    def resume(self, printed: bytes | None) -> None:
        """Prepend what earlier attempts printed; None if that was too long to keep. Repetitions have no effect."""
        if self._resumed:
            return
        self._resumed = True
        self._known = printed is not None
        self._count(self._decode(STDOUT, printed or b""))
        self._printed = None if printed is None else bytearray(printed)

    def note(self, text: str) -> None:
        """Add a line of the agent's own. It is not part of the job's output, which is counted and compared."""
        self._keep(STDERR, f"[{text}]\n")

    def feed(self, stream: str, data: bytes, *, skipped: int = 0) -> None:
        """`skipped`: bytes that followed and were not read, because they would not be kept."""
        self.seen_bytes += len(data) + skipped
        if (masker := self._maskers.get(stream)) is not None:
            data = masker.feed(data) + (masker.break_off() if skipped else b"")
        self._receive(stream, data)

    def _receive(self, stream: str, data: bytes) -> None:
        if stream == STDOUT:
            data = self._without_signals(data)
            if self._printed is not None:
                self._printed += data
                if len(self._printed) > self.limits.checkpoint_printed_max:
                    self._printed = None
        else:
            self.stderr_tail = (self.stderr_tail + data[-_TAIL:].decode(errors="replace"))[-_TAIL:]
        self._add(stream, self._decode(stream, data))

    def _decode(self, stream: str, data: bytes, *, final: bool = False) -> str:
        # A database text cannot hold NUL, and no terminal shows it.
        return self._decoders[stream].decode(data, final).replace("\x00", "\ufffd")

    def _add(self, stream: str, text: str) -> None:
        if stream == STDOUT:
            self._count(text)
        self._keep(stream, text)

    def _count(self, text: str) -> None:
        """Digest exactly the text that is sent, however long it is."""
        self._sha.update(text.encode())
        self._chars += len(text)

    def printed_digest(self) -> PrintedDigest:
        """Of standard output as the hub receives it, without signal lines. Call it after the last output."""
        self._end(STDOUT)
        return (self._sha.hexdigest(), self._chars) if self._known else (None, None)

    def finish(self) -> None:
        """Call it after the last output: releases a line that was held back because it might become a signal."""
        for stream in self._decoders:
            self._end(stream)

    def _end(self, stream: str) -> None:
        if (masker := self._maskers.get(stream)) is not None and (rest := masker.end()):
            self._receive(stream, rest)
        held = b""
        if stream == STDOUT:
            held, self._held = self._held, b""
        self._add(stream, self._decode(stream, held, final=True))

    @property
    def fits_report(self) -> bool:
        limits = self.limits
        return (
            self.pending_chars <= limits.log_inline_chars_max
            and len(self._returned) + len(self._pending) <= limits.log_inline_chunks_max
        )

    def take(self, chunks_max: int, chars_max: int) -> list[LogText]:
        """The oldest pending chunks within both limits; at least one, unless `chunks_max` is 0."""
        chunks: list[LogText] = []
        while (self._returned or self._pending) and len(chunks) < chunks_max:
            size = len(self._returned[0].text if self._returned else self._pending[0][1])
            chars_max -= size
            if chunks and chars_max < 0:
                break
            self.pending_chars -= size
            chunks.append(self._returned.popleft() if self._returned else self._next_chunk())
        return chunks

    def _next_chunk(self) -> LogText:
        stream, text = self._pending.popleft()
        seq, self._next_seq = self._next_seq, self._next_seq + 1
        if self.seal is not None:
            about = sealing.log_about(self.seal.job_id, self.attempt_id, stream)
            text = sealing.seal_text(text, to=self.seal.to, about=about)
        return LogText(attempt_id=self.attempt_id, stream=stream, text=text, seq=seq)

    def take_rest(self) -> list[LogText]:
        return self.take(len(self._returned) + len(self._pending), self.pending_chars)

    def put_back(self, chunks: list[LogText]) -> None:
        """Call it after a failed request. If the chunks did arrive, the hub recognises them by their numbers."""
        self._returned.extendleft(reversed(chunks))
        self.pending_chars += sum(len(chunk.text) for chunk in chunks)

    def _keep(self, stream: str, text: str) -> None:
        if not text or self._truncated:
            return
        data = text.encode()
        left_bytes = self.limits.log_bytes_max - self._kept_bytes
        self._kept_bytes += len(data)
        if len(data) <= left_bytes:
            self._append(stream, text)
            return
        self._truncated = True
        self._append(stream, data[:left_bytes].decode(errors="ignore"))
        # On stderr, because standard output is counted and compared.
        self._append(STDERR, f"\n[output truncated: limit {self.limits.log_bytes_max} bytes]\n")

    def _append(self, stream: str, text: str) -> None:
        size = min(self.limits.log_chunk_max, LOG_CHUNK_MAX)
        if self.seal is not None:
            size = min(size, LOG_CHUNK_MAX // _SEALED_GROWS)
        self.pending_chars += len(text)
        place = self._mergeable(stream)
        if place is not None and len(self._pending[place][1]) + len(text) <= size:
            self._pending[place] = (stream, self._pending[place][1] + text)
            return
        self._pending.extend((stream, text[start : start + size]) for start in range(0, len(text), size))

    def _mergeable(self, stream: str) -> int | None:
        """The chunk to append to. A job that alternates between streams loses their order, which bounds the number of chunks."""
        depth = 1 if len(self._pending) < self.limits.log_pending_chunks_max else 2
        places = range(-1, -min(depth, len(self._pending)) - 1, -1)
        return next((place for place in places if self._pending[place][0] == stream), None)

    def _without_signals(self, data: bytes) -> bytes:
        if not self._held and b"::" not in data and not (self._line_start and data.startswith(b":")):
            self._line_start = data.endswith(b"\n")
            held_from = data.rfind(b"\n") + 1
            if data[held_from:] != b":":
                return data
        data, self._held = self._held + data, b""
        kept: list[bytes] = []
        announced_at = None
        lookups = _LOOKUPS_MAX
        for line in data.splitlines(keepends=True):
            if self._line_start and line.startswith(_PROGRESS) and line.endswith(b"\n"):
                self._set_progress(line[len(_PROGRESS) :])
                continue
            if lookups and (found := self._match_announcement(line)) is not None:
                lookups -= 1
                if self._is_genuine(found):
                    kept.append(line[: found.start()])
                    self._line_start = self._line_start and found.start() == 0
                    if found["call"] is not None:
                        self.calls.append(found["call"].decode())
                        continue
                    self._add_checkpoint(found)
                    announced_at = len(kept)
                    continue
            if self._line_start and _may_become_signal(line):
                self._held = line
                break
            kept.append(line)
            self._line_start = line.endswith(b"\n")
        if announced_at is not None:  # Only the newest counts; a copy of the output for each would take much memory.
            self.checkpoints[-1] = replace(self.checkpoints[-1], printed=self._printed_text(kept[:announced_at]))
        return b"".join(kept)

    def _match_announcement(self, line: bytes) -> re.Match[bytes] | None:
        if not (self.is_checkpoint or self.is_call) or not line.endswith(b"\n") or b"::" not in line:
            return None
        return _ANNOUNCEMENT.search(line, max(0, len(line) - _ANNOUNCEMENT_MAX))

    def _is_genuine(self, found: re.Match[bytes]) -> bool:
        if found["call"] is not None:
            return self.is_call is not None and self.is_call(found["call"].decode())
        name, moves = found["name"] or found["moving"], found["host"] is not None
        return self.is_checkpoint is not None and self.is_checkpoint(name.decode(), moves)

    def _printed_text(self, kept: list[bytes]) -> bytes | None:
        if self._printed is None:
            return None
        text = bytes(self._printed) + b"".join(kept)
        return text if len(text) <= self.limits.checkpoint_printed_max else None

    def _add_checkpoint(self, found: re.Match[bytes]) -> None:
        host = None if found["host"] is None else found["host"].decode(errors="replace").strip()
        if found["progress"] is not None:
            self._set_progress(found["progress"])
        self.checkpoints.append(CheckpointLine((found["name"] or found["moving"]).decode(), self.progress, host))

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


@dataclass(eq=False)
class LogShipper:
    """Sends the output of all attempts, one request at a time, at most every `log_flush_s`."""

    node: Node

    def __post_init__(self) -> None:
        self._backoff = self.node.client.backoff()
        self._dirty: dict[str, LogBuffer] = {}
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._under_way: frozenset[str] = frozenset()

    def touch(self, buffer: LogBuffer) -> None:
        """Schedule new output for the next request. If the attempt ends before that, its report carries it."""
        if buffer.pending_chars and buffer.attempt_id not in self._dirty:
            self._dirty[buffer.attempt_id] = buffer
            self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(self.node.limits.log_flush_s)
            self._wake.clear()
            while self._dirty:
                async with self._turn:
                    error = await self._ship(list(self._dirty.values()))
                if error is not None:
                    await asyncio.sleep(self._backoff.delay_s(error))

    async def settle(self, buffer: LogBuffer) -> list[LogText]:
        """Return the last output of a finished attempt for its report, after shipping what is too long for one.

        If the hub stays unreachable, all of it is returned: reports are kept on disk.
        """
        buffer.finish()
        deadline = self.node.clock.steady() + SETTLE_S
        while not buffer.fits_report:
            async with self._turn:
                error = await self._ship([buffer])
            if error is not None:
                if self.node.clock.steady() > deadline:
                    break
                await asyncio.sleep(min(1.0, self._backoff.delay_s(error)))
        while buffer.attempt_id in self._under_way:  # The report must not overtake them.
            async with self._turn:
                pass
        self._dirty.pop(buffer.attempt_id, None)
        return buffer.take_rest()

    async def _ship(self, buffers: list[LogBuffer]) -> ComputePoolError | None:
        taken: list[tuple[LogBuffer, list[LogText]]] = []
        count, chars = self.node.limits.log_request_chunks_max, self.node.limits.log_request_chars_max
        for buffer in buffers:
            chunks = buffer.take(count, chars)
            if not buffer.pending_chars:
                self._dirty.pop(buffer.attempt_id, None)
            taken.append((buffer, chunks))
            count -= len(chunks)
            chars -= sum(len(chunk.text) for chunk in chunks)
            if count <= 0 or chars <= 0:
                break
        request = LogsRequest(chunks=[chunk for _, chunks in taken for chunk in chunks])
        if not request.chunks:
            return None
        self._under_way = frozenset(buffer.attempt_id for buffer, chunks in taken if chunks)
        try:
            await self.node.client.logs(request)
        except TRANSIENT as error:
            for buffer, chunks in taken:
                buffer.put_back(chunks)
                self._dirty[buffer.attempt_id] = buffer
            return error
        except ComputePoolError as error:
            _log.warning("the hub refused output: %s", error.detail)
        finally:
            self._under_way = frozenset()
        self._backoff.reset()
        return None
