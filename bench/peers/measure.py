"""The measurements of every system: many no-op calls, one process per task, and single calls on an idle system.

Standard library only, because it runs in each peer's virtual environment.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Protocol

from bench.quiet import ROOT_PID, tree_cpu_s

SLOTS = 2
TRUE = "/bin/true"
#: The pause between single calls, as in our own measurement: the system is idle, but not asleep.
PAUSE_S = 0.02
WARM_UP = 200
#: No further round starts after this time.
ROUNDS_S = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    calls: int
    processes: int
    singles: int
    rounds: int


FULL = Sizes(calls=5_000, processes=1_000, singles=300, rounds=3)
QUICK = Sizes(calls=200, processes=50, singles=10, rounds=1)


@dataclass(slots=True, kw_only=True)
class Measured:
    """One system's numbers. Fields that do not apply stay empty."""

    name: str
    on_disk: bool = False  #: in this setup, acknowledged work survives a crash
    floor: bool = False  #: not a system, but the limit of the machine
    calls_per_s: list[float] = field(default_factory=list)
    processes_per_s: list[float] = field(default_factory=list)
    boxed_per_s: list[float] = field(default_factory=list)
    call_p50_ms: float | None = None
    call_p99_ms: float | None = None
    cpu_us_per_call: float | None = None  #: of the whole process tree, including servers
    note: str = ""


class System(Protocol):
    """Each method returns when all results have arrived."""

    def calls(self, count: int) -> None: ...
    def processes(self, count: int) -> None: ...
    def call(self) -> None: ...


def noop(number: int) -> int:
    return number


def start_process(_number: int) -> int:
    return subprocess.run([TRUE], stdin=subprocess.DEVNULL, check=True).returncode


def measure(system: System, into: Measured, sizes: Sizes) -> Measured:
    system.calls(min(WARM_UP, sizes.calls))
    cpu = _cpu_s()
    into.calls_per_s = rates(system.calls, sizes.calls, rounds=sizes.rounds)
    into.cpu_us_per_call = (_cpu_s() - cpu) / (sizes.calls * len(into.calls_per_s)) * 1e6
    singles(system.call, into, sizes)
    system.processes(min(WARM_UP, sizes.processes) // 4)
    into.processes_per_s = rates(system.processes, sizes.processes, rounds=sizes.rounds)
    return into


def rates(many: Callable[[int], object], count: int, *, rounds: int) -> list[float]:
    """One rate per round. A slow system or a busy machine gets fewer rounds, not more time."""
    found: list[float] = []
    deadline = time.perf_counter() + ROUNDS_S
    while len(found) < rounds and (not found or time.perf_counter() < deadline):
        began = time.perf_counter()
        many(count)
        found.append(count / (time.perf_counter() - began))
    return found


def singles(one: Callable[[], object], into: Measured, sizes: Sizes) -> None:
    found = []
    for _ in range(sizes.singles):
        time.sleep(PAUSE_S)
        began = time.perf_counter()
        one()
        found.append((time.perf_counter() - began) * 1e3)
    into.call_p50_ms = statistics.median(found)
    into.call_p99_ms = statistics.quantiles(found, n=100, method="inclusive")[98]


def _cpu_s() -> float:
    """Of everything that the benchmark runs, because our parent may have started a system's servers."""
    return tree_cpu_s(int(os.environ.get(ROOT_PID, os.getpid())))


def requested_sizes() -> Sizes:
    return Sizes(**json.loads(sys.argv[1]))


def emit(*systems: Measured) -> None:
    print(json.dumps({"systems": [asdict(system) for system in systems]}), flush=True)
