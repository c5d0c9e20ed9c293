"""The cost of sandboxes: starting `true`, compared with a plain process, and pure computation, compared with the same outside.

Levels alternate, so that busy moments of the machine affect all alike. Starts are judged by their median. A computation is
many turns of a loop, each shorter than a time slice of the scheduler and timed by the job itself. Other load can only make
a turn longer, so the best of many turns shows the cost of the sandbox itself. (The job's CPU clock is not used, because in
a user-space kernel it moves in steps of 10 ms.) The notes give the CPU time of the whole program, measured by the host.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.table import Figure
from computepool.agent.sandbox.base import Limits, ProcessUsage, SandboxError, SandboxPolicy
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import make_workdir, remove_tree
from computepool.agent.sandbox.selftest.selftest import BACKENDS
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.core.isolation import Level

STARTS = 30
#: Programs started at each level, and turns of the loop in each of them.
COMPUTATIONS = 7
TURNS = 200
ROUNDS = 40_000

TRUE = "/bin/true"
#: In milliseconds more than a plain process.
START_TARGETS = {Level.NAMESPACE: 25.0, Level.GVISOR: 250.0}
COMPUTE_TARGET = 3.0
_LIMITS = Limits(cpus=0)
_LOOP = """
import sys, time
def work(rounds):
    total = 0
    for number in range(rounds):
        total += number * number % 7
    return total
turns, rounds = map(int, sys.argv[1:])
work(10_000)
taken = []
for _ in range(turns):
    began = time.perf_counter()
    work(rounds)
    taken.append(time.perf_counter() - began)
print(min(taken))
"""


def run() -> list[Figure]:
    with _folder() as folder, contextlib.ExitStack() as opened:
        config = SandboxConfig(cache_dir=folder / "cache", runtime=Runtime.prepare(folder / "cache", {}))
        sandboxes: list[Sandbox] = []
        for level, backend in BACKENDS.items():
            try:
                sandboxes.append(opened.enter_context(contextlib.closing(backend(config))))
            except SandboxError as error:
                print(f"{level.label} is not measured: {error}", file=sys.stderr)
        return [*_starts(sandboxes, folder), *_computations(sandboxes, folder)]


def _starts(sandboxes: list[Sandbox], folder: Path) -> Iterator[Figure]:
    plain: list[float] = []
    boxed: dict[Level, list[float]] = {sandbox.level: [] for sandbox in sandboxes}
    for sandbox in sandboxes:
        _run(sandbox, [TRUE], folder)  # the first one creates the slot
    for _ in range(STARTS):
        began = time.perf_counter()
        os.waitpid(os.posix_spawn(TRUE, [TRUE], {}), 0)
        plain.append(time.perf_counter() - began)
        for sandbox in sandboxes:
            boxed[sandbox.level].append(_run(sandbox, [TRUE], folder)[0])
    base = statistics.median(plain)
    for level, found in boxed.items():
        yield Figure(
            f"start of {TRUE} at {level.label}, over a plain process",
            (statistics.median(found) - base) * 1000,
            "ms",
            target=START_TARGETS.get(level),
            lower_is_better=True,
            note=f"best {(min(found) - min(plain)) * 1000:.1f} ms",
        )


def _computations(sandboxes: list[Sandbox], folder: Path) -> Iterator[Figure]:
    """The level `process` is the program outside of any sandbox."""
    turns: dict[Level, list[float]] = {sandbox.level: [] for sandbox in sandboxes}
    whole: dict[Level, list[int]] = {sandbox.level: [] for sandbox in sandboxes}
    for number in range(COMPUTATIONS):
        first = number % len(sandboxes)  # no level always follows the same other one
        for sandbox in sandboxes[first:] + sandboxes[:first]:
            with tempfile.TemporaryFile() as out:
                argv = ["python3", "-I", "-c", _LOOP, str(TURNS), str(ROUNDS)]
                _, used = _run(sandbox, argv, folder, stdout=out.fileno())
                whole[sandbox.level].append(used.cpu_ms)
                out.seek(0)
                turns[sandbox.level].append(float(out.read()))
    native_s = min(turns[Level.PROCESS])
    for level, taken in turns.items():
        if level is not Level.PROCESS:
            yield Figure(
                f"a Python loop at {level.label}, over the same outside",
                (min(taken) / native_s - 1) * 100,
                "%",
                target=COMPUTE_TARGET,
                lower_is_better=True,
                note=f"{min(taken) * 1000:.2f} ms, outside {native_s * 1000:.2f} ms; the whole program took "
                f"{min(whole[level])} ms of processor, outside {min(whole[Level.PROCESS])} ms",
            )


def _run(sandbox: Sandbox, argv: list[str], folder: Path, *, stdout: int | None = None) -> tuple[float, ProcessUsage]:
    """The seconds from the request to the end, and the resources used."""
    workdir = make_workdir(folder / "work", "job")
    try:
        began = time.perf_counter()
        process = sandbox.spawn(argv, workdir=workdir, limits=_LIMITS, policy=SandboxPolicy(), stdout=stdout)
        with contextlib.closing(process):
            ended = process.wait(60)
            took = time.perf_counter() - began
        if ended is None or not ended.ok:
            raise RuntimeError(f"{argv[0]} at {sandbox.level.label}: {ended}")
        return took, ended.usage
    finally:
        remove_tree(workdir)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder accessible to all users, because the jobs of a root agent run as another user."""
    folder = Path(tempfile.mkdtemp(prefix="computepool-bench-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        remove_tree(folder)
