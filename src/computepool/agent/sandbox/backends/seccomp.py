"""The seccomp filter of a job: a classic BPF program, built with the standard library alone.

It is a deny-list on purpose, because jobs are arbitrary programs. It lists the system calls that reach outside the
namespaces (keyrings, VSOCK, bpf, mounts, tracing) or are a known source of kernel vulnerabilities. A denied call fails with
an errno instead of killing the job, because programs probe for calls.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

#: Name -> numbers on x86_64 and aarch64; None if the architecture has no such call.
DENIED: dict[str, tuple[int | None, int | None]] = {
    "_sysctl": (156, None), "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171),
    "bpf": (321, 280), "chroot": (161, 51), "clock_adjtime": (305, 266), "clock_settime": (227, 112),
    "create_module": (174, None), "delete_module": (176, 106), "fanotify_init": (300, 262),
    "finit_module": (313, 273), "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430),
    "fspick": (433, 433), "get_kernel_syms": (177, None), "init_module": (175, 105),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_uring_setup": (425, 425),
    "ioperm": (173, None), "iopl": (172, None), "kcmp": (312, 272), "kexec_file_load": (320, 294),
    "kexec_load": (246, 104), "keyctl": (250, 219), "listmount": (458, 458), "lookup_dcookie": (212, 18),
    "mbind": (237, 235), "memfd_secret": (447, 447), "migrate_pages": (256, 238), "modify_ldt": (154, None),
    "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429), "move_pages": (279, 239),
    "name_to_handle_at": (303, 264), "nfsservctl": (180, 42), "open_by_handle_at": (304, 265),
    "open_tree": (428, 428), "open_tree_attr": (467, 467), "perf_event_open": (298, 241),
    "personality": (135, 92), "pidfd_getfd": (438, 438), "pivot_root": (155, 41),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "query_module": (178, None),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "reboot": (169, 142), "request_key": (249, 218),
    "set_mempolicy": (238, 237), "set_mempolicy_home_node": (450, 450), "setdomainname": (171, 162),
    "sethostname": (170, 161), "setns": (308, 268), "settimeofday": (164, 170), "statmount": (457, 457),
    "swapoff": (168, 225), "swapon": (167, 224), "sysfs": (139, None), "syslog": (103, 116),
    "umount2": (166, 39), "unshare": (272, 97), "uselib": (134, None), "userfaultfd": (323, 282),
    "ustat": (136, None), "vhangup": (153, 58),
}  # fmt: skip

#: The families of sockets that a job may open. NETLINK, VSOCK (the hypervisor's channel), PACKET and the rest are refused.
SOCKET_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
#: More than any kernel knows.
_FAMILIES_COUNT = 64

#: ioctls that type into the owner's terminal or load line disciplines.
DENIED_IOCTLS = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C, "TIOCSETD": 0x5423}

#: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. (NEWTIME exists only for unshare and clone3.)
CLONE_NEW_MASK = 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000


@dataclass(frozen=True, slots=True)
class Arch:
    audit: int
    column: int
    clone: int
    socket: int
    socketpair: int
    ioctl: int


ARCHES = {
    "x86_64": Arch(audit=0xC000_003E, column=0, clone=56, socket=41, socketpair=53, ioctl=16),
    "aarch64": Arch(audit=0xC000_00B7, column=1, clone=220, socket=198, socketpair=199, ioctl=29),
}
_CLONE3 = 435
#: x32 calls have this bit; they would evade a filter that compares x86_64 numbers.
_X32_BIT = 0x4000_0000

_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
#: Offsets in struct seccomp_data. Arguments have 64 bits, little-endian; an int is the lower half.
_NR, _ARCH, _ARG0, _ARG1, _ARG2 = 0, 4, 16, 24, 32
#: Without rights over its network namespace, a job can only read with this protocol.
_AF_NETLINK, _NETLINK_ROUTE = 16, 0

#: The part of a register that an int argument uses.
_INT = 0xFFFF_FFFF

_Instruction = tuple[int, int, int, int]


def program(machine: str | None = None, *, netlink: bool = False) -> bytes:
    """The filter for `machine` (default: this one) as an array of struct sock_filter.

    `netlink`: for members of gangs, whose programs ask for the addresses of their interface (`getifaddrs`).
    """
    arch = ARCHES[machine or platform.machine()]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in _instructions(arch, netlink=netlink))


def oci() -> dict[str, Any]:
    """The same filter as an OCI configuration, for gVisor and runc.

    gVisor refuses with EPERM, whatever errno the configuration names. But clone3 must fail with ENOSYS, as a call does that
    is left to a tracer if there is none. No tracer can come, because ptrace is refused.
    """
    machine = platform.machine()
    column = ARCHES[machine].column
    names = [name for name, numbers in DENIED.items() if numbers[column] is not None]
    rules: list[dict[str, Any]] = [
        {"names": names, "action": "SCMP_ACT_ERRNO"},
        {"names": ["clone3"], "action": "SCMP_ACT_TRACE"},
    ]
    flags = [bit for bit in (1 << place for place in range(32)) if bit & CLONE_NEW_MASK]
    families = [family for family in range(_FAMILIES_COUNT) if family not in SOCKET_FAMILIES]
    rules += [_oci_rule(["clone"], 0, mask=flag, value=flag) for flag in flags]
    rules += [_oci_rule(["socket", "socketpair"], 0, mask=_INT, value=family) for family in families]
    rules += [_oci_rule(["ioctl"], 1, mask=_INT, value=command) for command in DENIED_IOCTLS.values()]
    architecture = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}[machine]
    return {"defaultAction": "SCMP_ACT_ALLOW", "architectures": [architecture], "syscalls": rules}


def _oci_rule(names: list[str], argument: int, *, mask: int, value: int) -> dict[str, Any]:
    condition = {"index": argument, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
    return {"names": names, "action": "SCMP_ACT_ERRNO", "args": [condition]}


def _instructions(arch: Arch, *, netlink: bool) -> Iterator[_Instruction]:
    yield (_LOAD, 0, 0, _ARCH)
    yield (_JEQ, 1, 0, arch.audit)
    yield (_RET, 0, 0, _KILL_PROCESS)
    yield (_LOAD, 0, 0, _NR)
    if arch.column == 0:
        yield (_JGE, 0, 1, _X32_BIT)
        yield _refuse(errno.ENOSYS)
    denied = [number for numbers in DENIED.values() if (number := numbers[arch.column]) is not None]
    # All jump to one refusal behind them: a short filter, because the kernel checks and translates it twice for each job.
    for left, number in zip(reversed(range(len(denied))), denied, strict=True):
        yield (_JEQ, left, 0 if left else 1, number)
    yield _refuse(errno.EPERM)
    # On ENOSYS glibc falls back from clone3 to clone, whose flags are in a register, where BPF can see them.
    yield (_JEQ, 0, 1, _CLONE3)
    yield _refuse(errno.ENOSYS)
    yield from _check_arguments(arch, netlink=netlink)
    yield (_RET, 0, 0, _ALLOW)


def _check_arguments(arch: Arch, *, netlink: bool) -> Iterator[_Instruction]:
    yield (_JEQ, 0, 4, arch.clone)
    yield (_LOAD, 0, 0, _ARG0)
    yield (_JSET, 0, 1, CLONE_NEW_MASK)
    yield _refuse(errno.EPERM)
    yield (_RET, 0, 0, _ALLOW)
    for number in (arch.socket, arch.socketpair):
        count = len(SOCKET_FAMILIES)
        more = 3 if netlink and number == arch.socket else 0
        yield (_JEQ, 0, count + more + 3, number)
        yield (_LOAD, 0, 0, _ARG0)
        for index, family in enumerate(SOCKET_FAMILIES):
            yield (_JEQ, count - index + more, 0, family)
        if more:
            yield (_JEQ, 0, 2, _AF_NETLINK)
            yield (_LOAD, 0, 0, _ARG2)
            yield (_JEQ, 1, 0, _NETLINK_ROUTE)
        yield _refuse(errno.EAFNOSUPPORT)
        yield (_RET, 0, 0, _ALLOW)
    count = len(DENIED_IOCTLS)
    yield (_JEQ, 0, count + 3, arch.ioctl)
    yield (_LOAD, 0, 0, _ARG1)
    for index, command in enumerate(DENIED_IOCTLS.values()):
        yield (_JEQ, count - index, 0, command)
    yield (_RET, 0, 0, _ALLOW)
    yield _refuse(errno.EPERM)


def _refuse(number: int) -> _Instruction:
    return (_RET, 0, 0, _ERRNO | number)
