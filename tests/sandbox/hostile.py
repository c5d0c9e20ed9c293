"""Hostile jobs. Run as a script by the jobs' Python: `hostile.py NAME JSON_ARGUMENTS`.

Each prints one JSON object with what it got that it should not have. Wherever the host can see anything, the tests judge by
that (a token in the output, a hit at a listener, a file, a dead process), and run the same jobs without a sandbox, where they
must succeed. Nothing here touches anything but the canaries that it is given.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import json
import mmap
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
REFUSED = (errno.EPERM, errno.ENOSYS)


def syscall(number, *arguments):
    """Result and errno of a raw system call."""
    ctypes.set_errno(0)
    libc.syscall.restype = ctypes.c_long
    values = [a if isinstance(a, (ctypes.c_void_p, ctypes.Array, bytes)) else ctypes.c_long(a) for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *values)
    return result, ctypes.get_errno()


def read_all(paths):
    got = {}
    for path in paths:
        with contextlib.suppress(OSError):
            if os.path.isdir(path):
                got[path] = os.listdir(path)
            else:
                with open(path, "rb") as file:
                    got[path] = file.read(4096).decode(errors="replace")
    return got


def openable(paths, flags):
    """The paths that can be opened with these flags."""
    got = {}
    for path in paths:
        with contextlib.suppress(OSError):
            os.close(os.open(path, flags))
            got[path] = "opened"
    return got


def succeeding(attempts):
    """The names of the attempts that raise nothing."""
    got = {}
    for name, attempt in attempts.items():
        with contextlib.suppress(OSError, ValueError):
            attempt()
            got[name] = "done"
    return got


def status_of(pid):
    with open(f"/proc/{pid}/status") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


# ------------------------------------------------------------------ the owner's files and secrets
def read_shadow():
    paths = ["/etc/shadow", "/etc/gshadow", "/etc/ssh", "/root", "/home", "/var/log", "/etc/machine-id"]
    return read_all(paths + [f"/proc/1/root{path}" for path in paths] + [f"/../..{path}" for path in paths])


def read_secrets(paths):
    return read_all(paths + [f"/proc/1/root{p}" for p in paths] + [f"/proc/self/root/..{p}" for p in paths])


def env_secret():
    return read_all(["/proc/self/environ", *glob.glob("/proc/[0-9]*/environ")]) | {"env": dict(os.environ)}


def command_lines_and_stay():
    print(json.dumps(read_all(glob.glob("/proc/[0-9]*/cmdline"))), flush=True)
    time.sleep(20)


def fd_leak():
    got = {}
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2:
            with contextlib.suppress(OSError):
                got[name] = [os.readlink(f"/proc/self/fd/{fd}"), os.pread(fd, 200, 0).decode(errors="replace")]
    return got


def keyring(name):
    got = {}
    for ring in (-1, -2, -3, -4, -5):
        key, _ = syscall(250, 10, ring, b"user", name.encode(), 0)  # KEYCTL_SEARCH
        if key > 0:
            buffer = ctypes.create_string_buffer(200)
            syscall(250, 11, key, buffer, 200)  # KEYCTL_READ
            got[str(ring)] = buffer.value.decode()
    return got


def shm_ipc(shmid, path):
    got = read_all([path, *glob.glob("/dev/shm/*")])
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(shmid, None, 0)
    if address and address != ctypes.c_void_p(-1).value:
        got["sysv"] = ctypes.string_at(address, 64).split(b"\0")[0].decode()
    return got


# ------------------------------------------------------------------ the host's processes
def host_procs():
    return {name: read_all([f"/proc/{name}/cmdline"]) for name in os.listdir("/proc") if name.isdigit()}


def kill_host():
    pid = int(sys.stdin.readline())
    got = {}
    for target in (pid, -pid):
        with contextlib.suppress(OSError):
            os.kill(target, signal.SIGKILL)
            got[str(target)] = "signalled"
    if os.environ.get("HOSTILE_KILL_ALL") == "1":
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.close(os.pidfd_open(pid))
        got["pidfd"] = "opened"
    # The number can be one of this namespace by chance.
    return got if os.path.exists(f"/proc/{pid}") or "pidfd" in got else {}


def ptrace_init():
    got = {}
    for request, name in ((16, "attach"), (0x4206, "seize")):
        result, error = syscall(101, request, 1, 0, 0)
        if result == 0 or error not in REFUSED:
            got[name] = os.strerror(error)
    return got


def init_confinement():
    """bubblewrap's init shares the job's uid, so the job can write its memory: it must be as confined as the job."""
    facts = status_of(1)
    wanted = {"Seccomp": "2", "NoNewPrivs": "1", "CapEff": "0" * 16, "CapPrm": "0" * 16, "CapBnd": "0" * 16}
    got = {name: facts[name] for name, value in wanted.items() if facts[name] != value}
    for name in os.listdir("/proc/1/fd"):
        link = os.readlink(f"/proc/1/fd/{name}")
        if int(name) > 2 and "eventfd" not in link:
            got[f"fd {name}"] = link
    for name in os.listdir("/proc/1/ns"):
        if os.readlink(f"/proc/1/ns/{name}") != os.readlink(f"/proc/self/ns/{name}"):
            got[f"namespace {name}"] = "another"
    return got


def raise_priority():
    got = succeeding(
        {
            "nice": lambda: os.setpriority(os.PRIO_PROCESS, 0, -10),
            "realtime": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10)),
            "files": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20)),
            "file size": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1)),
            "core": lambda: resource.setrlimit(resource.RLIMIT_CORE, (-1, -1)),
        }
    )
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000")
        file.flush()
        got["oom_score_adj"] = "-1000"
    return got


def raise_priority_and_stay():
    print(json.dumps(raise_priority()), flush=True)
    sys.stdin.read()
    return {}


# ------------------------------------------------------------------ the kernel
def kernel_logs():
    paths = ("/dev/kmsg", "/proc/kmsg", "/proc/kcore", "/dev/mem", "/dev/kmem", "/dev/port")
    got = openable(paths, os.O_RDONLY | os.O_NONBLOCK)
    buffer = ctypes.create_string_buffer(4096)
    if libc.klogctl(3, buffer, 4096) > 0:
        got["syslog"] = buffer.value.decode(errors="replace")[:200]
    with contextlib.suppress(OSError), open("/proc/kallsyms") as file:
        if any(int(line.split()[0], 16) for _, line in zip(range(200), file, strict=False)):
            got["kallsyms"] = "shows addresses"
    return got


def denied_calls(numbers, refusals=("EPERM",)):
    """Every number must be refused before the kernel looks at the (invalid) arguments."""
    got = {}
    for name, number in numbers.items():
        result, error = syscall(number, -1, -1, -1, -1, -1, -1)
        if result != -1 or errno.errorcode.get(error) not in refusals:
            got[name] = [result, errno.errorcode.get(error, error)]
    return got


def clone3():
    result, error = syscall(435, ctypes.create_string_buffer(88), 88)
    return {} if (result, error) == (-1, errno.ENOSYS) else {"clone3": [result, error]}


def x32():
    result, error = syscall(39 | 0x40000000)
    return {} if (result, error) == (-1, errno.ENOSYS) else {"x32": [result, error]}


def foreign_arch():
    """getpid by int 0x80, the 32-bit gate with its own numbers. Ends with SIGSYS if the gate is closed."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    return {"int80": ctypes.CFUNCTYPE(ctypes.c_int)(address)()}


def user_namespaces():
    got = {}
    for name, flag in {"user": 0x10000000, "net": 0x40000000, "mount": 0x20000, "pid": 0x20000000}.items():
        for combined in {flag, flag | 0x10000000}:
            if syscall(272, combined)[0] == 0:
                got[f"unshare {name}"] = "done"
            pid, _ = syscall(56, combined | signal.SIGCHLD, 0, 0, 0, 0)
            if pid == 0:
                os._exit(0)
            if pid > 0:
                os.waitpid(pid, 0)
                got[f"clone {name}"] = "done"
    for path in glob.glob("/proc/1/ns/*"):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY)
            if syscall(308, fd, 0)[0] == 0:
                got[f"setns {path}"] = "done"
            os.close(fd)
    return got


def socket_families():
    got = {}
    for family in range(46):
        if family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
            continue
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            with contextlib.suppress(OSError):
                socket.socket(family, kind).close()
                got[str(family)] = kind
    return got


def terminal_injection():
    """Only EPERM counts: for a pipe the kernel itself answers ENOTTY."""
    got = {}
    for name, command in {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C, "TIOCSETD": 0x5423}.items():
        result, error = syscall(16, 0, command, ctypes.create_string_buffer(8))
        # The kernel ignores the upper half of the command.
        high, high_error = syscall(16, 0, command | 1 << 32, ctypes.create_string_buffer(8))
        if (result, error, high, high_error) != (-1, errno.EPERM, -1, errno.EPERM):
            got[name] = [result, error, high, high_error]
    return got


# ------------------------------------------------------------------ devices, mounts, privileges
def devices():
    got = {}
    allowed = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd", "stdin", "stdout"}
    for name in set(os.listdir("/dev")) - allowed - {"stderr", "core", "console"}:
        got[name] = "there"
    paths = ("kvm", "fuse", "net/tun", "vda", "sda", "loop-control", "vsock")
    got |= openable([f"/dev/{path}" for path in paths], os.O_RDWR | os.O_NONBLOCK)
    for folder in (".", "/tmp", "/dev/shm"):
        for kind in (stat.S_IFBLK, stat.S_IFCHR):
            with contextlib.suppress(OSError):
                os.mknod(f"{folder}/device", 0o666 | kind, os.makedev(1, 1))
                os.close(os.open(f"{folder}/device", os.O_RDWR))
                got[f"mknod {folder}"] = "opened"
    return got


def mounts():
    got = {}
    calls = {
        "tmpfs": (b"none", b"/tmp", b"tmpfs", 0),
        "remount /usr": (None, b"/usr", None, 32 | 4096),
        "remount /": (None, b"/", None, 32),
        "bind /proc": (b"/proc/1/root", b"/tmp", None, 4096),
        "proc": (b"proc", b"/tmp", b"proc", 0),
        "cgroup": (b"none", b"/tmp", b"cgroup2", 0),
    }
    for name, (source, target, kind, flags) in calls.items():
        if libc.mount(source, target, kind, ctypes.c_ulong(flags), None) == 0:
            got[name] = "mounted"
    for target in (b"/usr", b"/proc", b"/tmp", b"/job"):
        if libc.umount2(target, 2) == 0:
            got[f"umount {target.decode()}"] = "done"
    got |= succeeding({"chroot": lambda: os.chroot("/tmp")})
    if syscall(430, b"tmpfs", 0)[0] >= 0:
        got["fsopen"] = "done"
    return got


def privileges():
    got = succeeding(
        {
            "setuid": lambda: os.setuid(0),
            "setresuid": lambda: os.setresuid(0, 0, 0),
            "setgid": lambda: os.setgid(0),
            "setgroups": lambda: os.setgroups([0]),
            "chown": lambda: os.chown(".", 0, 0),
        }
    )
    for command in (["su", "-c", "id -u"], ["sudo", "-n", "id", "-u"], ["newgrp"], ["mount"], ["umount", "/tmp"]):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            ran = subprocess.run(
                command, capture_output=True, timeout=5, stdin=subprocess.DEVNULL, text=True, check=False
            )
            if ran.stdout.strip() == "0":
                got[" ".join(command)] = "root"
    facts = status_of("self")
    for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"):
        if int(facts.get(name, "0"), 16):
            got[name] = facts[name]
    if facts.get("NoNewPrivs", "1") != "1" or facts["Seccomp"] != "2" or os.getuid() == 0:
        got["status"] = [facts.get("NoNewPrivs"), facts["Seccomp"], os.getuid()]
    return got


def write_host(paths):
    got = {}
    for path in [*paths, *(f"/proc/1/root{path}" for path in paths)]:
        with contextlib.suppress(OSError):
            with open(path, "w") as file:
                file.write("hostile")
            got[path] = "written"
    programs = ("/proc/1/exe", "/proc/self/exe", "/usr/bin/env", "/bin/sh", "/etc/passwd")
    return got | openable(programs, os.O_WRONLY)


def write_runtime():
    """Change what all jobs share, and leave something there for the next job."""
    got = {}
    for top in ("/usr", "/opt/python", "/etc"):
        for folder, folders, files in os.walk(top):
            del folders[8:]
            for name in files[:3]:
                path = os.path.join(folder, name)
                got |= succeeding(
                    {
                        f"write {path}": lambda path=path: os.open(path, os.O_WRONLY),
                        f"chmod {path}": lambda path=path: os.chmod(path, 0o777),
                        f"rename {path}": lambda path=path: os.rename(path, path + "x"),
                        f"unlink {path}": lambda path=path: os.unlink(path),
                    }
                )
            left = os.path.join(folder, "left-behind")
            got |= succeeding({f"create in {folder}": lambda left=left: os.mkdir(left)})
    return got


def write_proc():
    paths = (
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/overcommit_memory",
        "/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/proc/sys/fs/binfmt_misc/register",
        "/sys/fs/cgroup/memory/release_agent", "/sys/kernel/uevent_helper",
        "/proc/sys/user/max_user_namespaces",
    )  # fmt: skip
    there = {path: "there" for path in ("/sys/fs/cgroup", "/sys/kernel") if os.path.exists(path)}
    return openable(paths, os.O_WRONLY) | there


# ------------------------------------------------------------------ the network
def connect_inet(targets):
    got = {}
    for host, port in targets:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, kind) as client, contextlib.suppress(OSError):
                client.settimeout(1)
                client.connect((host, port))
                client.send(b"hostile")
                got[f"{host}:{port} {kind.name}"] = "connected"
    return got


def network_outside():
    got = {}
    with contextlib.suppress(OSError):
        got |= {name: "interface" for _, name in socket.if_nameindex() if name != "lo"}
    with contextlib.suppress(OSError), open("/proc/net/dev") as file:
        names = [line.partition(":")[0].strip() for line in file.readlines()[2:]]
        got |= {name: "interface" for name in names if name != "lo"}
    got |= succeeding(
        {
            "raw": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close(),
            "packet": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close(),
        }
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client, contextlib.suppress(OSError):
        client.connect(("192.0.2.1", 53))  # An address for documentation: needs a route, but sends nothing.
        got["route"] = client.getsockname()[0]
    with contextlib.suppress(OSError):
        got["dns"] = socket.getaddrinfo("computepool-canary.invalid", 80)
    return got


def connect_unix(abstract, path):
    got = {}
    for address in (
        f"\0{abstract}",
        path,
        "/var/run/docker.sock",
        "/run/systemd/private",
        "/run/dbus/system_bus_socket",
    ):
        with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
            client.connect(address)
            client.send(b"hostile")
            got[address.replace("\0", "@")] = "connected"
    return got


if __name__ == "__main__":
    found = globals()[sys.argv[1]](*json.loads(sys.argv[2]))
    sys.stdout.write(json.dumps(found, default=str) + "\n")
    sys.stdout.flush()
    os._exit(0)
