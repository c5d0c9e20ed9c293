"""The hostile jobs of the self-test: a script that the jobs' own Python runs inside a sandbox.

Each attack returns what it achieved, empty if nothing; the script prints all as one JSON object. The agent judges them, and
also looks for traces on the host. Standard library only, and nothing of the project.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FORK_TRIES = 60
_FORK_PAUSE_S = 0.05
#: How long to hold memory: without cgroups only the patrol limits it.
_HOLD_S = 1.5

#: Name -> numbers on x86_64 and aarch64, and arguments that are harmless if the call is not refused.
_CALLS: dict[str, tuple[tuple[int, int], tuple[int, ...]]] = {
    "unshare": ((272, 97), (0x1000_0000,)),
    "ptrace": ((101, 117), (0x4206, 1, 0, 0)),  # PTRACE_SEIZE, which does not stop the process
    "keyctl": ((250, 219), (0, -3, 0)),
    "bpf": ((321, 280), (0, 0, 0)),
    "mount": ((165, 40), (0, 0, 0, 0, 0)),
    "io_uring_setup": ((425, 425), (1, 0)),
    "perf_event_open": ((298, 241), (0, 0, -1, -1, 0)),
    "process_vm_readv": ((310, 270), (1, 0, 0, 0, 0, 0)),
}
_REFUSALS = (errno.EPERM, errno.ENOSYS)


def files(secret: str, *programs: str) -> dict[str, str]:
    """Read the owner's files, and find out which of these programs the owner has installed."""
    found = {path: "exists" for path in programs if os.path.exists(path)}
    for path in (secret, "/etc/shadow", "/root", "/home", f"/proc/1/root{secret}"):
        with contextlib.suppress(OSError):
            found[path] = str(os.listdir(path)) if os.path.isdir(path) else Path(path).read_text()[:200]
    return found


def processes(pid: str) -> dict[str, str]:
    """See a process of the host."""
    found = {}
    if len([name for name in os.listdir("/proc") if name.isdigit()]) > 4:
        found["/proc"] = "shows processes of the host"
    with contextlib.suppress(OSError):
        # The number may belong to a process of the sandbox, which runs something else.
        if "computepool-canary" in Path(f"/proc/{pid}/cmdline").read_text():
            found["canary"] = "visible"
    return found


def network(port: str, abstract: str) -> dict[str, str]:
    """Reach a listener of the host, by loopback and by an abstract unix socket."""
    found = {}
    targets: dict[str, tuple[int, Any]] = {
        "loopback": (socket.AF_INET, ("127.0.0.1", int(port))),
        "abstract": (socket.AF_UNIX, f"\0{abstract}"),
    }
    for name, (family, address) in targets.items():
        with socket.socket(family) as client, contextlib.suppress(OSError):
            client.settimeout(0.5)
            client.connect(address)
            found[name] = "connected"
            client.send(abstract.encode())
    return found


def calls() -> dict[str, str]:
    """Use system calls that lead out of the namespaces."""
    found = {}
    libc = ctypes.CDLL(None, use_errno=True)
    column = 1 if platform.machine() == "aarch64" else 0
    for name, (numbers, arguments) in _CALLS.items():
        ctypes.set_errno(0)
        libc.syscall(*(ctypes.c_long(value) for value in (numbers[column], *arguments)))
        if ctypes.get_errno() not in _REFUSALS:
            found[name] = os.strerror(ctypes.get_errno())
    for family in (16, 17, 38, 40):  # NETLINK, PACKET, ALG, VSOCK
        with contextlib.suppress(OSError):
            socket.socket(family, socket.SOCK_RAW if family == 17 else socket.SOCK_DGRAM).close()
            found[f"socket family {family}"] = "opened"
    return found


def kernel(version: str) -> dict[str, str]:
    """Reach the host's own kernel."""
    return {"kernel": version} if os.uname().version == version else {}


def stay() -> dict[str, str]:
    """Stay while the agent inspects this job from outside."""
    sys.stdout.write("here\n")
    sys.stdout.flush()
    sys.stdin.read()
    return {}


def privileges(*also: str) -> dict[str, str]:
    """Have privileges. `also`: facts to check that only the host's kernel shows."""
    status = Path("/proc/self/status").read_text().splitlines()
    facts = {name: value.strip() for name, _, value in (line.partition(":") for line in status)}
    expected = {"CapEff": "0000000000000000", "CapBnd": "0000000000000000", "Seccomp": "2"}
    if "NoNewPrivs" in also:
        expected["NoNewPrivs"] = "1"
    found = {name: facts.get(name, "?") for name, value in expected.items() if facts.get(name) != value}
    if "uid" in also and os.getuid() == 0:
        found["uid"] = "0"
    with contextlib.suppress(OSError):
        os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
        found["core_pattern"] = "writable"
    return found


def writes(*paths: str) -> dict[str, str]:
    """Leave a file on the host."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            Path(path).write_text("here")
            found[path] = "written"
    return found


def memory(limit_mb: str) -> dict[str, str]:
    """Take twice the memory that is allowed."""
    try:
        held = b"x" * (int(limit_mb) << 21)
    except MemoryError:
        return {}
    time.sleep(_HOLD_S)
    return {"memory": f"got {len(held) >> 20} MB"}


def forks(limit: str) -> dict[str, str]:
    """Start more processes than allowed."""
    count = 0
    with contextlib.suppress(OSError):
        for _ in range(int(limit) + 32):
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            count += 1
    return {"forks": str(count)} if count >= int(limit) else {}


def daemon(marker: str) -> dict[str, str]:
    """Leave a process behind that outlives the job."""
    if _fork() == 0:
        os.setsid()
        if _fork() == 0:
            os.execv("/bin/sleep", [marker, "60"])
        os._exit(0)
    os.wait()
    return {}


def _fork() -> int:
    """Fork, even while the fork bomb runs: without cgroups the limit counts every process of the user."""
    for _ in range(_FORK_TRIES):
        with contextlib.suppress(BlockingIOError):
            return os.fork()
        time.sleep(_FORK_PAUSE_S)
    return os.fork()


_ATTACKS: dict[str, Callable[..., dict[str, str]]] = {
    attack.__name__: attack
    for attack in (files, processes, network, calls, kernel, stay, privileges, writes, memory, forks, daemon)
}


def main(plan: dict[str, list[Any]]) -> None:
    found = {name: _ATTACKS[name](*map(str, arguments)) for name, arguments in plan.items()}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
