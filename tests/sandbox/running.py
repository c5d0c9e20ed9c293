"""Running one job to its end in a sandbox, and what came of it."""

from __future__ import annotations

import contextlib
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import psutil
import pytest

from computepool.agent.sandbox.backends import runsc
from computepool.agent.sandbox.base import Exit, Limits, SandboxPolicy
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import make_workdir, remove_tree, stage
from computepool.agent.sandbox.supervise import Process

LIMITS = Limits(memory_mb=256, pids=32, cpus=2, wall_s=20, disk_mb=64, tmp_mb=16, open_files=256)
SCRIPTS = [Path(__file__).with_name(name) for name in ("hostile.py", "bombs.py")]
_names = itertools.count()


@dataclass(frozen=True)
class Outcome:
    exit: Exit
    out: str
    err: str
    workdir: Path

    @property
    def got(self) -> dict[str, object]:
        """What a hostile job says it got hold of. Fails if the job did not get to say anything."""
        lines = [line for line in self.out.splitlines() if line.startswith("{")]
        assert lines, f"the job said nothing: {self.exit} {self.out[-500:]} {self.err[-500:]}"
        found = json.loads(lines[-1])
        assert isinstance(found, dict)
        return found


@dataclass(frozen=True)
class Job:
    """A running job, its work folder and its output so far."""

    process: Process
    workdir: Path
    streams: tuple[BinaryIO, BinaryIO]

    def read(self) -> tuple[str, str]:
        for stream in self.streams:
            stream.seek(0)
        out, err = (stream.read(1 << 20).decode(errors="replace") for stream in self.streams)
        return out, err

    def end(self, timeout_s: float = 20) -> Outcome:
        ended = self.process.wait(timeout_s)
        assert ended is not None, "the job did not end"
        return Outcome(ended, *self.read(), self.workdir)


@contextlib.contextmanager
def started(
    sandbox: Sandbox,
    argv: Sequence[str],
    *,
    limits: Limits = LIMITS,
    policy: SandboxPolicy | None = None,
    stdin: bytes = b"",
    prepare: Callable[[Path], None] | None = None,
) -> Iterator[Job]:
    """A running job in a work folder beside the sandbox's cache; everything is cleaned up."""
    workdir = make_workdir(sandbox.config.cache_dir.parent / "work", f"job{next(_names)}")
    try:
        if prepare is not None:
            prepare(workdir)
        with (
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            tempfile.TemporaryFile() as given,
        ):
            given.write(stdin)
            given.seek(0)
            process = sandbox.spawn(
                argv,
                workdir=workdir,
                limits=limits,
                policy=policy or SandboxPolicy(),
                stdin=given.fileno(),
                stdout=out.fileno(),
                stderr=err.fileno(),
            )
            with contextlib.closing(process):
                yield Job(process, workdir, (out, err))
    finally:
        remove_tree(workdir)


def run(sandbox: Sandbox, argv: Sequence[str], **options: Any) -> Outcome:
    with started(sandbox, argv, **options) as job:
        return job.end(60)


def run_python(sandbox: Sandbox, code: str, **options: Any) -> Outcome:
    return run(sandbox, ["python3", "-I", "-c", code], **options)


def attack(sandbox: Sandbox, name: str, *arguments: object, **options: Any) -> Outcome:
    """Run one job of hostile.py or bombs.py in the sandbox."""
    return run(sandbox, hostile(name, *arguments), prepare=stage_hostile, **options)


def hostile(name: str, *arguments: object) -> list[str]:
    """The command of such a job, for a folder where they are."""
    return ["python3", "-I", script_of(name), name, json.dumps(arguments)]


def stage_hostile(workdir: Path) -> None:
    for path in SCRIPTS:
        with stage(workdir, path.name) as script:
            script.write(path.read_bytes())


def script_of(name: str) -> str:
    return next(path.name for path in SCRIPTS if f"\ndef {name}(" in path.read_text())


def alive(marker: str, ground: Path) -> bool:
    """Whether a process called `marker` runs on the host, or a user-space kernel that could have one inside.

    The host cannot see the names of processes in gVisor, so any kernel of these tests counts.
    """
    for process in psutil.process_iter(["cmdline"]):
        first, *rest = process.info["cmdline"] or [""]
        if first == marker or (first.startswith("runsc-") and any(str(ground) in text for text in rest)):
            return True
    return False


def require_runsc() -> None:
    found = runsc.find()
    if isinstance(found, runsc.Missing):
        pytest.skip(found.reason)


def eventually(condition: Callable[[], bool], *, timeout_s: float = 10.0) -> bool:
    """Whether `condition` becomes true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
