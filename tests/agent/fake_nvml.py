"""NVIDIA's bindings at the boundary that the agent uses, on a machine whose cards a test describes."""

# ruff: noqa: N802 - the library's names

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from computepool.agent.hardware.cards import MIB


@dataclass(eq=False, kw_only=True)
class FakeCard:
    """Doubles as its handle."""

    name: str = "NVIDIA GeForce RTX 3090"
    uuid: str = "GPU-1"
    minor: int = 0
    total_mb: int = 24 * 1024
    capability: tuple[int, int] = (8, 6)
    percent: int | None = 50  #: None: the driver does not tell, as for MIG devices
    idle_mb: int = 0  #: used by nobody's process
    used: Callable[[], dict[int, int | None]] = dict  #: MB by process
    parts: list[FakeCard] | None = None  #: MIG devices; None: it is not in that mode
    instances: tuple[int, int] = (0, 0)  #: of a MIG device: GPU instance and compute instance

    @property
    def used_mb(self) -> int:
        return self.idle_mb + sum(mb or 0 for mb in self.used().values())


@dataclass(kw_only=True)
class FakeNvml:
    driver: str = "580.159.04"  #: empty: NVML does not work
    cuda: int = 13000
    cards: list[FakeCard] = field(default_factory=lambda: [FakeCard()])

    class NVMLError(Exception):
        pass

    def nvmlInit(self) -> None:
        if not self.driver:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlShutdown(self) -> None: ...

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.driver

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return self.cuda

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeCard:
        return self.cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeCard:
        for card in self.cards:
            for one in (card, *(card.parts or ())):
                if one.uuid == uuid:
                    return one
        raise self.NVMLError("Not Found")

    def nvmlDeviceGetName(self, card: FakeCard) -> str:
        return card.name

    def nvmlDeviceGetUUID(self, card: FakeCard) -> str:
        return card.uuid

    def nvmlDeviceGetMinorNumber(self, card: FakeCard) -> int:
        return card.minor

    def nvmlDeviceGetCudaComputeCapability(self, card: FakeCard) -> tuple[int, int]:
        return card.capability

    def nvmlDeviceGetMemoryInfo(self, card: FakeCard) -> Any:
        return SimpleNamespace(total=card.total_mb * MIB, used=card.used_mb * MIB)

    def nvmlDeviceGetUtilizationRates(self, card: FakeCard) -> Any:
        if card.percent is None:
            raise self.NVMLError("Not Supported")
        return SimpleNamespace(gpu=card.percent)

    def nvmlDeviceGetComputeRunningProcesses(self, card: FakeCard) -> list[Any]:
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=None if mb is None else mb * MIB) for pid, mb in card.used().items()
        ]

    # MIG
    def nvmlDeviceGetMigMode(self, card: FakeCard) -> list[int]:
        if card.parts is None:
            raise self.NVMLError("Not Supported")
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, card: FakeCard) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: FakeCard, index: int) -> FakeCard:
        if index >= len(card.parts or ()):
            raise self.NVMLError("Not Found")
        return (card.parts or [])[index]

    def nvmlDeviceGetGpuInstanceId(self, part: FakeCard) -> int:
        return part.instances[0]

    def nvmlDeviceGetComputeInstanceId(self, part: FakeCard) -> int:
        return part.instances[1]
