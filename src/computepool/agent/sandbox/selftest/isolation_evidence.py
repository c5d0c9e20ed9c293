"""Isolation evidence: what the host sees of a job's processes, whatever the job reports.

Inside gVisor the sandbox's own kernel answers: a call that "succeeds" there may have done nothing outside.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import psutil

from computepool.agent.sandbox.slots import descendants

#: runsc's names for the process with the user-space kernel and for the one that opens files for it.
_KERNEL, _GOFER = "runsc-sandbox", "runsc-gofer"
#: The file that holds the job's memory.
_MEMORY_FILE = "/memfd:runsc-memory"
_NAMESPACES = ("user", "net", "mnt", "ipc", "uts")
_EXPECTED = {"NoNewPrivs": "1", "Seccomp": "2"}


def gvisor_breaches(root: int) -> str:
    """Breaches of the isolation of processes below `root`, which runs one job at level gvisor; '' if none."""
    kernels = [process for process in descendants(root) if _name(process) == _KERNEL]
    gofers = [process for process in descendants(root) if _name(process) == _GOFER]
    if len(kernels) != 1 or not gofers:
        return f"{len(kernels)} user-space kernels and {len(gofers)} gofers run"
    # The kernel's children run the job's own instructions.
    runners = descendants(kernels[0].pid)
    return _breaches([*kernels, *gofers, *runners]) if runners else "no process runs the job"


def container_breaches(root: int) -> str:
    """The same for a job at level container: all below `root` except runc, which waits outside."""
    inside = [process for process in descendants(root) if os.path.basename(_name(process)) != "runc"]
    return _breaches(inside) if inside else "no process runs the job"


def has_leftovers(root: int) -> bool:
    return any(_name(process) in (_KERNEL, _GOFER) for process in descendants(root))


def memory_bytes(root: int) -> int:
    """Memory of a job at level gvisor and of the processes below `root`, which run it. Used without cgroups.

    The job's memory is one memory file, and the processes map only what they touch, so their resident sizes say little.
    """
    files: dict[int, int] = {}
    private = 0
    for process in descendants(root):
        with contextlib.suppress(psutil.Error, OSError):
            used = process.memory_info()
            private += used.rss - used.shared
            for fd in os.listdir(f"/proc/{process.pid}/fd"):
                path = f"/proc/{process.pid}/fd/{fd}"
                if os.readlink(path).startswith(_MEMORY_FILE):
                    info = os.stat(path)
                    files[info.st_ino] = info.st_blocks * 512
    return private + sum(files.values())


def _breaches(processes: Iterable[psutil.Process]) -> str:
    return "; ".join(sorted({text for process in processes if (text := _breach(process.pid))}))


def _breach(pid: int) -> str:
    with contextlib.suppress(OSError):  # It has ended.
        status = Path(f"/proc/{pid}/status").read_text()
        facts = {name: value.split() for name, _, value in (line.partition(":") for line in status.splitlines())}
        if "0" in facts["Uid"]:
            return "a process runs as root"
        for name, expected in _EXPECTED.items():
            if facts[name] != [expected]:
                return f"a process has {name} {facts[name][0]}"
        for name in _NAMESPACES:
            if os.stat(f"/proc/{pid}/ns/{name}").st_ino == os.stat(f"/proc/self/ns/{name}").st_ino:
                return f"a process is in the host's {name} namespace"
    return ""


def _name(process: psutil.Process) -> str:
    try:
        return (process.cmdline() or [""])[0]
    except psutil.Error:
        return ""
