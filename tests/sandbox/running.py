"""Runs jobs in real sandboxes, and waits for what happens."""

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
from computepool.agent.sandbox.base import Exit, Limits, SandboxError, SandboxPolicy
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import make_workdir, remove_tree, stage
from computepool.agent.sandbox.selftest.selftest import BACKENDS
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.agent.sandbox.supervise import Process
from computepool.core.isolation import Level

LIMITS = Limits(memory_mb=256, pids=32, cpus=2, wall_s=60, disk_mb=64, tmp_mb=16, open_files=256)
SCRIPTS = [Path(__file__).with_name(name) for name in ("hostile.py", "bombs.py")]
_names = itertools.count()


@dataclass(frozen=True)
class Outcome:
    exit: Exit | None  #: None if the job ran without a sandbox
    out: str
    err: str

    @property
    def got(self) -> dict[str, Any]:
        """What a hostile job reports that it got. Fails if the job could not report."""
        lines = [line for line in self.out.splitlines() if line.startswith("{")]
        assert lines, f"the job reported nothing: {self.exit} {self.out[-500:]} {self.err[-500:]}"
        return json.loads(lines[-1])


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

    def end(self, timeout_s: float = 120) -> Outcome:
        ended = self.process.wait(timeout_s)
        assert ended is not None, "the job did not end"
        return Outcome(ended, *self.read())


@contextlib.contextmanager
def started(
    sandbox: Sandbox,
    argv: Sequence[str],
    *,
    limits: Limits = LIMITS,
    policy: SandboxPolicy | None = None,
    stdin: int | None = None,
    workdir: Path | None = None,
    prepare: Callable[[Path], None] = lambda _: None,
) -> Iterator[Job]:
    """A running job, by default in a work folder beside the sandbox's cache. Cleans up everything."""
    folder = workdir or make_workdir(sandbox.config.cache_dir.parent / "work", f"job{next(_names)}")
    try:
        prepare(folder)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = sandbox.spawn(
                argv,
                workdir=folder,
                limits=limits,
                policy=policy or SandboxPolicy(),
                stdin=stdin,
                stdout=out.fileno(),
                stderr=err.fileno(),
            )
            with contextlib.closing(process):
                yield Job(process, folder, (out, err))
    finally:
        if workdir is None:
            remove_tree(folder)


def run(sandbox: Sandbox, argv: Sequence[str], **options: Any) -> Outcome:
    with started(sandbox, argv, **options) as job:
        return job.end()


def run_python(sandbox: Sandbox, code: str, **options: Any) -> Outcome:
    return run(sandbox, ["python3", "-I", "-c", code], **options)


def started_attack(
    sandbox: Sandbox, name: str, *arguments: object, **options: Any
) -> contextlib.AbstractContextManager[Job]:
    """A running job of hostile.py or bombs.py."""
    script = next(path.name for path in SCRIPTS if f"\ndef {name}(" in path.read_text())
    argv = ["python3", "-I", script, name, json.dumps(arguments)]
    return started(sandbox, argv, prepare=stage_hostile, **options)


def attack(sandbox: Sandbox, name: str, *arguments: object, **options: Any) -> Outcome:
    with started_attack(sandbox, name, *arguments, **options) as job:
        return job.end()


def stage_hostile(workdir: Path) -> None:
    for path in SCRIPTS:
        with stage(workdir, path.name) as script:
            script.write(path.read_bytes())


def is_alive(marker: str, ground: Path) -> bool:
    """True if a process called `marker` runs on the host, or a user-space kernel in which it could run.

    The host cannot see the names of processes in gVisor, so any kernel of these tests counts.
    """
    for process in psutil.process_iter(["cmdline"]):
        first, *rest = process.info["cmdline"] or [""]
        if first == marker or (first.startswith("runsc-") and any(str(ground) in text for text in rest)):
            return True
    return False


def make_sandbox(level: Level, config: SandboxConfig) -> Sandbox:
    """Skips the test if the program of this level is not installed."""
    try:
        return BACKENDS[level](config)
    except SandboxError as error:
        if not error.fix:
            raise
        pytest.skip(str(error))


def has_runsc() -> bool:
    try:
        runsc.find()
    except SandboxError:
        return False
    return True


def eventually(condition: Callable[[], bool], *, timeout_s: float = 60) -> bool:
    """True as soon as `condition` is; False after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
