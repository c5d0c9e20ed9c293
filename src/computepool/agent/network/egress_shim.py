"""The program inside the sandbox between a job and the agent's proxy.

A script with the standard library alone. It listens on the sandbox's loopback, starts the job, and copies bytes to and from
the unix socket that the agent mounted. It enforces nothing, so a job that replaces it gains nothing. It ends with the job,
with the job's exit code.

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
#: Connections at once. The agent's limit is lower; this one saves the job's descriptors.
_CONNECTIONS_MAX = 256
_CHUNK = 64 * 1024
_CANNOT_RUN = 127


class End:
    """One end of a connection, and the bytes that wait to be written to it: at most one chunk."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.other = self
        self.pending = b""
        self.ended = False  #: It has sent everything, and the other end knows.

    @property
    def events(self) -> int:
        """What to wait for: what this end sends is read only when the other end has taken everything."""
        read = selectors.EVENT_READ if not self.ended and not self.other.pending else 0
        return read | (selectors.EVENT_WRITE if self.pending else 0)

    def read(self) -> None:
        data = self.sock.recv(_CHUNK)
        if data:
            self.other.pending = data
            self.other.write()
        else:
            self.ended = True
            self.other.sock.shutdown(socket.SHUT_WR)

    def write(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.pending = self.pending[self.sock.send(self.pending) :]


class Shim:
    def __init__(self, address: str) -> None:
        self._address = address
        self._selector = selectors.DefaultSelector()
        self._connections = 0
        self._listener = socket.create_server(("127.0.0.1", PORT), backlog=64)
        self._listener.setblocking(False)
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._wait_for(self._listener, selectors.EVENT_READ)

    def start(self, argv: list[str]) -> int:
        """Start the job and return its pid. It inherits what is inheritable; the shim's own sockets are not."""
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        pid = os.fork()
        if pid == 0:
            _exec(argv)
        return pid

    def serve(self, child: int) -> int:
        """Serve until the child ends; returns its exit code as a shell would."""
        while True:
            for key, events in self._selector.select():
                if key.fileobj is self._wake_reader:
                    with contextlib.suppress(BlockingIOError):
                        self._wake_reader.recv(_CHUNK)
                elif key.fileobj is self._listener:
                    self._accept()
                else:
                    self._move(key.data, events)
            status = _reap(child)
            if status is not None:
                return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def _wait_for(self, sock: socket.socket, events: int, end: End | None = None) -> None:
        known = sock in self._selector.get_map()
        if events and known:
            self._selector.modify(sock, events, end)
        elif events:
            self._selector.register(sock, events, end)
        elif known:
            self._selector.unregister(sock)

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
        ends = End(near), End(far)
        ends[0].other, ends[1].other = ends[1], ends[0]
        for end in ends:
            end.sock.setblocking(False)
            self._wait_for(end.sock, end.events, end)
        self._connections += 1
        if self._connections >= _CONNECTIONS_MAX:
            self._wait_for(self._listener, 0)

    def _move(self, end: End, events: int) -> None:
        if end.sock.fileno() < 0:
            return  # An event of the other end has closed it in this round.
        try:
            if events & end.events & selectors.EVENT_WRITE:
                end.write()
            if events & end.events & selectors.EVENT_READ:
                end.read()
        except OSError:
            end.ended = end.other.ended = True
        over = end.ended and end.other.ended
        for each in (end, end.other):
            self._wait_for(each.sock, 0 if over else each.events, each)
            if over:
                each.sock.close()
        if over:
            self._connections -= 1
            self._wait_for(self._listener, selectors.EVENT_READ)


def _exec(argv: list[str]) -> None:
    """In the child: run the job with default signal handling."""
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
    """The child's wait status, if it has ended. Reaps all others, too: in gVisor this program is pid 1."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                return status
            if pid == 0:
                break
    return None


def main() -> None:
    address, argv = sys.argv[1], sys.argv[2:]
    inherited = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]
    shim = Shim(address)
    child = shim.start(argv)
    for fd in inherited:
        # One was the listing's own, and by now its number may be in use again. Only the job's are inheritable.
        with contextlib.suppress(OSError):
            if os.get_inheritable(fd):
                os.close(fd)
    null = os.open(os.devnull, os.O_RDONLY)
    for stream in (0, 1, 2):
        os.dup2(null, stream)  # These belong to the job.
    os.close(null)
    os._exit(shim.serve(child))


if __name__ == "__main__":
    main()
