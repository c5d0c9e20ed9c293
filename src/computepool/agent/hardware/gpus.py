"""The GPUs of this machine, according to the makers' own tools.

Order: NVML, then nvidia-smi; amd-smi, then rocm-smi. A tool that is missing, hangs or prints something unexpected counts as
"no such GPUs", never as an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from computepool.agent.hardware import nvml
from computepool.agent.hardware.cards import MIB, DetectedCard, existing_paths, run_tool


def find_cards() -> tuple[DetectedCard, ...]:
    nvidia = nvml.find_cards()
    nvidia = _nvidia_smi_cards() if nvidia is None else nvidia
    return (*nvidia, *(_amd_smi_cards() or _rocm_smi_cards()))


def visible_env(cards: Sequence[DetectedCard]) -> Mapping[str, str]:
    """Variables that limit CUDA and ROCm to these cards."""
    nvidia = ",".join(card.ident for card in cards if card.maker == "nvidia")
    amd = ",".join(card.ident for card in cards if card.maker == "amd")
    # Set even when empty: a job that reserved no card must not find one by accident at level `process`.
    return {"CUDA_VISIBLE_DEVICES": nvidia, "NVIDIA_VISIBLE_DEVICES": nvidia or "void", "ROCR_VISIBLE_DEVICES": amd}


# ---------------------------------------------------------------- NVIDIA
def _nvidia_smi_cards() -> list[DetectedCard]:
    query = ["nvidia-smi", "--query-gpu=index,name,memory.total,uuid", "--format=csv,noheader,nounits"]
    cards = []
    for line in (run_tool(query) or "").splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 4 or not parts[0].isdigit() or not parts[2].isdigit():
            continue
        nodes = existing_paths([f"/dev/nvidia{parts[0]}", *nvml.SHARED_NODES])
        cards.append(DetectedCard(name=parts[1], vram_mb=int(parts[2]), maker="nvidia", ident=parts[3], nodes=nodes))
    return cards


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
    nodes = existing_paths(["/dev/kfd", f"/dev/dri/renderD{128 + index}"])
    return DetectedCard(name=name, vram_mb=vram_mb, maker="amd", ident=str(index), nodes=nodes)


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
