"""The program runsc (gVisor): where it is, whether it is new enough, and the bundle from which it runs a job.

Owns the flags and the OCI configuration. Knows nothing of slots or of how a job ends.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from computepool.agent.sandbox.backends import seccomp
from computepool.agent.sandbox.base import MIB, Command, Limits, SandboxError, SandboxPolicy
from computepool.agent.sandbox.interior import IMAGE_SCRATCH, WORK, atomic_folder, system_links

#: Where scripts/install-runsc.sh puts it for all users. One on PATH comes first if it is new enough.
FOLDER = "/usr/local/lib/computepool"
#: Older ones lack systrap, break `stat` on new kernels and take the host's /dev/null for themselves.
OLDEST = "20240101"

#: Rootless: every part of it runs as the user that starts it, in namespaces of its own. No cgroups, because it is in the
#: agent's own. systrap needs neither KVM nor ptrace. Without overlays nothing is written beside the rootfs. directfs would
#: let the user-space kernel open the host's files by itself; without it only its gofer can.
FLAGS = (
    "--rootless", "--network=none", "--ignore-cgroups", "--platform=systrap", "--overlay2=none", "--directfs=false",
    "--host-uds=none", "--host-fifo=none", "--oci-seccomp", "--log-format=json",
)  # fmt: skip

#: The job's user inside. Rootless there is one uid outside (the slot's, never root), and inside the files of the work
#: folder can only belong to this one. It has no capabilities and cannot get any.
UID = 0

_CAPABILITY_SETS = ("bounding", "effective", "inheritable", "permitted", "ambient")
_EMPTY_FOLDERS = ("usr", "etc", "proc", "dev", "sys", "tmp", "run", "var/tmp", WORK.strip("/"))
_ANSWER_S = 10.0
#: Address space that a process may reserve beyond the memory limit if there is no cgroup.
_RESERVED_MB = 512


@dataclass(frozen=True, slots=True)
class Runsc:
    path: str
    release: str  #: the day of its release, as YYYYMMDD


_FIX = (
    "install runsc (gVisor) of 2024 or later: Debian 13's package runsc, or on Debian 12 "
    f"`sudo scripts/install-runsc.sh {FOLDER}` of ComputePool's sources"
)


def find() -> Runsc:
    """The first on PATH that is usable, else the one that our script installed. Raises SandboxError."""
    folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), FOLDER]
    paths = [os.path.join(folder, "runsc") for folder in dict.fromkeys(folders) if os.path.isabs(folder)]
    reasons = []
    for path in paths:
        if os.access(path, os.X_OK) and os.path.isfile(path):
            judged = _judge(path, os.stat(path).st_mtime_ns)
            if isinstance(judged, Runsc):
                return judged
            reasons.append(judged)
    raise SandboxError("; ".join(reasons) or "runsc (gVisor) is not installed", _FIX)


@functools.lru_cache(maxsize=16)
def _judge(path: str, modified_ns: int) -> Runsc | str:
    """The program, or why it is not usable. Cached by path and modification time."""
    found = re.search(r"\b(20\d{6})\b", ask(path, "--version"))
    if found is None:
        return f"{path} does not tell its version"
    release = found.group(1)
    if release < OLDEST:
        return f"{path} is of {release[:4]}, and 2024 is the oldest that is usable"
    if "systrap" not in ask(path, "help", "platforms").split():
        return f"{path} has no platform systrap"
    return Runsc(path, release)


def ask(*command: str) -> str:
    """The output of a program; empty if it does not run."""
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout + ran.stderr


def nvproxy_reason(path: str, driver: str) -> str:
    """Why this runsc cannot pass on cards of this driver; empty if it can. It supports only exact versions."""
    if not driver:
        return "there is no NVIDIA driver, and runsc passes on no other GPUs"
    known = ask(path, "nvproxy", "list-supported-drivers").split()
    if driver in known:
        return ""
    newest = max(known, key=_version, default="none at all")
    return f"{path} does not know the NVIDIA driver {driver} (the newest that it knows: {newest})"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def rootfs(cache_dir: Path, places: Mapping[str, Path]) -> Path:
    """An empty root with the folders (or files) to mount on. `places`: path inside -> what is mounted there.

    The job sees it read-only. runsc itself would create missing mount points in the host's folder.
    """
    kinds = {place: outside.is_file() for place, outside in places.items()}
    links = system_links()
    digest = hashlib.sha256(repr((sorted(kinds.items()), sorted(links.items()))).encode()).hexdigest()[:16]
    final = cache_dir / f"rootfs-{digest}"
    with atomic_folder(final) as folder:
        if folder is not None:
            for name in _EMPTY_FOLDERS:
                (folder / name).mkdir(mode=0o755, parents=True, exist_ok=True)
            for path, target in links.items():
                (folder / path.strip("/")).symlink_to(target)
            for place, is_file in kinds.items():
                point = folder / os.path.normpath(place).lstrip("/")
                (point.parent if is_file else point).mkdir(mode=0o755, parents=True, exist_ok=True)
                if is_file:
                    point.touch(mode=0o644)
    return final


def configuration(
    command: Command, env: Mapping[str, str], *, root: Path, read_only: Mapping[str, str], cwd: str, memory_inside: bool
) -> dict[str, Any]:
    """config.json of one job. `memory_inside`: no cgroup limits the memory, so each process gets a limit."""
    limits, workdir, devices = command.limits, command.workdir, command.policy.gpus
    rlimits = {
        "CORE": 0,
        "NOFILE": max(64, limits.open_files),
        "NPROC": limits.pids,
        # A work folder with a file system of its own must be full first: ENOSPC is kinder than a signal.
        "FSIZE": limits.disk_mb * MIB * (2 if os.path.ismount(workdir) else 1),
    }
    if memory_inside:
        # gVisor counts only address space, of which programs reserve more than they use.
        rlimits["AS"] = (limits.memory_mb + _RESERVED_MB) * MIB
    return {
        "ociVersion": "1.0.0",
        "root": {"path": str(root), "readonly": True},
        "hostname": "job",
        "process": {
            "user": {"uid": UID, "gid": UID},
            "args": list(command.argv),
            "env": [f"{name}={value}" for name, value in env.items()],
            "cwd": cwd,
            "noNewPrivileges": True,
            "capabilities": {name: [] for name in _CAPABILITY_SETS},
            "rlimits": [{"type": f"RLIMIT_{name}", "soft": value, "hard": value} for name, value in rlimits.items()],
        },
        "mounts": [
            *_mounts(read_only, workdir, limits, scratch=command.policy.image is not None),
            *_volumes(command.policy),
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")],
            "seccomp": seccomp.oci(),
            **({"devices": [_device(path) for path in devices]} if devices else {}),
        },
    }


def _device(path: str) -> dict[str, Any]:
    number = os.stat(path).st_rdev
    return {
        "path": path,
        "type": "c",
        "major": os.major(number),
        "minor": os.minor(number),
        "fileMode": 0o666,
        "uid": UID,
        "gid": UID,
    }


def _mounts(read_only: Mapping[str, str], workdir: Path, limits: Limits, *, scratch: bool) -> list[dict[str, Any]]:
    tmp = f"size={limits.tmp_mb * MIB}"
    return [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        # Not read-only: gVisor would then refuse to write to /dev/null too. It ignores a size here; what a job puts there
        # counts as its memory.
        _tmpfs("/dev", "mode=0755"),
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]},
        _tmpfs("/dev/shm", tmp, "mode=1777"),
        _tmpfs("/tmp", tmp, "mode=1777"),
        *(_tmpfs(folder, tmp, "mode=1777") for folder in (IMAGE_SCRATCH if scratch else ())),
        *(_bind(outside, inside, "ro") for inside, outside in read_only.items()),
        _bind(str(workdir), WORK, "rw"),
    ]


def _volumes(policy: SandboxPolicy) -> list[dict[str, Any]]:
    return [
        _bind(str(folder), inside, "rw" if writable else "ro") for folder, (inside, writable) in policy.volumes.items()
    ]


def _tmpfs(destination: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", *options]}


def _bind(source: str, destination: str, mode: str) -> dict[str, Any]:
    return {"destination": destination, "type": "bind", "source": source, "options": ["rbind", mode, "nosuid", "nodev"]}
