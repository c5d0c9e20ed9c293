"""A hub as its own process on a loopback port, for tests of real connections and of its memory."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from computepool.testing.processes import HubProcess


@dataclass
class ServedHub:
    process: HubProcess

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.process.port)

    @property
    def key(self) -> str:
        return self.process.first.admin_key

    def client(self) -> httpx2.Client:
        return httpx2.Client(
            base_url=f"{self.process.url}/api/v1", headers={"Authorization": f"Bearer {self.key}"}, timeout=60
        )

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=30)

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def peak_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024


@contextmanager
def serving(folder: Path, **settings: str | float) -> Iterator[ServedHub]:
    """With the settings as they are shipped, but for these."""
    folder.mkdir(exist_ok=True)
    process = HubProcess(folder, **settings)
    try:
        yield ServedHub(process.start())
    finally:
        process.stop(20)
