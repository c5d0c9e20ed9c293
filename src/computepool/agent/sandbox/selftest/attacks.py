"""The hostile jobs of the self-test. Run as a script inside a sandbox, by the jobs' own Python.

Each attack prints one JSON object: what it got hold of, empty if nothing. The agent judges the result and also looks for
traces on the host. Standard library only, and nothing from the project.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

_FORK_TRIES = 60
_FORK_PAUSE_S = 0.05
#: Where only the patrol limits memory, it has to come by.
_HOLD_S = 1.5

#: name -> numbers on x86_64 and aarch64; arguments that are harmless if the call gets through.
_CALLS: dict[str, tuple[tuple[int, int], tuple[int, ...]]] = {
    "unshare": ((272, 97), (0x1000_0000,)),
    "ptrace": ((101, 117), (0x4206, 1, 0, 0)),  # PTRACE_SEIZE, which does not stop it
    "keyctl": ((250, 219), (0, -3, 0)),
    "bpf": ((321, 280), (0, 0, 0)),
    "mount": ((165, 40), (0, 0, 0, 0, 0)),
    "io_uring_setup": ((425, 425), (1, 0)),
    "perf_event_open": ((298, 241), (0, 0, -1, -1, 0)),
    "process_vm_readv": ((310, 270), (1, 0, 0, 0, 0, 0)),
}
_REFUSALS = (errno.EPERM, errno.ENOSYS)


def files(secret: str, *programs: str) -> dict[str, str]:
    """Read what belongs to the owner. `programs`: what the owner has installed, which is nobody's business."""
    found = {path: "is there" for path in programs if os.path.exists(path)}
    for path in (secret, "/etc/shadow", "/root", "/home", f"/proc/1/root{secret}"):
        try:
            found[path] = str(os.listdir(path)) if os.path.isdir(path) else _read(path)
        except OSError:
            continue
    return found


def _read(path: str) -> str:
    with open(path) as opened:
        return opened.read(200)


def processes(pid: str) -> dict[str, str]:
    """See a process of the host."""
    found = {}
    if len([name for name in os.listdir("/proc") if name.isdigit()]) > 4:
        found["/proc"] = "shows processes of the host"
    try:
        # The number may belong to a process of the sandbox; what it runs then is not what the host runs.
        with open(f"/proc/{pid}/cmdline") as cmdline:
            if "computepool-canary" in cmdline.read():
                found["canary"] = "visible"
    except OSError:
        pass
    return found


def network(port: str, abstract: str) -> dict[str, str]:
    """Reach a listener of the host, by loopback and by an abstract unix socket."""
    found = {}
    targets: dict[str, tuple[int, Any]] = {
        "loopback": (socket.AF_INET, ("127.0.0.1", int(port))),
        "abstract": (socket.AF_UNIX, f"\0{abstract}"),
    }
    for name, (family, address) in targets.items():
        with socket.socket(family) as client:
            client.settimeout(0.5)
            try:
                client.connect(address)
                found[name] = "connected"
                client.send(abstract.encode())
            except OSError:
                continue
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
        try:
            socket.socket(family, socket.SOCK_RAW if family == 17 else socket.SOCK_DGRAM).close()
            found[f"socket family {family}"] = "opened"
        except OSError:
            continue
    return found


def kernel(version: str) -> dict[str, str]:
    """Talk to the host's own kernel."""
    return {"kernel": version} if os.uname().version == version else {}


def stay() -> dict[str, str]:
    """Run while the agent looks at this job from outside."""
    sys.stdout.write("here\n")
    sys.stdout.flush()
    sys.stdin.read()
    return {}


def privileges(*also: str) -> dict[str, str]:
    """Be more than nobody. `also`: facts that only a sandbox on the host's kernel shows."""
    with open("/proc/self/status") as status:
        facts = {name: value.strip() for name, _, value in (line.partition(":") for line in status)}
    expected = {"CapEff": "0000000000000000", "CapBnd": "0000000000000000", "Seccomp": "2"}
    if "NoNewPrivs" in also:
        expected["NoNewPrivs"] = "1"
    found = {name: facts.get(name, "?") for name, value in expected.items() if facts.get(name) != value}
    if "uid" in also and os.getuid() == 0:
        found["uid"] = "0"
    try:
        os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
        found["core_pattern"] = "writable"
    except OSError:
        pass
    return found


def writes(*paths: str) -> dict[str, str]:
    """Leave a file on the host."""
    found = {}
    for path in paths:
        try:
            with open(path, "w") as out:
                out.write("here")
            found[path] = "written"
        except OSError:
            continue
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
    """Have more processes than allowed."""
    count = 0
    try:
        for _ in range(int(limit) + 32):
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            count += 1
    except OSError:
        pass
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
    """Without cgroups the limit counts every process of the user, and the fork bomb runs beside this."""
    for _ in range(_FORK_TRIES):
        try:
            return os.fork()
        except BlockingIOError:
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
