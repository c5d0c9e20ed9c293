"""Measures how busy the machine is besides the benchmark, and waits for a limited time until it is quiet.

Standard library only, because it also runs in the peers' virtual environments.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: The cores that other programs may use on a quiet machine.
QUIET_CORES = 0.25
SAMPLE_S = 1.5
#: The environment variable with the process id at the root of everything that the benchmark runs.
ROOT_PID = "BENCH_ROOT_PID"

_TICKS = os.sysconf("SC_CLK_TCK")
#: In /proc/stat: user, nice, system, (idle, iowait,) irq, softirq, steal.
_BUSY_FIELDS = (0, 1, 2, 5, 6, 7)
_PROC = Path("/proc")


def machine_cpu_s() -> float:
    """CPU seconds that the machine was busy since its start."""
    fields = _PROC.joinpath("stat").read_text().partition("\n")[0].split()[1:]
    return sum(int(fields[index]) for index in _BUSY_FIELDS) / _TICKS


def descendants(root: int) -> dict[int, float]:
    """A process and everything it started: process id → CPU seconds, including children that it waited for."""
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = folder.joinpath("stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        pid = int(folder.name)
        children.setdefault(int(fields[1]), []).append(pid)
        spent[pid] = sum(int(field) for field in fields[11:15]) / _TICKS
    found: dict[int, float] = {}
    todo = [root]
    while todo:
        pid = todo.pop()
        found[pid] = spent.get(pid, 0.0)
        todo += children.get(pid, [])
    return found


def tree_cpu_s(root: int) -> float:
    return sum(descendants(root).values())


class Watch:
    """Measures the cores that everything outside our own process tree uses."""

    def __init__(self, root: int | None = None) -> None:
        self._root = root or os.getpid()
        self._began = self._now()

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic(), machine_cpu_s(), tree_cpu_s(self._root)

    def others_cores(self) -> float:
        """The average since the last call."""
        now = self._now()
        passed, machine, ours = (new - old for new, old in zip(now, self._began, strict=True))
        self._began = now
        return max(0.0, (machine - ours) / max(passed, 1e-9))


@dataclass(slots=True)
class Patience:
    """A budget of seconds for waiting, so that all waits together stay bounded."""

    left_s: float
    each_s: float = 30.0
    sample_s: float = SAMPLE_S

    def wait(self, others_cores: Callable[[], float] | None = None) -> tuple[float, float]:
        """Wait until the machine is quiet or the budget is used up. Returns the seconds, and the latest use by others."""
        measure = others_cores or Watch().others_cores
        began = time.monotonic()
        while True:
            time.sleep(self.sample_s)
            seen, waited = measure(), time.monotonic() - began
            if seen < QUIET_CORES or waited >= min(self.left_s, self.each_s):
                self.left_s = max(0.0, self.left_s - waited)
                return waited, seen
