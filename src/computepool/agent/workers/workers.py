"""Warm workers: the agent's side of sandboxed Python processes that call functions.

A worker serves one account with one set of limits, packages, variables and cards. Everything it sends is untrusted and
checked here.
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
from computepool.agent.execution.attempt_result import is_folder_full
from computepool.agent.execution.specs import WorkerKey
from computepool.agent.network.egress import EgressProxy
from computepool.agent.sandbox.base import Exit, Status
from computepool.agent.sandbox.scratch import stage
from computepool.agent.sandbox.supervise import Process
from computepool.agent.workers.worker import CALL_FILE, FRAME_MAX, LONG_RESULT, NO_MEMORY, RAISED, READY, RESULT

_log = logging.getLogger(__name__)

_SOCKET_KIND = getattr(socket, "SOCK_SEQPACKET", socket.SOCK_DGRAM)
_KINDS = frozenset({READY, RESULT, LONG_RESULT, RAISED, NO_MEMORY})
_STREAMS = ("stdout", "stderr")
#: More than is ever kept of the output of one call.
_READ_MAX = 8 * MIB
#: A worker with larger output files is replaced when it is idle.
OUTPUT_FILE_MAX = 32 * MIB
#: Replies to handle before yielding to the event loop.
_BURST = 256
#: How long a worker that ended may have had a call that counts as unread. A function can change its worker so that it
#: acts on the next call without taking it from the channel.
_UNREAD_S = 10.0
_NUMBER_MAX = 2**53
#: A call cannot be written to a file: a function took its name, or removed the folder.
_FILE_BLOCKED = (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError)
#: A worker that closed its channel and did not end in this time was tampered with by a function. A busy machine takes
#: seconds to end one, and a false accusation would hide how the job ended.
_SILENT_S = 10.0
_NOT_TAKEN = Exit(Status.CANCELLED, -1)
_VANISHED = Exit(Status.SANDBOX_ERROR, -1, "the worker could not be killed")


class OnOutput(Protocol):
    def __call__(self, stream: str, data: bytes, *, skipped: int) -> None:
        """`skipped`: the number of further bytes that were written but not read."""


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
    brings: str | None  #: the digest of the function that the message contains, if any
    on_output: OnOutput
    on_ready: Callable[[], None]  #: called when a worker that was starting when the call was sent begins with it
    sent_at: float = 0.0


@dataclass(eq=False, kw_only=True)
class WorkerHandle:
    """The agent's side of one worker process. Calls are served strictly in the order they were sent."""

    process: Process
    key: WorkerKey
    channel: socket.socket
    worker_end: socket.socket  #: the worker's end of the channel
    files: tuple[int, int]  #: standard output and standard error
    workdir: Path
    proxy: EgressProxy | None  #: for jobs that listed hosts; closed with the worker
    clock: AgentClock
    on_closed: Callable[[WorkerHandle], None]

    def __post_init__(self) -> None:
        self.ready = False
        self.started_at = self.idle_since = self.clock.steady()
        self.served = 0
        self.last_call_s: float | None = None
        self.functions: set[str] = set()
        self.ended: Exit | None = None
        self.tampered = False  #: a function sent replies in the worker's name, or kept it from replying
        self.late = False  #: it was ended because it was not ready in time
        self._pinned: tuple[tuple[int, ...], float] = ((), 0.0)
        self._read_to = [0, 0]
        self._calls: deque[Call] = deque()
        self._seq = 0
        self._last_reply_at = self.started_at
        self._silent_since: float | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.channel.fileno(), self._read_replies)
        self._loop.add_reader(self.process.fileno(), self._on_end)

    @property
    def alive(self) -> bool:
        return self.ended is None

    @property
    def takes_calls(self) -> bool:
        return self.ended is None and not self.tampered and self._silent_since is None

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
        if not self.takes_calls:
            return False
        message = call.message
        try:
            if len(message) > FRAME_MAX:
                with stage(self.workdir, CALL_FILE.format(call.seq)) as file:
                    file.write(message)
                message = json.dumps([call.seq]).encode()
            self.channel.send(message)
        except BlockingIOError:
            return False
        except ConnectionError:
            self._fall_silent()
            return False
        except _FILE_BLOCKED as error:
            self._kill_tampered(f"took the name of a call ({error.strerror})")
            return False
        except OSError as error:
            if not is_folder_full(error, self.workdir):
                raise
            with contextlib.suppress(OSError):
                (self.workdir / CALL_FILE.format(call.seq)).unlink()
            return False
        if call.brings is not None:
            self.functions.add(call.brings)
        call.sent_at = self.clock.steady()
        self._calls.append(call)
        return True

    def lose(self, call: Call) -> None:
        """Let a call end as this worker does, which cannot take it and has taken none before."""
        if self.ended is not None:
            call.future.set_result(Lost(self.ended, started=True))
            return
        self._calls.append(call)
        if self.takes_calls:
            self.kill(Status.DISK_LIMIT)

    def recall(self, *, but: Call | None) -> list[Call]:
        """Take back calls that have not started, by reading them from the worker's end of the channel.

        `but`: the awaited call, which is sent again if the worker had not read it.
        """
        if self.ended is not None:
            return []  # They were reported as lost.
        calls = [self._calls.pop() for _ in range(min(self._take_back(), len(self._calls)))]
        for call in calls:
            if call.brings is not None:
                self.functions.discard(call.brings)
            if len(call.message) > FRAME_MAX:
                with contextlib.suppress(OSError):  # A function may have put anything in its place.
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
            while self.worker_end.recv(FRAME_MAX + 1, socket.MSG_DONTWAIT):
                back += 1
        return back

    def kill(self, status: Status) -> None:
        self._read_replies()  # A reply that has arrived counts.
        if self.ended is None:
            self.process.kill(status)

    def give_up(self) -> None:
        """End a worker that was not ready in time."""
        self.late = True
        self.kill(Status.SANDBOX_ERROR)

    def stop_call(self, call: Call, status: Status) -> None:
        """End the worker, unless the call has ended: the next call must not be stopped."""
        self._read_replies()
        if not call.future.done():
            self.kill(status)

    def patrol(self, output_max: int) -> None:
        """`output_max`: the disk usage allowed for each output file, which may differ from its size."""
        if self.ended is not None:
            return
        if max(os.fstat(fd).st_blocks for fd in self.files) * 512 > output_max:
            self.kill(Status.OUTPUT_LIMIT)
        self.process.patrol()
        self._on_end()
        if not self.alive or self.tampered or self._silent_since is None:
            return
        if self.clock.steady() - self._silent_since > _SILENT_S:
            self._kill_tampered("closed its channel and did not exit")

    @property
    def cpu_ids(self) -> tuple[int, ...]:
        return self._pinned[0]

    def pin(self, cpu_ids: tuple[int, ...], cores: float) -> None:
        """Costs nothing if the worker is pinned there already."""
        if (cpu_ids, cores) != self._pinned and self.ended is None:
            self._pinned = (cpu_ids, cores)
            self.process.pin(cpu_ids, cpus=cores)

    def close(self) -> None:
        """End the worker and clean up after it."""
        if self.ended is None:
            self.process.kill(Status.CANCELLED)
            exit_ = self.process.wait(2.0)
            self._finish(exit_ or _VANISHED)

    # ------------------------------------------------------------ events
    def _read_replies(self) -> None:
        for _ in range(_BURST):
            if self.tampered or self.ended is not None:
                return
            try:
                data = self.channel.recv(FRAME_MAX + 1)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:
                self._loop.remove_reader(self.channel.fileno())
                self._fall_silent()
                return
            if not self._on_reply(data):
                self._kill_tampered("sent an invalid reply")

    def _fall_silent(self) -> None:
        """The worker closed its end of the channel, perhaps because it is ending."""
        if self._silent_since is None:
            self._silent_since = self.clock.steady()

    def _kill_tampered(self, how: str) -> None:
        _log.warning("a worker of %s %s; killing it", self.key.account, how)
        self.tampered = True
        self._loop.remove_reader(self.channel.fileno())
        self.process.kill(Status.CANCELLED)

    def _on_reply(self, data: bytes) -> bool:
        """False if the reply is invalid."""
        parsed = _parse(data)
        if parsed is None:
            return False
        seq, reply, ends = parsed
        if reply.kind == READY:
            if self.ready:
                return False  # A second one would restart the clock of the running call.
            self.ready = True
            self._last_reply_at = self.clock.steady()
            if self._calls:
                self._calls[0].on_ready()
            return True
        if not self._calls or self._calls[0].seq != seq:
            return False
        if ends != self._read_to:
            sizes = self._sizes()
            self._take_output([min(end, size) for end, size in zip(ends, sizes, strict=True)])
        call = self._calls.popleft()
        now = self.clock.steady()
        self.last_call_s = now - max(self._last_reply_at, call.sent_at)
        self._last_reply_at = now
        self.served += 1
        if not call.future.done():
            call.future.set_result(reply)
        return True

    def poll_output(self) -> None:
        """Hand over what the running call has written so far.

        Sizes are read before replies: what lies between the end of the last answered call and these sizes was then
        written by the first unanswered call.
        """
        if self.ended is not None:
            return
        sizes = self._sizes()
        if sizes != self._read_to:
            self._read_replies()
            if self.ended is None:
                self._take_output(sizes)

    def _sizes(self) -> list[int]:
        return [os.fstat(fd).st_size for fd in self.files]

    def _take_output(self, ends: Sequence[int]) -> None:
        """Hand over the output up to `ends`, which belongs to the first unanswered call."""
        for index, (fd, end) in enumerate(zip(self.files, ends, strict=True)):
            start = self._read_to[index]
            if end <= start:
                continue
            # The rest is only counted.
            data = os.pread(fd, min(end - start, _READ_MAX), start)
            self._read_to[index] = end
            if self._calls and data:
                self._calls[0].on_output(_STREAMS[index], data, skipped=end - start - len(data))

    def _on_end(self) -> None:
        ended = self.process.wait(0)
        if ended is None or self.ended is not None:
            return
        self._read_replies()
        self._take_output(self._sizes())
        self._finish(ended)

    def _finish(self, ended: Exit) -> None:
        self.ended = ended
        started = not self._had_died_before_call()
        for fd in (self.channel.fileno(), self.process.fileno()):
            self._loop.remove_reader(fd)
        self.channel.close()
        self.worker_end.close()
        for fd in self.files:
            os.close(fd)
        self.process.close()
        if self.proxy is not None:
            self.proxy.close()
        calls, self._calls = self._calls, deque()
        for place, call in enumerate(calls):
            if not call.future.done():
                call.future.set_result(Lost(ended, started=started and place == 0))
        self.on_closed(self)

    def _had_died_before_call(self) -> bool:
        """True if even the first unanswered call was sent after the worker had died.

        Never true of a worker that served no call: its first call may have killed it, and would kill the next one.
        """
        if not self.served or not self._calls or self._take_back() < len(self._calls):
            return False
        since = max(self._last_reply_at, self._calls[0].sent_at)
        return self.clock.steady() - since < _UNREAD_S


def channel_pair() -> tuple[socket.socket, socket.socket]:
    agent_end, worker_end = socket.socketpair(socket.AF_UNIX, _SOCKET_KIND)
    agent_end.setblocking(False)
    return agent_end, worker_end


def output_file(folder: Path) -> int:
    """An unnamed file for the standard output or error of a worker.

    Not a pipe: the size of a file at the end of a call says exactly which bytes that call wrote, however quickly the next
    one starts. Other users may write to it, so that a program can open /dev/stdout.
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
