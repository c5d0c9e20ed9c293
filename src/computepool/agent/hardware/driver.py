"""The parts of the graphics driver that a job sees besides device nodes: libraries and a few files of /sys.

They are mounted read-only, under names that do not depend on the host. A job without a GPU sees none of them.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from computepool.agent.hardware.cards import DetectedCard, run_tool

#: Where a job finds the driver's libraries; first in its LD_LIBRARY_PATH.
LIBRARIES = "/opt/driver"
#: Prefixes of NVIDIA's libraries: CUDA, the compiler of its portable code, management, OpenCL.
_NVIDIA = (
    "libcuda.so",
    "libnvidia-ptxjitcompiler.so",
    "libnvidia-nvvm",
    "libnvidia-gpucomp.so",
    "libnvidia-ml.so",
    "libnvidia-opencl.so",
)
_CUBLAS = re.compile(r"libcublas(Lt)?\.so\.(\d+)")
#: What the makers' runtimes read of /sys. The rest of /sys reveals the host's network and disks.
_SYS: Mapping[str, tuple[str, ...]] = {
    "nvidia": ("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/module/nvidia/version"),
    "amd": (
        "/sys/devices/system/cpu",
        "/sys/devices/system/node",
        "/sys/class/kfd",
        "/sys/devices/virtual/kfd",
        "/sys/module/amdgpu/version",
    ),
}
_LINE = re.compile(r"^\s*(\S+) \(([^)]*)\) => (\S+)$", re.MULTILINE)


def mounts(cards: Sequence[DetectedCard], *, sysfs: bool = True) -> dict[Path, str]:
    """Mounts for jobs with these cards: path on the host -> path inside. `sysfs`: include files of /sys."""
    makers = sorted({card.maker for card in cards})
    found: dict[Path, str] = {}
    for maker in makers if sysfs else ():
        found |= {Path(path): path for path in _SYS.get(maker, ()) if os.path.exists(path)}
    if "nvidia" in makers:
        found |= {path: f"{LIBRARIES}/{name}" for path, name in _nvidia_libraries().items()}
    return found


def library_path(cards: Sequence[DetectedCard], *others: str | None) -> dict[str, str]:
    if not any(card.maker == "nvidia" for card in cards):
        return {}
    return {"LD_LIBRARY_PATH": ":".join(filter(None, (LIBRARIES, *others)))}


def version() -> str:
    """Version of the NVIDIA kernel driver; empty if there is none."""
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return ""


def cublas() -> dict[str, Path]:
    """The newest cuBLAS, of CUDA or of a Python package such as torch."""
    candidates = [{name: path for name, path in _cache().items() if _CUBLAS.fullmatch(name)}]
    for entry in sys.path:
        for folder in sorted(Path(entry).glob("nvidia/*/lib")) if entry else ():
            files = {path.name: path for path in folder.glob("libcublas*.so.*")}
            candidates.append({name: path for name, path in files.items() if _CUBLAS.fullmatch(name)})
    for files in candidates:
        for major in sorted({name.rpartition(".")[2] for name in files}, key=int, reverse=True):
            pair = f"libcublas.so.{major}", f"libcublasLt.so.{major}"
            if all(name in files for name in pair):
                return {name: files[name] for name in pair}
    return {}


def _nvidia_libraries() -> dict[Path, str]:
    """Each file with the name by which programs load it: libcuda.so.1, not libcuda.so or the full version."""
    found: dict[Path, str] = {}
    for name, path in _cache().items():
        if name.startswith(_NVIDIA) and (path not in found or _rank(name) < _rank(found[path])):
            found[path] = name
    return found


def _rank(name: str) -> int:
    """Prefer one number after `.so`, as linkers do; the driver loads its own parts by full version."""
    version = name.partition(".so")[2]
    return {1: 0, 0: 2}.get(version.count("."), 1)


@functools.lru_cache(maxsize=1)
def _cache() -> dict[str, Path]:
    """The loader's cache for this architecture: name -> file, the first of each name."""
    tool = shutil.which("ldconfig", path="/sbin:/usr/sbin:/usr/local/sbin:/bin:/usr/bin")
    return read_cache(run_tool([tool, "-p"]) or "" if tool else "")


def read_cache(text: str) -> dict[str, Path]:
    bits = "x86-64" if os.uname().machine == "x86_64" else "AArch64"
    found: dict[str, Path] = {}
    for name, kind, path in _LINE.findall(text):
        if bits in kind and name not in found:
            # The file itself: the target of a link may not be mounted.
            found[name] = Path(os.path.realpath(path))
    return found
