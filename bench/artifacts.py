"""One large file to the hub and back over the loopback interface: speed, CPU time and memory.

The file is in the page cache, and what the hub writes mostly stays there: this measures the programs, not the disk. An upload
is hashed twice, by the client for its name and by the hub to verify it; a download once.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.processes import cpu_s, hub_process
from bench.table import Figure
from computepool.sdk import Pool, connect
from computepool.testing.processes import HubProcess

MEGABYTES = 1_024
ROUNDS = 3
TARGET_MB_S = 300
#: The most that a gigabyte may add to the memory of either program.
GROWTH_MAX_MB = 64
_BLOCK = 1024 * 1024


def run() -> list[Figure]:
    with hub_process(artifact_bytes_max=2**50) as hub:
        pool = connect(hub.url, hub.first.admin_key)
        try:
            return _transfers(pool, hub)
        finally:
            pool.close()


def _transfers(pool: Pool, hub: HubProcess) -> list[Figure]:
    source, target = hub.folder / "source", hub.folder / "target"
    pool.artifacts.put_bytes(os.urandom(_BLOCK), name="warm")  # loads all modules
    before = {pid: _reset_peak(pid) for pid in (hub.pid, os.getpid())}
    up, down = _Direction("upload"), _Direction("download")
    for _ in range(ROUNDS):
        _fill(source)
        with up.measured(hub.pid):
            sent = pool.artifacts.put(source)
        with down.measured(hub.pid):
            pool.artifacts.get(sent.digest, target)
        pool.artifacts.rm(sent.digest)
        target.unlink()
    grown = {pid: _peak_mb(pid) - mb for pid, mb in before.items()}
    return [
        up.figure(),
        down.figure(),
        *(
            Figure(
                f"memory that a large artifact adds to the {what}",
                grown[pid],
                "MB",
                target=GROWTH_MAX_MB,
                lower_is_better=True,
            )
            for what, pid in (("hub", hub.pid), ("client", os.getpid()))
        ),
    ]


def _fill(path: Path) -> None:
    """New bytes each time, because known artifacts are not sent again."""
    block = os.urandom(_BLOCK)
    with path.open("wb") as file:
        for number in range(MEGABYTES):
            file.write(number.to_bytes(8, "big"))
            file.write(memoryview(block)[8:])


class _Direction:
    def __init__(self, name: str) -> None:
        self._name = name
        self._rates: list[float] = []
        self._costs: list[tuple[float, float]] = []

    @contextmanager
    def measured(self, hub_pid: int) -> Iterator[None]:
        gigabytes = MEGABYTES * _BLOCK / 1e9
        before = time.perf_counter(), cpu_s(hub_pid), time.process_time()
        yield
        after = time.perf_counter(), cpu_s(hub_pid), time.process_time()
        took_s, hub_s, client_s = (later - earlier for earlier, later in zip(before, after, strict=True))
        self._rates.append(gigabytes * 1000 / took_s)
        self._costs.append((hub_s / gigabytes, client_s / gigabytes))

    def figure(self) -> Figure:
        hub, client = (statistics.median(side) for side in zip(*self._costs, strict=True))
        note = f"CPU s/GB: hub {hub:.2f}, client {client:.2f}; {min(self._rates):.0f}–{max(self._rates):.0f}"
        return Figure(
            f"artifact {self._name}, {MEGABYTES} MiB",
            statistics.median(self._rates),
            "MB/s",
            target=TARGET_MB_S,
            note=note,
        )


def _reset_peak(pid: int) -> float:
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _peak_mb(pid)


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
