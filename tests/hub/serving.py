"""A hub as its own process on a loopback port, for what needs real connections and a memory of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil

from computepool.hub.main import bootstrap
from computepool.hub.settings import Settings

_SERVE = (
    "import json,sys; from computepool.hub.main import serve; from computepool.hub.settings import Settings; "
)
_SERVE += "serve(Settings(**json.loads(sys.argv[1])))"


@dataclass
class ServedHub:
    address: tuple[str, int]
    key: str
    process: psutil.Process

    def client(self) -> httpx2.Client:
        host, port = self.address
        return httpx2.Client(
            base_url=f"http://{host}:{port}/api/v1",
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=60,
        )

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=30)

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def peak_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(folder: Path, **settings: object) -> Iterator[ServedHub]:
    chosen = {"data_dir": str(folder), "port": _free_port(), **settings}
    configured = Settings(**chosen)  # type: ignore[arg-type]
    started = bootstrap(configured)
    address = ("127.0.0.1", configured.port)
    process = subprocess.Popen([sys.executable, "-c", _SERVE, json.dumps(chosen)], env=os.environ)
    try:
        _wait(address, process)
        yield ServedHub(address, started.admin_key, psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait(20)


def _wait(address: tuple[str, int], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert process.poll() is None, "the hub has ended"
        try:
            if httpx2.get(f"http://{address[0]}:{address[1]}/healthz", timeout=5).status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.02)
    raise AssertionError("the hub does not answer")
