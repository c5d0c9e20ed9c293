"""Runs one part of the benchmark as its own process, bounded in time and without leaving processes behind."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.quiet import ROOT_PID, descendants

ROOT = Path(__file__).resolve().parents[1]
STOP_GRACE_S = 5.0
_SET_CHILD_SUBREAPER = 36
_TAIL_CHARS = 300
_LOOK_S = 0.05


class NotMeasured(RuntimeError):
    """There is no number; the message says why."""


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can be found and stopped."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def result_of(
    command: Sequence[str], *, limit_s: float, grace_s: float = STOP_GRACE_S, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run the command and return the last JSON object that it printed on its own line."""
    before = set(descendants(os.getpid()))
    # The caller's paths would add our packages to a peer's environment.
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    # Files instead of pipes, which stay open as long as any grandchild lives.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**clean, **(env or {}), ROOT_PID: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code = process.wait(max(limit_s, 0.1))
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"not finished within {limit_s:.0f} s") from None
        finally:
            _stop_session(process, grace_s)
            stop_processes(set(descendants(os.getpid())) - before, grace_s=grace_s)
        out.seek(0)
        errors.seek(0)
        return _last_object(code, out.read(), errors.read())


def _last_object(code: int, out: str, errors: str) -> dict[str, Any]:
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if code == 0 and lines:
        found: dict[str, Any] = json.loads(lines[-1])
        return found
    last = (errors.strip() or out.strip() or "it printed nothing").splitlines()[-1]
    raise NotMeasured(f"ended with {code}: {last[-_TAIL_CHARS:]}")


def _stop_session(process: subprocess.Popen[Any], grace_s: float) -> None:
    """Interrupt the child, so that it stops its own servers in order. Kill its session if it does not."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def stop_processes(pids: Iterable[int], *, grace_s: float) -> None:
    """Stop these descendants, first gracefully."""
    left = set(pids)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + grace_s
        while left and time.monotonic() < deadline:
            left = {pid for pid in left if not _gone(pid)}
            if left:
                time.sleep(_LOOK_S)
        if not left:
            return


def _gone(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return pid not in descendants(os.getpid())
