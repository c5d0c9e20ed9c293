"""One large file to the hub and back, on the loopback interface: how fast, at what cost, with how much memory.

The file's bytes are in the page cache, and what the hub writes mostly stays there: this is about the programs, not the disk.
An upload is hashed twice on its way, by the client to name it and by the hub to believe it; a download once.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from bench.processes import RunningHub, cpu_s, hub_process
from bench.table import Figure
from computepool.sdk import Pool, connect

MEGABYTES = 1_024
ROUNDS = 3
TARGET_MB_S = 300
#: What a gigabyte may add to the memory of either program.
GROWTH_MAX_MB = 64
_BLOCK = 1024 * 1024


def run() -> list[Figure]:
    with hub_process(artifact_bytes_max=2**50) as hub:
        pool = connect(hub.url, hub.first.admin_key)
        try:
            return _transfers(pool, hub)
        finally:
            pool.close()


def _transfers(pool: Pool, hub: RunningHub) -> list[Figure]:
    source, target = hub.folder / "source", hub.folder / "target"
    pool.artifacts.put_bytes(os.urandom(_BLOCK), name="warm")  # every module is loaded now
    before = {pid: _forget_peak(pid) for pid in (hub.pid, os.getpid())}
    up, down = _Way("upload"), _Way("download")
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
                f"memory that {who} adds to the {what}",
                grown[pid],
                "MB",
                target=GROWTH_MAX_MB,
                lower_is_better=True,
            )
            for who, what, pid in (
                ("a large artifact", "hub", hub.pid),
                ("a large artifact", "client", os.getpid()),
            )
        ),
    ]


def _fill(path: Path) -> None:
    """Fresh bytes each time: what the hub has already is not sent again."""
    block = os.urandom(_BLOCK)
    with path.open("wb") as file:
        for number in range(MEGABYTES):
            file.write(number.to_bytes(8, "big"))
            file.write(memoryview(block)[8:])


class _Way:
    def __init__(self, name: str) -> None:
        self._name = name
        self._rates: list[float] = []
        self._costs: list[tuple[float, float]] = []

    def measured(self, hub_pid: int) -> _Stopwatch:
        return _Stopwatch(hub_pid, self)

    def add(self, took_s: float, hub_s: float, client_s: float) -> None:
        gigabytes = MEGABYTES * _BLOCK / 1e9
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


class _Stopwatch:
    def __init__(self, hub_pid: int, way: _Way) -> None:
        self._hub_pid, self._way = hub_pid, way

    def __enter__(self) -> None:
        self._before = time.perf_counter(), cpu_s(self._hub_pid), time.process_time()

    def __exit__(self, *_: object) -> None:
        after = time.perf_counter(), cpu_s(self._hub_pid), time.process_time()
        self._way.add(*(later - earlier for earlier, later in zip(self._before, after, strict=True)))


def _forget_peak(pid: int) -> float:
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _peak_mb(pid)


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
