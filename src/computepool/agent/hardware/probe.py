"""The hardware that this machine can lend: the processors, memory, disk and GPUs that the agent may use.

A container or a service unit may allow less than the hardware has; the smallest limit counts.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from computepool.agent.config import MIB, AgentConfig
from computepool.agent.hardware.cpus import usable_ids
from computepool.agent.hardware.gpus import DetectedCard, find_cards
from computepool.core.isolation import Level
from computepool.protocol.nodes.profile import GpuModel, Profile, StatedPlace

CGROUPS = Path("/sys/fs/cgroup")
#: The rest is for the owner's programs, the agent and the page cache.
_SHARE = (9, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    cores: float
    ram_mb: int
    disk_mb: int
    cards: tuple[DetectedCard, ...]


def probe(config: AgentConfig) -> Hardware:
    part, whole = _SHARE
    return Hardware(
        cores=config.cores or _cores(),
        ram_mb=config.ram_mb or _ram_bytes() // MIB * part // whole,
        disk_mb=config.disk_mb or shutil.disk_usage(config.data_dir).free // MIB * part // whole,
        cards=() if config.gpus is False else find_cards(),
    )


def profile(
    config: AgentConfig,
    hardware: Hardware,
    *,
    level: Level,
    python: str,
    version: str,
    fetches_python: Sequence[str] = (),
    installs: bool = True,
    runtime: str = "",
) -> Profile:
    """The node's description of itself for the hub."""
    stated = config.stated_place()
    return Profile(
        name=config.name,
        cores=hardware.cores,
        ram_mb=hardware.ram_mb,
        disk_mb=hardware.disk_mb,
        gpus=[GpuModel(name=card.name, tier=card.tier, vram_mb=card.vram_mb) for card in hardware.cards],
        lends_gpus=config.gpus is True,
        region=config.region,
        place=None if stated is None else StatedPlace(lat=stated[0], lon=stated[1]),
        tags=list(config.tags),
        properties=dict(config.properties),
        mesh_version=config.mesh_version,
        python=python,
        fetches_python=list(fetches_python),
        installs=installs,
        runtime=runtime,
        isolation=level.label,
        trusted=list(config.trusted),
        url=config.url,
        network=config.network,
        version=version,
        platform=f"{platform.system()} {platform.release()} {platform.machine()}"[:200],
    )


def _cores(root: Path = CGROUPS) -> float:
    """The number of processors that this process may use, within the quotas of its cgroups."""
    cores: float = len(usable_ids())
    for folder in _own_cgroups(root, "cpu"):
        quota = _cpu_quota(folder)
        if quota is not None:
            cores = min(cores, quota)
    return max(0.1, round(cores, 2))


def _cpu_quota(folder: Path) -> float | None:
    version2 = _read(folder / "cpu.max").split()
    if len(version2) == 2 and version2[0].isdigit():
        return int(version2[0]) / int(version2[1])
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None


def _ram_bytes(root: Path = CGROUPS) -> int:
    total: int = psutil.virtual_memory().total
    for folder in _own_cgroups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _number(folder / name)
            if limit:
                total = min(total, limit)
    return total


def _own_cgroups(root: Path, controller: str) -> list[Path]:
    """The cgroups of this process and their visible parents, in both versions."""
    folders = []
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            bases = [root, root / "unified"]
        elif controller in controllers.split(","):
            bases = [root / controllers, root / controller]
        else:
            continue
        relative = Path(path.lstrip("/"))
        for base in bases:
            # In a container the path may be the host's: then only the mounted root exists, which is this process's own.
            folders += [base / relative, *(base / parent for parent in relative.parents)]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None
