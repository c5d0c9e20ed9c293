"""The current load of an attempt's processes, as shown to people."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import zip_longest

from computepool.agent.hardware.gpus import CardLoad
from computepool.agent.sandbox.supervise import Process
from computepool.protocol.nodes.nodes import LoadModel

#: The look at an attempt's processes that is worth telling: it says how busy they are.
FIRST_COMPARABLE = 2
#: Samples to keep at most; then neighbours are merged.
_UNSENT_MAX = 8
#: Between two of them.
_GAP_S = 1.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    at: float  #: steady time
    cpu_ms: int  #: since the process began, which may be long before the attempt: workers are kept
    cpu_percent: int = 0  #: since the last look; 100 is one CPU
    rss_mb: int = 0
    processes: int = 0
    gpu_percent: int | None = None  #: of its cards, where they say
    vram_mb: int | None = None
    looks: int = 1  #: how often it was measured; the first one has nothing to compare with

    @classmethod
    def measure(
        cls, process: Process, now: float, before: Load | None, *, cards: CardLoad | None = None
    ) -> Load:
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
            gpu_percent=None if cards is None else cards.percent,
            vram_mb=None if cards is None else cards.vram_mb,
            looks=1 if before is None else before.looks + 1,
        )

    def wire(self, now: float) -> LoadModel:
        return LoadModel(
            cpu_percent=self.cpu_percent,
            rss_mb=self.rss_mb,
            processes=self.processes,
            gpu_percent=self.gpu_percent,
            vram_mb=self.vram_mb,
            ago_ms=max(0, round((now - self.at) * 1000)),
        )

    def with_peaks(self, earlier: Load) -> Load:
        return replace(
            self,
            cpu_percent=max(self.cpu_percent, earlier.cpu_percent),
            rss_mb=max(self.rss_mb, earlier.rss_mb),
            processes=max(self.processes, earlier.processes),
            gpu_percent=_higher(self.gpu_percent, earlier.gpu_percent),
            vram_mb=_higher(self.vram_mb, earlier.vram_mb),
        )


def _higher(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


class UnsentLoads:
    """Load samples that were not sent yet: a few, each with the peaks of those that were merged into it."""

    __slots__ = ("_looks",)

    def __init__(self) -> None:
        self._looks: list[Load] = []

    def add(self, load: Load) -> None:
        if load.looks < FIRST_COMPARABLE:
            return
        if len(self._looks) > 1 and load.at - self._looks[-2].at < _GAP_S:
            self._looks[-1] = load.with_peaks(self._looks[-1])
        else:
            self._looks.append(load)
        if len(self._looks) > _UNSENT_MAX:
            pairs = zip_longest(self._looks[::2], self._looks[1::2])
            self._looks = [one if two is None else two.with_peaks(one) for one, two in pairs]

    def take(self, now: float, *, young: bool = True) -> list[LoadModel]:
        """Return each sample once; those of an attempt that is no longer young are merged into one."""
        looks, self._looks = self._looks, []
        if not young and looks:
            last = looks[0]
            for look in looks[1:]:
                last = look.with_peaks(last)
            looks = [last]
        return [look.wire(now) for look in looks]
