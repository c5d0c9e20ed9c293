"""Real hub and agent processes for benchmarks, and what they cost: CPU seconds and memory from /proc."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from computepool.hub.main import Bootstrap, bootstrap
from computepool.hub.settings import Settings

_TICKS = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@dataclass(slots=True)
class RunningHub:
    url: str
    port: int
    pid: int
    folder: Path
    first: Bootstrap


@contextmanager
def hub_process(**settings: str | float) -> Iterator[RunningHub]:
    """A hub on a free port with its own folder; settings as keyword arguments (interval_min_s=1)."""
    with tempfile.TemporaryDirectory(prefix="computepool-bench-") as name:
        folder, port = Path(name), free_port()
        folder.chmod(0o755)
        env = os.environ | {f"COMPUTEPOOL_{key.upper()}": str(value) for key, value in settings.items()}
        env |= {"COMPUTEPOOL_DATA_DIR": str(folder / "hub"), "COMPUTEPOOL_PORT": str(port)}
        first = bootstrap(Settings(data_dir=folder / "hub"))
        code = "from computepool.hub.main import serve; from computepool.hub.settings import Settings; serve(Settings())"
        log = (folder / "hub.log").open("wb")
        process = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=log, stderr=log)
        try:
            wait_http(f"http://127.0.0.1:{port}/healthz", process)
            yield RunningHub(f"http://127.0.0.1:{port}", port, process.pid, folder, first)
        finally:
            stop(process)
            log.close()


def wait_http(url: str, process: subprocess.Popen[bytes], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the process ended with {process.returncode} before it served {url}")
        try:
            with urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(url)


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


@contextmanager
def agent_process(hub: RunningHub, *, sandbox: str = "auto", cores: float = 2) -> Iterator[int]:
    """A node of the hub's admin with this many slots. Yields the agent's process id once the hub knows it."""
    code = (
        "from pathlib import Path; from computepool.agent.config import AgentConfig; from computepool.agent.main import run;"
        f"run(AgentConfig(hub_url={hub.url!r}, data_dir=Path({str(hub.folder / 'node')!r}), name='bench',"
        f" code={hub.first.enrol_code!r}, sandbox={sandbox!r}, cores={cores}))"
    )
    log = (hub.folder / "node.log").open("wb")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=log, stderr=log)
    try:
        _wait_node(hub, process)
        yield process.pid
    finally:
        stop(process)
        log.close()


def _wait_node(hub: RunningHub, process: subprocess.Popen[bytes], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the agent ended: {(hub.folder / 'node.log').read_text()}")
        with urlopen(f"{hub.url}/metrics", timeout=5) as answer:
            if b"computepool_nodes_available 1.0" in answer.read():
                return
        time.sleep(0.1)
    raise TimeoutError((hub.folder / "node.log").read_text())
