"""Real hub and agent processes for benchmarks, and their CPU seconds and memory from /proc."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from computepool.agent.config import AgentConfig
from computepool.testing.processes import READY_S, AgentProcess, HubProcess, shared_cache
from computepool.testing.waiting import wait_until

_TICKS = os.sysconf("SC_CLK_TCK")

#: New processes instead of forks, so that modules loaded earlier do not affect the figures.
FRESH = True


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@contextmanager
def hub_process(**settings: Any) -> Iterator[HubProcess]:
    """A hub on a free port with its own folder. Settings are keyword arguments (interval_min_s=1)."""
    with tempfile.TemporaryDirectory(prefix="computepool-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        hub = HubProcess(folder, fresh=FRESH, **settings)
        try:
            yield hub.start()
        finally:
            hub.end()


@contextmanager
def agent_process(hub: HubProcess, *, sandbox: str = "namespace", cores: float = 2) -> Iterator[int]:
    """A node of the hub's administrator. Yields the agent's process id once the hub knows the node."""
    config = AgentConfig(
        hub_url=hub.url,
        data_dir=hub.folder / "node",
        name="bench",
        code=hub.first.enrol_code,
        sandbox=sandbox,
        cores=cores,
    )
    agent = AgentProcess(config, fresh=FRESH)
    config.cache_dir.symlink_to(shared_cache())
    agent.start()
    try:
        wait_until(lambda: _available(hub) or not agent.alive, READY_S, "the node is available")
        if not agent.alive:
            raise RuntimeError(f"the agent ended: {agent.log}")
        yield agent.pid
    finally:
        agent.end()


def _available(hub: HubProcess) -> bool:
    with urlopen(f"{hub.url}/metrics", timeout=5) as answer:
        return b"computepool_nodes_available 1.0" in answer.read()
