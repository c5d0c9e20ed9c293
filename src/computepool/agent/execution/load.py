"""The current load of an attempt's processes, as shown to people."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import zip_longest

from computepool.agent.hardware.cards import CardLoad
from computepool.agent.sandbox.supervise import Process
from computepool.protocol.nodes.nodes import LoadModel

#: The first measurement says nothing of CPU use, which is the difference from the one before.
FIRST_COMPARABLE = 2
_UNSENT_MAX = 8
#: Between two samples that are kept; closer ones are merged.
_GAP_S = 1.9


#: Of these, merged samples keep the higher value.
_PEAKS = ("cpu_percent", "rss_mb", "processes", "gpu_percent", "vram_mb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    at: float  #: steady time
    cpu_ms: int  #: since the process began, which may be long before the attempt: workers are reused
    model: LoadModel
    count: int = 1  #: how often it was measured

    @classmethod
    def measure(cls, process: Process, now: float, before: Load | None, *, cards: CardLoad | None = None) -> Load:
        used = process.usage()
        percent = 0
        # A lower number than before belongs to another process.
        if before is not None and now > before.at and used.cpu_ms >= before.cpu_ms:
            percent = round((used.cpu_ms - before.cpu_ms) / (now - before.at) / 10)
        model = LoadModel(
            cpu_percent=percent,
            rss_mb=used.rss_mb,
            processes=process.processes(),
            gpu_percent=None if cards is None else cards.percent,
            vram_mb=None if cards is None else cards.vram_mb,
        )
        return cls(at=now, cpu_ms=used.cpu_ms, model=model, count=1 if before is None else before.count + 1)

    def wire(self, now: float) -> LoadModel:
        return self.model.model_copy(update={"ago_ms": max(0, round((now - self.at) * 1000))})


def _merge(earlier: Load, later: Load) -> Load:
    """The later sample with the peaks of both."""
    peaks = {}
    for name in _PEAKS:
        values = [value for load in (earlier, later) if (value := getattr(load.model, name)) is not None]
        peaks[name] = max(values, default=None)
    return replace(later, model=later.model.model_copy(update=peaks))


class UnsentLoads:
    """The samples since the hub last heard of an attempt: a few, each with the peaks of those merged into it."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: list[Load] = []

    def add(self, load: Load) -> None:
        samples = self._samples
        if load.count < FIRST_COMPARABLE:
            return
        if len(samples) > 1 and load.at - samples[-2].at < _GAP_S:
            samples[-1] = _merge(samples[-1], load)
        else:
            samples.append(load)
        if len(samples) > _UNSENT_MAX:
            pairs = zip_longest(samples[::2], samples[1::2])
            self._samples = [one if two is None else _merge(one, two) for one, two in pairs]

    def take(self, now: float, *, young: bool = True) -> list[LoadModel]:
        """Return each sample once; those of an attempt that is no longer young are merged into one."""
        samples, self._samples = self._samples, []
        if samples and not young:
            samples = [reduce(_merge, samples)]
        return [sample.wire(now) for sample in samples]
