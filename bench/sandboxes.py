"""What a sandbox costs: starting `true` in it, over a plain process, and work that only computes, beside the same outside.

One at a time, in turns, so that a busy moment of the machine falls on all alike. Starts are judged by their median. A
computation is many turns of a loop that are shorter than a slice of the scheduler, timed by the job itself: what others use
of the machine only ever adds to a turn, so the best of many is what the sandbox itself costs. (Not by the job's processor
clock: that of a user-space kernel moves in steps of 10 ms.) What the whole program took of the processor, seen by the host
and with its start, stands beside it.
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
from computepool.agent.sandbox.base import Limits, ProcessUsage, SandboxPolicy
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import make_workdir, remove_tree
from computepool.agent.sandbox.selftest.selftest import BACKENDS
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.core.isolation import Level

STARTS = 30
#: Programs started at each level, in turns, and turns of the loop in each of them.
COMPUTATIONS = 7
TURNS = 200
ROUNDS = 40_000

TRUE = "/bin/true"
#: Targets, in milliseconds over a plain process.
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
    with _ground() as ground, contextlib.ExitStack() as opened:
        config = SandboxConfig(cache_dir=ground / "cache", runtime=Runtime.prepare(ground / "cache", {}))
        sandboxes: list[Sandbox] = []
        for backend in BACKENDS:
            sandbox: Sandbox = opened.enter_context(contextlib.closing(backend(config)))
            probe = sandbox.probe()
            if probe.ok:
                sandboxes.append(sandbox)
            else:
                print(f"{sandbox.level.label} is not measured: {probe.reason}", file=sys.stderr)
        return [*_starts(sandboxes, ground), *_computations(sandboxes, ground)]


def _starts(sandboxes: list[Sandbox], ground: Path) -> Iterator[Figure]:
    plain: list[float] = []
    boxed: dict[Level, list[float]] = {sandbox.level: [] for sandbox in sandboxes}
    for sandbox in sandboxes:
        _timed(sandbox, [TRUE], ground)  # The first one makes the slot.
    for _ in range(STARTS):
        began = time.perf_counter()
        os.waitpid(os.posix_spawn(TRUE, [TRUE], {}), 0)
        plain.append(time.perf_counter() - began)
        for sandbox in sandboxes:
            boxed[sandbox.level].append(_timed(sandbox, [TRUE], ground))
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


def _computations(sandboxes: list[Sandbox], ground: Path) -> Iterator[Figure]:
    """Level process is the same program on the bare machine."""
    turns: dict[Level, list[float]] = {sandbox.level: [] for sandbox in sandboxes}
    whole: dict[Level, list[int]] = {sandbox.level: [] for sandbox in sandboxes}
    for number in range(COMPUTATIONS):
        first = number % len(sandboxes)  # None of them always follows the same other.
        for sandbox in sandboxes[first:] + sandboxes[:first]:
            with tempfile.TemporaryFile() as out:
                argv = ["python3", "-I", "-c", _LOOP, str(TURNS), str(ROUNDS)]
                _, used = _run(sandbox, argv, ground, stdout=out.fileno())
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


def _timed(sandbox: Sandbox, argv: list[str], ground: Path) -> float:
    return _run(sandbox, argv, ground)[0]


def _run(
    sandbox: Sandbox, argv: list[str], ground: Path, *, stdout: int | None = None
) -> tuple[float, ProcessUsage]:
    """How long it took from being asked for to its end, in seconds, and what it used."""
    workdir = make_workdir(ground / "work", "job")
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
def _ground() -> Iterator[Path]:
    """A folder that every user can pass: a root agent's jobs run as another."""
    folder = Path(tempfile.mkdtemp(prefix="computepool-bench-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        remove_tree(folder)


if __name__ == "__main__":
    for figure in run():
        print(figure)
