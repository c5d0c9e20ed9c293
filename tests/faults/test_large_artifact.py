"""A gigabyte through a connection that breaks ten times, there and back: whole, and with flat memory on both sides."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from computepool.testing.processes import RealPool
from tests.faults.proxy import ChaosProxy

pytestmark = [pytest.mark.process, pytest.mark.soak]

MB = 1024 * 1024
SIZE_MB = 1024
BREAKS = 10
GROWTH_MAX_MB = 100


def peak_mb(pid: int | str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


@contextmanager
def flat_memory(*pids: int) -> Iterator[None]:
    before = {}
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # its peak is what it has now
        before[pid] = peak_mb(pid)
    yield
    for pid in pids:
        growth = peak_mb(pid) - before[pid]
        assert growth < GROWTH_MAX_MB, f"process {pid} grew by {growth:.0f} MB"


def make_source(path: Path) -> None:
    """Every megabyte differs from every other; most of each is a hole, so that the disk has less to do."""
    block = os.urandom(4096)
    with path.open("wb") as file:
        for number in range(SIZE_MB):
            file.seek(number * MB + (number * 997) % (MB - 5000))
            file.write(number.to_bytes(8, "big") + block)
        file.truncate(SIZE_MB * MB)


def evenly(start: int = 0) -> list[int]:
    return [start + (number + 1) * SIZE_MB * MB // (BREAKS + 1) for number in range(BREAKS)]


def test_a_gigabyte_survives_ten_breaks_each_way_with_flat_memory() -> None:
    with RealPool() as pool:
        hub = pool.start_hub()
        source, target = pool.folder / "source", pool.folder / "target"
        make_source(source)
        for way in ("up", "down"):
            proxy = ChaosProxy(hub.port, breaks=evenly())
            client = pool.client(proxy.url)
            client.accounts.me()
            with flat_memory(hub.pid, os.getpid()):
                if way == "up":
                    sent = client.artifacts.put(source)
                else:
                    client.artifacts.get(sent.digest, target)
            proxy.close()
            assert proxy.breaks == [], way
        assert sent.size == SIZE_MB * MB
        assert target.stat().st_size == SIZE_MB * MB
        with target.open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == sent.digest
        assert [path.name for path in pool.folder.iterdir() if path.name.endswith(".part")] == []
