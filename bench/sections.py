"""The parts of a run, one after the other. Each waits for a quiet machine, has a time limit, and reports how it went."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench.children import NotMeasured, result_of
from bench.comparison import merged, ratios
from bench.peers.catalogue import Peer
from bench.peers.measure import FULL, QUICK, Measured, Sizes
from bench.quiet import Patience, Watch
from bench.table import Figure

T = TypeVar("T")

LIMITS_S = {
    "allocation": 150.0,
    "hub_cost": 100.0,
    "nodes": 300.0,
    "growth": 1_500.0,
    "throughput": 100.0,
    "commands": 60.0,
    "groups": 60.0,
    "artifacts": 90.0,
    "money": 120.0,
    "sandboxes": 120.0,
    "floors": 60.0,
}
PEER_LIMIT_S = 80.0
#: The minimum time that makes starting a system worthwhile.
LEAST_S = 5.0


@dataclass(slots=True, kw_only=True)
class Section:
    """The course of one part of the run: its duration, and how busy the machine was with other things."""

    name: str
    waited_s: float = 0.0
    others_before_cores: float = 0.0
    others_meanwhile_cores: float = 0.0
    took_s: float = 0.0
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"  {self.name:<14} not measured: {self.problem}"
        busy = f"{self.others_before_cores:.2f} cores before, {self.others_meanwhile_cores:.2f} meanwhile"
        return f"  {self.name:<14} waited {self.waited_s:4.1f} s, took {self.took_s:5.1f} s; others used {busy}"


@dataclass(slots=True)
class Run:
    """One run of the benchmark, and its results."""

    size: str
    patience: Patience
    deadline: float
    sections: list[Section] = field(default_factory=list)
    figures: list[list[Figure]] = field(default_factory=list)
    systems: list[Measured] = field(default_factory=list)

    @property
    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    def section(self, name: str, work: Callable[[float], T], *, limit_s: float) -> T | None:
        """Wait for a quiet machine, do the work within the limit, and report how it went."""
        section = Section(name=name)
        self.sections.append(section)
        result = None
        try:
            if self.left_s < LEAST_S:
                raise NotMeasured("no time was left")
            section.waited_s, section.others_before_cores = self.patience.wait()
            watch, began = Watch(), time.monotonic()
            result = work(min(limit_s, self.left_s))
            section.took_s = time.monotonic() - began
            section.others_meanwhile_cores = watch.others_cores()
        except NotMeasured as reason:
            section.problem = str(reason)
        print(section, flush=True)
        return result

    def ours(self, name: str) -> None:
        command = [sys.executable, "-m", "bench.ours", name, self.size]
        found = self.section(name, lambda s: result_of(command, limit_s=s), limit_s=LIMITS_S[name])
        if found:
            self.figures.append([Figure(**figure) for figure in found["figures"]])

    def floors(self) -> None:
        command = [sys.executable, "-m", "bench.floors", json.dumps(asdict(self.sizes))]
        found = self.section("floors", lambda s: result_of(command, limit_s=s), limit_s=LIMITS_S["floors"])
        if found:
            self.systems += [Measured(**system) for system in found["systems"]]

    def peer(self, peer: Peer, python: Path) -> None:
        def work(limit_s: float) -> list[Measured]:
            return peer.measure(python, self.sizes, limit_s=limit_s)

        self.systems += self.section(peer.key, work, limit_s=PEER_LIMIT_S) or []

    @property
    def sizes(self) -> Sizes:
        return FULL if self.size == "full" else QUICK

    def results(self) -> dict[str, Any]:
        figures = merged(self.figures)
        return {
            "size": self.size,
            "machine": machine(),
            "sections": [asdict(section) for section in self.sections],
            "figures": [asdict(figure) | {"met": figure.ok} for figure in figures],
            "systems": [asdict(system) for system in self.systems],
            "ratios": [asdict(ratio) | {"ours/theirs": ratio.value} for ratio in ratios(figures, self.systems)],
        }


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
