"""Processes that `pool up` starts: their output goes to files, and they never outlive the one who started them.

The parent keeps the writing end of a pipe; a child that reads its end sees the parent's death at once, even by
SIGKILL, on every system, and stops itself.
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

PARENT_ENV = "COMPUTEPOOL_PARENT_FD"
#: How long a child may take to stop before it is killed. Most are gone in a second; a node lets its jobs save first.
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
        mode = "ab" if log.exists() and log.stat().st_size < _LOG_KEPT_BYTES else "wb"
        self._begun = log.stat().st_size if mode == "ab" else 0  #: before it are the words of earlier starts
        with log.open(mode) as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "computepool.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {}), PARENT_ENV: str(watched)},
                pass_fds=(watched, *pass_fds),
                # Ctrl-C goes to the parent alone, which stops its children in order.
                start_new_session=True,
            )
        os.close(watched)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Ask, wait, and kill only when asking did not help."""
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def last_words(self) -> str:
        """The end of what it wrote, to say why it is gone."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(self._begun)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])
        return ""


def watch_parent() -> None:
    """In a child: stop when the parent is gone. Nothing happens where the process was started by hand."""
    text = os.environ.pop(PARENT_ENV, None)
    if text is None:
        return
    lifeline = int(text)
    os.set_inheritable(lifeline, False)
    threading.Thread(target=_end_with, args=(lifeline,), name="parent-watch", daemon=True).start()


def _end_with(lifeline: int) -> None:
    while os.read(lifeline, 1):
        continue
    os.kill(os.getpid(), signal.SIGTERM)
    # Nobody is left who would insist.
    threading.Event().wait(STOP_S)
    os._exit(1)
