"""What is asked of every system alike: many no-op calls, one process per task, and one call while nothing else runs.

Standard library only: it runs in each peer's own virtual environment.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Protocol

from bench.quiet import ROOT_PID, tree_cpu_s

SLOTS = 2
TRUE = "/bin/true"
#: As long as our own single calls are apart: the system is idle again, not asleep.
PAUSE_S = 0.02
WARM_UP = 200
#: No further round is begun after this.
ROUNDS_S = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    calls: int
    processes: int
    singles: int
    rounds: int


FULL = Sizes(calls=5_000, processes=1_000, singles=100, rounds=3)
QUICK = Sizes(calls=200, processes=50, singles=10, rounds=1)


@dataclass(slots=True, kw_only=True)
class Measured:
    """One system's numbers; what makes no sense for it stays empty."""

    name: str
    on_disk: bool = False  #: acknowledged work survives a crash, as it is set up here
    floor: bool = False  #: not a system, but what the machine allows at most
    calls_per_s: list[float] = field(default_factory=list)
    processes_per_s: list[float] = field(default_factory=list)
    boxed_per_s: list[float] = field(default_factory=list)
    call_p50_ms: float | None = None
    call_p99_ms: float | None = None
    #: Of the whole process tree, servers included.
    cpu_us_per_call: float | None = None
    note: str = ""


class System(Protocol):
    """Each returns only when every result is back."""

    def calls(self, count: int) -> None: ...
    def processes(self, count: int) -> None: ...
    def call(self) -> None: ...


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
    """One rate a round; a slow system or a busy machine gets fewer rounds, not more time."""
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
    """Everything the benchmark runs: the servers of a system may be started by our parent."""
    return tree_cpu_s(int(os.environ.get(ROOT_PID, os.getpid())))


def asked_sizes() -> Sizes:
    return Sizes(**json.loads(sys.argv[1]))


def emit(*systems: Measured) -> None:
    print(json.dumps({"systems": [asdict(system) for system in systems]}), flush=True)
