"""The time of short commands, as whole processes against a hub with one node on this machine."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.processes import agent_process, hub_process
from bench.table import Figure
from computepool.testing.processes import HubProcess

TIMES = 11
_POOL = (sys.executable, "-m", "computepool.cli")
#: By what a person types: the program, and its target in milliseconds.
COMMANDS: dict[str, tuple[tuple[str, ...], float | None]] = {
    "from computepool import connect": ((sys.executable, "-c", "from computepool import connect"), 150),
    "pool --help": ((*_POOL, "--help"), None),
    "pool nodes": ((*_POOL, "nodes"), 350),
    "pool jobs list": ((*_POOL, "jobs", "list"), 350),
    "pool submit -- true": ((*_POOL, "submit", "--", "true"), 350),
}


def _env(hub: HubProcess) -> dict[str, str]:
    """Compiled files of modules are used, as in an installation."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {
        "COMPUTEPOOL_HUB": hub.url,
        "COMPUTEPOOL_KEY": hub.first.admin_key,
        "COMPUTEPOOL_CONFIG": str(hub.folder / "config.toml"),
        "HOME": str(hub.folder),
    }


def _time(program: tuple[str, ...], *, env: dict[str, str], folder: Path) -> float:
    """Milliseconds until the process has ended."""
    began = time.perf_counter()
    subprocess.run(program, env=env, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return (time.perf_counter() - began) * 1e3


def run() -> list[Figure]:
    figures = []
    with hub_process(log_level="warning") as hub, agent_process(hub):
        env = _env(hub)
        for name, (program, target) in COMMANDS.items():
            _time(program, env=env, folder=hub.folder)
            times = [_time(program, env=env, folder=hub.folder) for _ in range(TIMES)]
            figures.append(Figure(name, statistics.median(times), "ms", target=target, lower_is_better=True))
    return figures
