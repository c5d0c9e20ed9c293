"""Child processes of `pool up`: their output goes to log files, and they never outlive their parent.

The parent holds the write end of a pipe. A child reads from the other end, so it notices at once when the parent dies, even
by SIGKILL, and stops.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

PARENT_ENV = "COMPUTEPOOL_PARENT_FD"
#: How long a child may take to stop before it is killed. Most take a second; a node lets its jobs save first.
STOP_S = 30.0
_LOG_KEPT_BYTES = 10_000_000
_TAIL_LINES = 12


class Child:
    """One `pool …` process."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        log: Path,
        pass_fds: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        watched, self._lifeline = os.pipe()
        with _open_log(log) as sink:
            self._log_start = sink.seek(0, os.SEEK_END)  #: before it is the output of earlier starts
            self._process = subprocess.Popen(
                [sys.executable, "-m", "computepool.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {}), PARENT_ENV: str(watched)},
                pass_fds=(watched, *pass_fds),
                # Ctrl-C reaches only the parent, which stops its children in order.
                start_new_session=True,
            )
        os.close(watched)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Terminate; kill if that takes too long."""
        if self.running:
            self._process.terminate()
            self.wait(timeout_s)
        if self.running:
            self._process.kill()
            self._process.wait()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def last_output(self) -> str:
        """The last lines of its log, which usually say why it stopped."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(self._log_start)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])
        return ""


def _open_log(path: Path) -> BinaryIO:
    """At its end, and readable for its owner only: it names accounts and jobs. A log that has become long begins anew."""
    log = open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")  # noqa: SIM115
    os.fchmod(log.fileno(), 0o600)
    if log.seek(0, os.SEEK_END) >= _LOG_KEPT_BYTES:
        log.truncate(0)
        log.seek(0)
    return log


def watch_parent() -> None:
    """In a child: stop when the parent dies. Does nothing if the process was started by hand."""
    text = os.environ.pop(PARENT_ENV, None)
    if text is None:
        return
    lifeline = int(text)
    os.set_inheritable(lifeline, False)
    threading.Thread(target=_stop_after, args=(lifeline,), name="parent-watch", daemon=True).start()


def _stop_after(lifeline: int) -> None:
    while os.read(lifeline, 1):
        continue
    os.kill(os.getpid(), signal.SIGTERM)
    # There is no parent to kill this process if it does not stop.
    threading.Event().wait(STOP_S)
    os._exit(1)
