"""The GPUs of this machine and their load, according to the makers' own tools.

Order: NVML, then nvidia-smi; amd-smi, then rocm-smi. A tool that is missing, hangs or prints something unexpected counts as
"no such GPUs", never as an error.
"""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from computepool.core.trust.tiers import tier_of

_log = logging.getLogger(__name__)

TOOL_TIMEOUT_S = 20.0
MIB = 1024 * 1024
#: Every CUDA program opens these besides its card; without them cuInit finds no device.
_NVIDIA_SHARED = ("/dev/nvidiactl", "/dev/nvidia-uvm")


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedCard:
    name: str
    vram_mb: int
    maker: str  #: nvidia or amd
    ident: str = ""  #: its name in the VISIBLE_DEVICES variable of the maker's runtime
    nodes: tuple[str, ...] = ()  #: device nodes that a job needs to use it

    @property
    def tier(self) -> str:
        return tier_of(self.name)


def find_cards() -> tuple[DetectedCard, ...]:
    nvidia = _nvml_cards()
    nvidia = _nvidia_smi_cards() if nvidia is None else nvidia
    return (*nvidia, *(_amd_smi_cards() or _rocm_smi_cards()))


def visible_env(cards: Sequence[DetectedCard]) -> Mapping[str, str]:
    """Variables that limit CUDA and ROCm to these cards."""
    nvidia = ",".join(card.ident for card in cards if card.maker == "nvidia")
    amd = ",".join(card.ident for card in cards if card.maker == "amd")
    # Set even when empty: a job that reserved no card must not find one by accident at level `process`.
    return {"CUDA_VISIBLE_DEVICES": nvidia, "NVIDIA_VISIBLE_DEVICES": nvidia or "void", "ROCR_VISIBLE_DEVICES": amd}


# ---------------------------------------------------------------- NVIDIA
def _nvml_cards() -> list[DetectedCard] | None:
    """None if NVML does not work: no driver, no library, or versions that do not match."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        _log.debug("NVML is not usable: %s", error)
        return None
    try:
        return [_nvml_card(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        _log.warning("NVML failed while listing cards: %s", error)
        return None
    finally:
        pynvml.nvmlShutdown()


def _nvml_card(index: int) -> DetectedCard:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return DetectedCard(
        name=pynvml.nvmlDeviceGetName(handle),
        vram_mb=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) // MIB,
        maker="nvidia",
        ident=pynvml.nvmlDeviceGetUUID(handle),
        nodes=_existing_paths([f"/dev/nvidia{pynvml.nvmlDeviceGetMinorNumber(handle)}", *_NVIDIA_SHARED]),
    )


def _nvidia_smi_cards() -> list[DetectedCard]:
    query = ["nvidia-smi", "--query-gpu=index,name,memory.total,uuid", "--format=csv,noheader,nounits"]
    cards = []
    for line in (run_tool(query) or "").splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 4 or not parts[0].isdigit() or not parts[2].isdigit():
            continue
        nodes = _existing_paths([f"/dev/nvidia{parts[0]}", *_NVIDIA_SHARED])
        cards.append(DetectedCard(name=parts[1], vram_mb=int(parts[2]), maker="nvidia", ident=parts[3], nodes=nodes))
    return cards


@dataclass(frozen=True, slots=True, kw_only=True)
class CardLoad:
    cards: int
    busy: float  #: in cards: 1.5 is one card in full use and another in half use
    vram_mb: int

    @property
    def percent(self) -> int:
        return min(100, round(100 * self.busy / self.cards))


class GpuMeter:
    """Measures the load of NVIDIA cards through NVML."""

    def __init__(self, cards: Sequence[DetectedCard]) -> None:
        self._handles: dict[int, Any] = {}
        if not any(card.maker == "nvidia" for card in cards):
            return
        try:
            pynvml.nvmlInit()
            for index, card in enumerate(cards):
                if card.maker == "nvidia":
                    self._handles[index] = pynvml.nvmlDeviceGetHandleByUUID(card.ident)
        except (pynvml.NVMLError, TypeError) as error:
            _log.warning("GPU time is not measured: %s", error)
            self._handles.clear()

    def load(self, indices: Iterable[int]) -> CardLoad | None:
        """The current load of these cards by all programs; None if NVML cannot tell."""
        cards, busy, used = 0, 0.0, 0
        for index in indices:
            if index in self._handles:
                handle = self._handles[index]
                try:
                    busy += pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                    used += int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
                except pynvml.NVMLError:
                    del self._handles[index]
                else:
                    cards += 1
        return CardLoad(cards=cards, busy=busy, vram_mb=used // MIB) if cards else None


# ---------------------------------------------------------------- AMD
def _amd_smi_cards() -> list[DetectedCard]:
    data = _json(run_tool(["amd-smi", "static", "--asic", "--vram", "--json"]))
    rows = data.get("gpu_data") if isinstance(data, dict) else data
    cards = []
    for index, row in enumerate(rows if isinstance(rows, list) else []):
        name, size = _path(row, "asic", "market_name"), _path(row, "vram", "size")
        megabytes = size.get("value") if isinstance(size, dict) else size
        if isinstance(name, str) and isinstance(megabytes, int):
            cards.append(_amd_card(index, name, megabytes))
    return cards


def _rocm_smi_cards() -> list[DetectedCard]:
    data = _json(run_tool(["rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json"]))
    cards: list[DetectedCard] = []
    for key in sorted(data, key=_trailing_number) if isinstance(data, dict) else []:
        row = data[key]
        if not key.startswith("card") or not isinstance(row, dict):
            continue
        # Releases differ in capital letters.
        fields = {str(name).lower(): str(value) for name, value in row.items()}
        size = fields.get("vram total memory (b)", "")
        series = fields.get("card series") or fields.get("card model") or "AMD GPU"
        if size.isdigit():
            cards.append(_amd_card(len(cards), series, int(size) // MIB))
    return cards


def _amd_card(index: int, name: str, vram_mb: int) -> DetectedCard:
    nodes = _existing_paths(["/dev/kfd", f"/dev/dri/renderD{128 + index}"])
    return DetectedCard(name=name, vram_mb=vram_mb, maker="amd", ident=str(index), nodes=nodes)


# ---------------------------------------------------------------- tools
def run_tool(argv: Sequence[str]) -> str | None:
    """The output of a program; None if it is missing, fails or times out."""
    program = shutil.which(argv[0])
    if program is None:
        return None
    try:
        done = subprocess.run([program, *argv[1:]], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        _log.warning("cannot run %s: %s", argv[0], error)
        return None
    return done.stdout if done.returncode == 0 else None


def _json(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def _path(tree: Any, *keys: str) -> Any:
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _trailing_number(text: str) -> int:
    number = text[len(text.rstrip("0123456789")) :]
    return int(number) if number else -1


def _existing_paths(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(path for path in paths if Path(path).exists())
