"""Level `container`: the job runs in a container made by runc, the program behind Docker and podman.

Owns what differs from gvisor.py, which starts jobs in the same way. It does not use Docker or podman: they add a daemon or
a monitor, a cgroup of their own and 150 ms to each start, Docker cannot pass on the descriptors that workers need, and the
isolation is runc's in any case. runc runs without root, with the slot's uid.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from computepool.agent.sandbox.backends.gvisor import LOG_FD, GvisorSandbox
from computepool.agent.sandbox.backends.runsc import ask
from computepool.agent.sandbox.base import SandboxError, SandboxPolicy
from computepool.agent.sandbox.interior import hidden_files
from computepool.agent.sandbox.slots import Footprint
from computepool.agent.sandbox.supervise import Process
from computepool.core.isolation import Level

#: Where Docker and podman put it.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FIX = "install runc, which comes with Docker and with podman: sudo apt install runc"
_OLDEST = (1, 1)
#: The first process of a container ignores signals that it sends to itself, so the job is the second.
_SHELL = "/bin/sh"
_INIT = ("-c", '"$@"; exit $?', "init")
_FIRST_FD = 3
#: As Docker does it: files that reveal the host, and files that could change it if everything else failed.
_MASKED = (
    "/proc/acpi", "/proc/kcore", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list",
    "/proc/timer_stats",
)  # fmt: skip
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


class ContainerSandbox(GvisorSandbox):
    level = Level.CONTAINER
    #: runc waits beside the job, with some ten threads.
    footprint = Footprint(pids=32, processes=3, memory_mb=32, limits_inside=True)
    process = Process
    not_started = 1  #: the job's own exit code may be the same, but then the log is empty
    ambiguous_codes = (126, 127)  #: the shell's, for a command that it cannot run

    def _find_program(self) -> tuple[str, str]:
        path = shutil.which("runc", path=_PATH)
        if path is None:
            raise SandboxError("runc is not installed", _FIX)
        return path, f"{path} of {_usable_version(path)}, rootless"

    def _cards_reason(self) -> str:
        return "that was never tried"

    def _adapt(self, spec: dict[str, Any], policy: SandboxPolicy, *, uid: int) -> None:
        """Add a user namespace in which the slot's uid is 0 without any capabilities."""
        process = spec["process"]
        shell = [_SHELL] if policy.image is None else self._node_program("bin/sh")
        process["args"] = [*shell, *_INIT, *process["args"]]
        for limit in process["rlimits"]:
            if limit["type"] == "RLIMIT_NPROC":
                limit["soft"] = limit["hard"] = limit["hard"] + 1  # The first process is not the job's.
            elif limit["type"] == "RLIMIT_AS":
                limit["type"] = "RLIMIT_DATA"  # The host's kernel counts what is written; runc itself reserves more.
        linux = spec["linux"]
        linux["namespaces"].append({"type": "user"})
        linux["uidMappings"] = [{"containerID": 0, "hostID": uid, "size": 1}]
        group = uid if os.geteuid() == 0 else os.getegid()
        linux["gidMappings"] = [{"containerID": 0, "hostID": group, "size": 1}]
        linux["maskedPaths"], linux["readonlyPaths"] = [*_MASKED, *hidden_files()], list(_READ_ONLY)
        spec["mounts"] = [mount for mount in spec["mounts"] if mount["destination"] != "/sys"]
        for mount in spec["mounts"]:
            if mount["destination"] == "/dev":
                mount["options"] = [*mount["options"], "ro"]

    def _fds(self, policy: SandboxPolicy) -> Mapping[int, int | None]:
        """runc passes on all descriptors up to a number; gaps are filled with /dev/null."""
        last = max(policy.fds, default=_FIRST_FD - 1)
        return dict.fromkeys(range(_FIRST_FD, last + 1)) | dict(policy.fds)

    def _command(self, folder: Path, policy: SandboxPolicy) -> list[str]:
        log = ["--log", f"/proc/self/fd/{LOG_FD}", "--log-format", "json"]
        passed = f"--preserve-fds={len(self._fds(policy))}"
        return [self._path, *log, "--root", str(folder), "run", passed, "--bundle", str(folder), "job"]


@functools.lru_cache(maxsize=4)
def _usable_version(path: str) -> str:
    """Raises SandboxError if this runc is too old or does not run."""
    output = ask(path, "--version")
    if not output:
        raise SandboxError(f"{path} does not run", _FIX)
    found = re.search(r"version (\d{1,9})\.(\d{1,9})\S*", output)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST:
        raise SandboxError(f"{path} is older than {'.'.join(map(str, _OLDEST))}", _FIX)
    return found[0].removeprefix("version ")
