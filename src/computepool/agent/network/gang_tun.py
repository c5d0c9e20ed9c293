"""Makes the network device of a gang's member in the network namespace of its sandbox, and hands it to the agent.

A script with the standard library alone, in a process of its own because a process with threads cannot enter a user
namespace. Whoever created that namespace has every right in it, so no root is needed, only access to /dev/net/tun.

    python3 -I -S gang_tun.py PID ADDRESS NETMASK MTU SOCKET
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import socket
import struct
import sys

DEVICE = "/dev/net/tun"
NAME = b"gang0"
_CLONE_NEWUSER, _CLONE_NEWNET = 0x1000_0000, 0x4000_0000
_NS_GET_USERNS = 0xB701
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x4004_54CA, 0x0001, 0x1000
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU, _SIOCSIFFLAGS, _SIOCSIFTXQLEN = 0x8916, 0x891C, 0x8922, 0x8914, 0x8943
_UP_AND_RUNNING = 0x41
#: Packets that wait in the kernel for the agent. Each may have 64 kB.
_QUEUED = 64


def enter(pid: int) -> None:
    """Enter the network namespace of a process, and first, unless we are root, the user namespace that owns it."""
    libc = ctypes.CDLL(None, use_errno=True)
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    steps = [(network, _CLONE_NEWNET)]
    if os.geteuid() != 0:
        steps.insert(0, (fcntl.ioctl(network, _NS_GET_USERNS), _CLONE_NEWUSER))
    for fd, kind in steps:
        if libc.setns(fd, kind) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "setns")


def make(address: str, netmask: str, mtu: int) -> int:
    """The device, with its address, up. It ends when its descriptor is closed."""
    device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", NAME, _IFF_TUN | _IFF_NO_PI))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command, text in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, netmask)):
            packed = socket.inet_aton(text)
            fcntl.ioctl(control, command, struct.pack("16sH2s4s8x", NAME, socket.AF_INET, b"\0\0", packed))
        fcntl.ioctl(control, _SIOCSIFMTU, struct.pack("16si12x", NAME, mtu))
        fcntl.ioctl(control, _SIOCSIFTXQLEN, struct.pack("16si12x", NAME, _QUEUED))
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", NAME, _UP_AND_RUNNING))
    return device


def main() -> None:
    pid, address, netmask, mtu, channel = sys.argv[1:]
    try:
        enter(int(pid))
        device = make(address, netmask, int(mtu))
    except OSError as error:
        sys.exit(f"{error.filename or DEVICE}: {error.strerror}")
    with socket.socket(fileno=int(channel)) as target:
        target.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [device]))])


if __name__ == "__main__":
    main()
