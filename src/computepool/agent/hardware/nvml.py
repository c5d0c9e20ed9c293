"""NVIDIA's management library: the cards and MIG devices of this machine, its driver, and what programs use of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from computepool.agent.hardware.cards import MIB, CardLoad, DetectedCard, existing_paths
from computepool.core.fleet.versions import number_of

_log = logging.getLogger(__name__)
T = TypeVar("T")

#: Every CUDA program opens these besides its card; without them cuInit finds no device.
SHARED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
#: Says which device nodes give access to a MIG device.
_CAPABILITIES = Path("/proc/driver/nvidia/capabilities")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverVersions:
    """Of the NVIDIA driver, and the newest CUDA that it runs; empty if unknown."""

    driver: str = ""
    cuda: str = ""


NO_VERSIONS = DriverVersions()


def find_cards() -> list[DetectedCard] | None:
    """None if NVML does not work: no driver, no library, or versions that do not match."""
    return _ask(lambda: [card for index in range(pynvml.nvmlDeviceGetCount()) for card in _cards_at(index)])


def versions() -> DriverVersions:
    return _ask(_versions) or NO_VERSIONS


def _ask(question: Callable[[], T]) -> T | None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        _log.debug("NVML is not usable: %s", error)
        return None
    try:
        return question()
    except pynvml.NVMLError as error:
        _log.warning("NVML failed: %s", error)
        return None
    finally:
        pynvml.nvmlShutdown()


def _versions() -> DriverVersions:
    cuda = int(pynvml.nvmlSystemGetCudaDriverVersion())  # 12040 is 12.4
    driver = str(pynvml.nvmlSystemGetDriverVersion())
    return DriverVersions(driver=driver if number_of(driver) else "", cuda=f"{cuda // 1000}.{cuda % 1000 // 10}")


def _cards_at(index: int) -> Iterator[DetectedCard]:
    """The card of this index, or its MIG devices: a card in MIG mode cannot be used as a whole."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    minor = pynvml.nvmlDeviceGetMinorNumber(handle)
    try:
        major, second = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
        capability = f"{major}.{second}"
    except pynvml.NVMLError:
        capability = ""
    nodes = (f"/dev/nvidia{minor}", *SHARED_NODES)
    if not _is_divided(handle):
        yield _card(handle, nodes, capability=capability)
        return
    for position in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, position)
        except pynvml.NVMLError:
            continue  # No device is made at this position.
        yield _card(part, (*nodes, *_mig_nodes(part, minor)), capability=capability, mig=True)


def _is_divided(handle: Any) -> bool:
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:  # Most cards have no such mode.
        return False
    return bool(current)


def _card(handle: Any, nodes: Sequence[str], *, capability: str, mig: bool = False) -> DetectedCard:
    name = pynvml.nvmlDeviceGetName(handle)
    return DetectedCard(
        name=f"{name} MIG" if mig and "MIG" not in name else name,
        vram_mb=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) // MIB,
        maker="nvidia",
        ident=pynvml.nvmlDeviceGetUUID(handle),
        nodes=existing_paths(nodes),
        compute_capability=capability,
    )


def _mig_nodes(part: Any, minor: int) -> list[str]:
    """The device nodes that give access to a MIG device: one for its GPU instance, one for its compute instance."""
    instance = pynvml.nvmlDeviceGetGpuInstanceId(part)
    folder = _CAPABILITIES / f"gpu{minor}" / "mig" / f"gi{instance}"
    files = (folder / "access", folder / f"ci{pynvml.nvmlDeviceGetComputeInstanceId(part)}" / "access")
    return [f"/dev/nvidia-caps/nvidia-cap{number}" for file in files if (number := _device_minor(file))]


def _device_minor(file: Path) -> str:
    """The number in its line `DeviceFileMinor: 12`; empty if there is none."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return ""
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("DeviceFileMinor:")]
    return found[0] if found and found[0].isdigit() else ""


class GpuMeter:
    """Measures what programs use of NVIDIA cards."""

    def __init__(self, cards: Sequence[DetectedCard]) -> None:
        self._handles: dict[int, Any] = {}
        self._nodes = {index: card.nodes[:1] for index, card in enumerate(cards)}
        self._idle_mb: dict[int, int] = {}
        if not any(card.maker == "nvidia" for card in cards):
            return
        try:
            pynvml.nvmlInit()
            for index, card in enumerate(cards):
                if card.maker == "nvidia":
                    self._handles[index] = pynvml.nvmlDeviceGetHandleByUUID(card.ident)
                    self._idle_mb[index] = self._total_mb(index) or 0
        except (pynvml.NVMLError, TypeError) as error:
            _log.warning("GPU time is not measured: %s", error)
            self._handles.clear()

    def load(self, indices: Iterable[int]) -> CardLoad | None:
        """The current load of these cards by all programs; None if NVML cannot tell."""
        cards, used = 0, 0
        busy: float | None = 0.0
        for index in indices:
            if (total := self._total_mb(index)) is None:
                continue
            cards, used = cards + 1, used + total
            try:
                rate = pynvml.nvmlDeviceGetUtilizationRates(self._handles[index]).gpu / 100
                busy = None if busy is None else busy + rate
            except pynvml.NVMLError:
                busy = None
        return CardLoad(cards=cards, busy=busy, vram_mb=used) if cards else None

    def memory_of(self, pids: Collection[int], index: int, *, alone: bool) -> int | None:
        """The MB of one card that these processes use; None if that cannot be told.

        If NVML does not name processes as this machine does, as in a container, everything on the card beyond what was used
        when the agent started counts, provided that these are its only jobs (`alone`).
        """
        if index not in self._handles:
            return None
        used = self._by_process(index)
        if own := [pid for pid in used if pid in pids and _may_use(pid, self._nodes[index])]:
            return sum(used[pid] for pid in own) // MIB
        if any((_PROC / str(pid)).exists() for pid in used):
            return 0
        beyond = max(0, (self._total_mb(index) or 0) - self._idle_mb[index])
        return beyond if alone or not beyond else None

    def _by_process(self, index: int) -> dict[int, int]:
        """Bytes by process; empty if NVML does not tell."""
        try:
            listed = pynvml.nvmlDeviceGetComputeRunningProcesses(self._handles[index])
        except pynvml.NVMLError:
            return {}
        return {found.pid: int(found.usedGpuMemory) for found in listed if found.usedGpuMemory is not None}

    def _total_mb(self, index: int) -> int | None:
        try:
            return int(pynvml.nvmlDeviceGetMemoryInfo(self._handles[index]).used) // MIB
        except (pynvml.NVMLError, KeyError):
            self._handles.pop(index, None)
            return None


def _may_use(pid: int, nodes: Collection[str]) -> bool:
    """False if the process does not have the card open: a number of another PID namespace may be anybody's here."""
    try:
        return any(os.readlink(entry) in nodes for entry in (_PROC / str(pid) / "fd").iterdir())
    except OSError:
        return True
