"""What the processes of an attempt do at the moment, for people who look."""

from __future__ import annotations

from dataclasses import dataclass

from computepool.agent.sandbox.base import Process
from computepool.protocol.nodes import LoadModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    at: float  #: steady time
    cpu_ms: int  #: since the process began, which may be long before the attempt: workers are kept
    cpu_percent: int = 0  #: since the last look; 100 is one CPU
    rss_mb: int = 0
    processes: int = 0
    looks: int = 1  #: how often it was measured; the first one has nothing to compare with

    @classmethod
    def seen(cls, process: Process, now: float, before: Load | None) -> Load:
        used = process.usage()
        percent = 0
        # A smaller number than before is another process's.
        if before is not None and now > before.at and used.cpu_ms >= before.cpu_ms:
            percent = round((used.cpu_ms - before.cpu_ms) / (now - before.at) / 10)
        return cls(
            at=now,
            cpu_ms=used.cpu_ms,
            cpu_percent=percent,
            rss_mb=used.rss_mb,
            processes=process.processes(),
            looks=1 if before is None else before.looks + 1,
        )

    def wire(self) -> LoadModel:
        return LoadModel(cpu_percent=self.cpu_percent, rss_mb=self.rss_mb, processes=self.processes)
