"""The program inside the sandbox between a job and the agent's proxy.

Runs as a script with the standard library alone: listens on the sandbox's loopback, starts the job, and copies bytes to
and from the unix socket that the agent mounted. It enforces nothing; a job that replaces it gains nothing. It ends with
the job, with the job's exit code.

    python3 -I -S egress_shim.py SOCKET COMMAND [ARGUMENT …]
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys

PORT = 3128
#: Connections at once. The agent's own limit is lower; this one saves the job's descriptors.
_PAIRS_MAX = 256
_CHUNK = 64 * 1024
_CANNOT_RUN = 127


class Flow:
    """One direction of a connection; buffers at most one chunk."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source, self.target = source, target
        self.held = b""
        self.ended = False  #: end of file was passed on to the target

    def read(self) -> None:
        data = self.source.recv(_CHUNK)
        if data:
            self.held = data
            self.write()
        else:
            self.ended = True
            self.target.shutdown(socket.SHUT_WR)

    def write(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.held = self.held[self.target.send(self.held) :]


class Pair:
    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.out, self.back = Flow(near, far), Flow(far, near)

    @property
    def sides(self) -> tuple[tuple[socket.socket, Flow, Flow], ...]:
        """Each socket with the flow that reads it and the one that writes it."""
        return (self.out.source, self.out, self.back), (self.back.source, self.back, self.out)

    @property
    def over(self) -> bool:
        return self.out.ended and self.back.ended


class Shim:
    def __init__(self, address: str) -> None:
        self._address = address
        self._selector = selectors.DefaultSelector()
        self._pairs: set[Pair] = set()
        self._listener = socket.create_server(("127.0.0.1", PORT), backlog=64)
        self._listener.setblocking(False)
        self._woken, self._wakes = socket.socketpair()
        self._woken.setblocking(False)
        self._wakes.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._listen()

    def start(self, argv: list[str]) -> int:
        """Start the job and return its pid. It inherits what is inheritable; our own sockets are not."""
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        pid = os.fork()
        if pid == 0:
            _become(argv)
        return pid

    def serve(self, child: int) -> int:
        """Serve until the child ends; returns its exit code as a shell would."""
        while True:
            for key, events in self._selector.select():
                if key.fileobj is self._woken:
                    with contextlib.suppress(BlockingIOError):
                        self._woken.recv(_CHUNK)
                elif key.fileobj is self._listener:
                    self._accept()
                else:
                    self._move(key.data, events, side=key.fileobj)
            status = _reap(child)
            if status is not None:
                return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def _listen(self) -> None:
        if len(self._pairs) < _PAIRS_MAX and self._listener not in self._selector.get_map():
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _accept(self) -> None:
        try:
            near, _ = self._listener.accept()
        except OSError:
            return
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            far.settimeout(5)
            far.connect(self._address)
        except OSError:
            near.close()
            far.close()
            return
        near.setblocking(False)
        far.setblocking(False)
        pair = Pair(near, far)
        self._pairs.add(pair)
        self._watch(pair)
        if len(self._pairs) >= _PAIRS_MAX:
            self._selector.unregister(self._listener)

    def _move(self, pair: Pair, events: int, *, side: object) -> None:
        if pair not in self._pairs:
            return  # closed by an event of its other side, in the same round
        try:
            for own, reads, writes in pair.sides:
                if own is side and events & selectors.EVENT_WRITE and writes.held:
                    writes.write()
                if own is side and events & selectors.EVENT_READ and not reads.held and not reads.ended:
                    reads.read()
        except OSError:
            self._close(pair)
            return
        if pair.over:
            self._close(pair)
        else:
            self._watch(pair)

    def _watch(self, pair: Pair) -> None:
        for own, reads, writes in pair.sides:
            events = 0 if reads.held or reads.ended else selectors.EVENT_READ
            events |= selectors.EVENT_WRITE if writes.held else 0
            known = own in self._selector.get_map()
            if events and known:
                self._selector.modify(own, events, pair)
            elif events:
                self._selector.register(own, events, pair)
            elif known:
                self._selector.unregister(own)

    def _close(self, pair: Pair) -> None:
        self._pairs.discard(pair)
        for own, _, _ in pair.sides:
            if own in self._selector.get_map():
                self._selector.unregister(own)
            own.close()
        self._listen()


def _become(argv: list[str]) -> None:
    """In the child: exec the job with default signal handling."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()  # `kill 0` in the job must not end this program.
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"computepool: cannot run {argv[0]}: {error.strerror}\n".encode(errors="replace"))
    finally:
        os._exit(_CANNOT_RUN)


def _reap(child: int) -> int | None:
    """The child's wait status, if it ended. Reaps all others too: in gVisor this program is pid 1."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                return status
            if pid == 0:
                break
    return None


def _let_go() -> None:
    """Close the streams that belong to the job."""
    null = os.open(os.devnull, os.O_RDONLY)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


def main() -> None:
    address, argv = sys.argv[1], sys.argv[2:]
    inherited = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]
    shim = Shim(address)
    child = shim.start(argv)
    for fd in inherited:
        # One of them was the listing's own, and its number may be in use again by now: only what is inheritable goes.
        with contextlib.suppress(OSError):
            if os.get_inheritable(fd):
                os.close(fd)
    _let_go()
    os._exit(shim.serve(child))


if __name__ == "__main__":
    main()
