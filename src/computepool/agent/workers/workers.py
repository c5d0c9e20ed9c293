"""Warm workers: the agent's side of sandboxed Python processes that call functions.

A worker serves one account with one set of limits, packages, variables and cards, and never another. Everything it sends
is untrusted and checked here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from computepool.agent.clock import AgentClock
from computepool.agent.config import MIB
from computepool.agent.execution.attempt_result import is_full
from computepool.agent.execution.specs import WorkerKey
from computepool.agent.network.egress import EgressProxy
from computepool.agent.sandbox.base import Exit, Status
from computepool.agent.sandbox.scratch import stage
from computepool.agent.sandbox.supervise import Process
from computepool.agent.workers.worker import (
    CALL_FILE,
    FRAME_MAX,
    LONG_RESULT,
    NO_MEMORY,
    RAISED,
    READY,
    RESULT,
)

_log = logging.getLogger(__name__)

_SOCKET_KIND = getattr(socket, "SOCK_SEQPACKET", socket.SOCK_DGRAM)
_KINDS = frozenset({READY, RESULT, LONG_RESULT, RAISED, NO_MEMORY})
_STREAMS = ("stdout", "stderr")
#: More than is ever kept of one call.
_READ_MAX = 8 * MIB
#: A worker whose output files have grown beyond this is replaced when it is idle.
OUTPUT_FILE_MAX = 32 * MIB
#: Answers handled before the event loop gets its turn again.
_BURST = 256
#: How long a call may have been with a worker that ended and still count as unread: a function can
#: change its worker so that the next call is looked at and left where it was.
_UNREAD_S = 10.0
_NUMBER_MAX = 2**53
#: When a call cannot be left as a file: a function took its name, or the folder away.
_IN_THE_WAY = (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError)
#: How long a worker may take to end after its channel was closed, before that was a function's doing. A busy machine
#: takes seconds to end one, and a false accusation would hide how the job ended.
_SILENT_S = 10.0
_NOT_TAKEN = Exit(Status.CANCELLED, -1)
_VANISHED = Exit(Status.SANDBOX_ERROR, -1, "the worker could not be killed")


class OnOutput(Protocol):
    def __call__(self, stream: str, data: bytes, *, skipped: int) -> None:
        """`skipped`: how many more bytes were written but not read."""


class CallReply(NamedTuple):
    kind: str
    text: str
    wall_us: int
    cpu_us: int
    peak_rss_kb: int
    has_outputs: bool
    failed: int = 0  #: items of a bundle that raised


class Lost(NamedTuple):
    """The worker ended instead of answering. Calls are served in order, so only the first can have been running."""

    exit: Exit
    started: bool


@dataclass(slots=True, eq=False)
class Call:
    """One function call on its way. `future` gets the CallReply, or Lost."""

    seq: int
    message: bytes
    future: asyncio.Future[CallReply | Lost]
    #: The digest of the function that this message brings along, if it does.
    brings: str | None
    on_output: OnOutput
    on_ready: Callable[[], None]  #: the worker, which was starting when the call was sent, begins with it
    sent_at: float = 0.0


class WorkerHandle:
    """The agent's side of one worker process. Calls are served strictly in the order they were sent."""

    def __init__(
        self,
        process: Process,
        *,
        key: WorkerKey,
        channel: socket.socket,
        theirs: socket.socket,
        files: tuple[int, int],
        workdir: Path,
        proxy: EgressProxy | None,
        clock: AgentClock,
        on_closed: Callable[[WorkerHandle], None],
    ) -> None:
        self.key = key
        self.workdir = workdir
        self.ready = False
        self.started_at = clock.steady()
        self.idle_since = self.started_at
        self.served = 0
        self.last_call_s: float | None = None
        self.functions: set[str] = set()
        self.ended: Exit | None = None
        self.proxy = proxy  #: for jobs that listed hosts; closed with the worker
        #: The function in it spoke to the agent in the worker's name, or kept it from speaking.
        self.cheated = False
        self.late = False  #: it was ended because it was not ready in time
        self._on_closed = on_closed
        self._process = process
        self._pinned: tuple[tuple[int, ...], float] = ((), 0.0)
        self._channel = channel
        self._theirs = theirs
        self._files = files
        self._read_to = [0, 0]
        self._clock = clock
        self._calls: deque[Call] = deque()
        self._seq = 0
        self._last_answer_at = self.started_at
        self._silent_since: float | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel.fileno(), self._on_answers)
        self._loop.add_reader(process.fileno(), self._on_end)

    @property
    def alive(self) -> bool:
        return self.ended is None

    @property
    def willing(self) -> bool:
        """True if it can take calls at all."""
        return self.ended is None and not self.cheated and self._silent_since is None

    @property
    def output_size(self) -> int:
        return max(self._read_to)

    @property
    def sent(self) -> int:
        """The number of unanswered calls, including the running one."""
        return len(self._calls)

    def next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def send(self, call: Call) -> bool:
        """Send a call; False if the worker is busy, has no room for it, or is gone."""
        if not self.willing:
            return False
        message = call.message
        try:
            if len(message) > FRAME_MAX:
                message = self._as_file(call)
            self._channel.send(message)
        except BlockingIOError:
            return False
        except ConnectionError:
            self._fall_silent()
            return False
        except _IN_THE_WAY as error:
            self._end_cheating(f"took the name of a call ({error.strerror})")
            return False
        except OSError as error:
            if not is_full(error, self.workdir):
                raise
            with contextlib.suppress(OSError):
                (self.workdir / CALL_FILE.format(call.seq)).unlink()
            return False
        if call.brings is not None:
            self.functions.add(call.brings)
        call.sent_at = self._clock.steady()
        self._calls.append(call)
        return True

    def lose(self, call: Call) -> None:
        """End a call like this worker, which cannot take it and never took one."""
        if self.ended is not None:
            call.future.set_result(Lost(self.ended, started=True))
            return
        self._calls.append(call)
        if self.willing:
            self.kill(Status.DISK_LIMIT)

    def recall(self, *, but: Call | None) -> list[Call]:
        """Take back calls that have not started, by reading them from the worker's end of the channel.

        `but`: the awaited call, which is sent again if the worker had not read it.
        """
        if self.ended is not None:
            return []  # they were reported as lost
        calls = [self._calls.pop() for _ in range(min(self._take_back(), len(self._calls)))]
        for call in calls:
            if call.brings is not None:
                self.functions.discard(call.brings)
            if len(call.message) > FRAME_MAX:
                with contextlib.suppress(OSError):  # The function may have put anything in its place.
                    (self.workdir / CALL_FILE.format(call.seq)).unlink()
        if but in calls:
            calls.remove(but)
            if not self.send(but):
                but.future.set_result(Lost(_NOT_TAKEN, started=False))
        return calls[::-1]

    def _take_back(self) -> int:
        """Read back messages that the worker has not read; returns how many."""
        back = 0
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while self._theirs.recv(FRAME_MAX + 1, socket.MSG_DONTWAIT):
                back += 1
        return back

    def kill(self, status: Status) -> None:
        self._on_answers()  # An answer that is already here counts.
        if self.ended is None:
            self._process.kill(status)

    def give_up(self) -> None:
        """End a worker that was not ready in time."""
        self.late = True
        self.kill(Status.SANDBOX_ERROR)

    def stop_call(self, call: Call, status: Status) -> None:
        """Stop this call, but not the next one, by ending the worker."""
        self._on_answers()
        if not call.future.done():
            self.kill(status)

    def patrol(self, output_max: int) -> None:
        """`output_max`: the disk usage allowed for each output file, which may differ from its size."""
        if self.ended is not None:
            return
        if max(os.fstat(fd).st_blocks for fd in self._files) * 512 > output_max:
            self.kill(Status.OUTPUT_LIMIT)
        self._process.patrol()
        self._on_end()
        if not self.alive or self.cheated or self._silent_since is None:
            return
        if self._clock.steady() - self._silent_since > _SILENT_S:
            self._end_cheating("closed its channel and did not exit")

    @property
    def process(self) -> Process | None:
        return self._process if self.ended is None else None

    @property
    def cpu_ids(self) -> tuple[int, ...]:
        return self._pinned[0]

    def pin(self, cpu_ids: tuple[int, ...], cores: float) -> None:
        """Costs nothing if the worker is pinned there already."""
        if (cpu_ids, cores) != self._pinned and self.ended is None:
            self._pinned = (cpu_ids, cores)
            self._process.pin(cpu_ids, cpus=cores)

    def close(self) -> None:
        """End the worker and clean up after it."""
        if self.ended is None:
            self._process.kill(Status.CANCELLED)
            exit_ = self._process.wait(2.0)
            self._finish(exit_ or _VANISHED)

    # ------------------------------------------------------------ events
    def _on_answers(self) -> None:
        for _ in range(_BURST):
            if self.cheated or self.ended is not None:
                return
            try:
                data = self._channel.recv(FRAME_MAX + 1)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:
                self._loop.remove_reader(self._channel.fileno())
                self._fall_silent()
                return
            if not self._on_answer(data):
                self._end_cheating("sent an invalid reply")

    def _fall_silent(self) -> None:
        """The worker closed its end of the channel, which may be the first sign of its end."""
        if self._silent_since is None:
            self._silent_since = self._clock.steady()

    def _end_cheating(self, how: str) -> None:
        _log.warning("a worker of %s %s; killing it", self.key.account, how)
        self.cheated = True
        self._loop.remove_reader(self._channel.fileno())
        self._process.kill(Status.CANCELLED)

    def _on_answer(self, data: bytes) -> bool:
        parsed = _parse(data)
        if parsed is None:
            return False
        seq, answer, ends = parsed
        if answer.kind == READY:
            if self.ready:
                return False  # A second one would restart the clock of the call that runs.
            self.ready = True
            self._last_answer_at = self._clock.steady()
            if self._calls:
                self._calls[0].on_ready()
            return True
        if not self._calls or self._calls[0].seq != seq:
            return False
        if ends != self._read_to:
            sizes = self._sizes()
            self._take_output([min(end, size) for end, size in zip(ends, sizes, strict=True)])
        call = self._calls.popleft()
        now = self._clock.steady()
        self.last_call_s = now - max(self._last_answer_at, call.sent_at)
        self._last_answer_at = now
        self.served += 1
        if not call.future.done():
            call.future.set_result(answer)
        return True

    def poll_output(self) -> None:
        """Hand over what the running call has written so far.

        Sizes are taken first and answers second: what lies between the end of the last answered call and those
        sizes was then written by the first call that has no answer yet.
        """
        if self.ended is not None:
            return
        sizes = self._sizes()
        if sizes != self._read_to:
            self._on_answers()
            if self.ended is None:
                self._take_output(sizes)

    def _sizes(self) -> list[int]:
        return [os.fstat(fd).st_size for fd in self._files]

    def _take_output(self, ends: Sequence[int]) -> None:
        """Everything up to `ends` that was not handed over yet belongs to the first call."""
        for index, (fd, end) in enumerate(zip(self._files, ends, strict=True)):
            start = self._read_to[index]
            if end <= start:
                continue
            # The rest of a flood is only counted.
            data = os.pread(fd, min(end - start, _READ_MAX), start)
            self._read_to[index] = end
            if self._calls and data:
                self._calls[0].on_output(_STREAMS[index], data, skipped=end - start - len(data))

    def _on_end(self) -> None:
        ended = self._process.wait(0)
        if ended is None or self.ended is not None:
            return
        self._on_answers()
        self._take_output(self._sizes())
        self._finish(ended)

    def _finish(self, ended: Exit) -> None:
        self.ended = ended
        started = not self._died_before_the_call()
        for fd in (self._channel.fileno(), self._process.fileno()):
            self._loop.remove_reader(fd)
        self._channel.close()
        self._theirs.close()
        for fd in self._files:
            os.close(fd)
        self._process.close()
        if self.proxy is not None:
            self.proxy.close()
        calls, self._calls = self._calls, deque()
        for place, call in enumerate(calls):
            if not call.future.done():
                call.future.set_result(Lost(ended, started=started and place == 0))
        self._on_closed(self)

    def _died_before_the_call(self) -> bool:
        """True if even the first call was sent to a worker that had already died unnoticed.

        Never true of a worker that served no call: its first call may have killed it, and would again.
        """
        if not self.served or not self._calls or self._take_back() < len(self._calls):
            return False
        since = max(self._last_answer_at, self._calls[0].sent_at)
        return self._clock.steady() - since < _UNREAD_S

    def _as_file(self, call: Call) -> bytes:
        with stage(self.workdir, CALL_FILE.format(call.seq)) as file:
            file.write(call.message)
        return json.dumps([call.seq]).encode()


def channel_pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, _SOCKET_KIND)
    ours.setblocking(False)
    return ours, theirs


def output_file(folder: Path) -> int:
    """An unnamed file for the standard output or error of a worker.

    Not a pipe: with a file, its size at the end of a call says exactly which bytes that call wrote, however quickly
    the next one starts. Others may write it, so that a program may open /dev/stdout.
    """
    path = folder / f".output-{uuid.uuid4().hex}"
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    path.unlink()
    os.fchmod(fd, 0o622)
    return fd


def _parse(data: bytes) -> tuple[int, CallReply, list[int]] | None:
    """Parse a reply; None unless it has exactly the expected shape."""
    try:
        seq, kind, text, wall_us, cpu_us, rss_kb, outputs, stdout, stderr, failed = json.loads(data)
    except (ValueError, TypeError, RecursionError):
        return None
    numbers = (seq, wall_us, cpu_us, rss_kb, stdout, stderr, failed)
    if type(kind) is not str or kind not in _KINDS or type(text) is not str:
        return None
    if any(type(number) is not int or not 0 <= number < _NUMBER_MAX for number in numbers):
        return None
    if type(outputs) is not bool:
        return None
    return seq, CallReply(kind, text, wall_us, cpu_us, rss_kb, outputs, failed), [stdout, stderr]
