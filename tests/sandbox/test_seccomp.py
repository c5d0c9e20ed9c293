"""Every path through the filter, run by a small interpreter. In test_escape.py the kernel runs it."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given, strategies as st

from computepool.agent.sandbox.backends import seccomp

ALLOW = 0x7FFF0000
KILL = 0x80000000
MACHINES = sorted(seccomp.ARCHES)


def decide(machine: str, number: int, *arguments: int, audit: int | None = None, netlink: bool = False) -> int:
    """The filter's answer to a system call."""
    code = seccomp.program(machine, netlink=netlink)
    program = [struct.unpack_from("=HBBI", code, offset) for offset in range(0, len(code), 8)]
    values = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number, audit or seccomp.ARCHES[machine].audit, 0, *values)
    accumulator = counter = 0
    while True:
        operation, if_true, if_false, value = program[counter]
        counter += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x06:
            return int(value)
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}
            counter += if_true if holds[operation] else if_false


def refusal(number: int) -> int:
    return 0x00050000 | number


@pytest.mark.parametrize("machine", MACHINES)
def test_only_denied_calls_are_refused(machine: str) -> None:
    arch = seccomp.ARCHES[machine]
    denied = {row[arch.column] for row in seccomp.DENIED.values()} - {None}
    special = {435, arch.socket, arch.socketpair}
    for number in range(600):
        expected = refusal(errno.EPERM) if number in denied else ALLOW
        if number not in special:
            assert decide(machine, number) == expected, number
    assert decide(machine, 435) == refusal(errno.ENOSYS)


@pytest.mark.parametrize("machine", MACHINES)
def test_foreign_architectures_are_killed(machine: str) -> None:
    for audit in (0x40000003, 0x40000028, 0xC000003E ^ 1, *(a.audit for a in seccomp.ARCHES.values())):
        if audit != seccomp.ARCHES[machine].audit:
            assert decide(machine, 0, audit=audit) == KILL


def test_x32_calls_do_not_exist() -> None:
    for number in (0, 39, 165, 0x3FFFFFFF):
        assert decide("x86_64", number | 0x40000000) == refusal(errno.ENOSYS)


@given(machine=st.sampled_from(MACHINES), flags=st.integers(0, 2**64 - 1))
def test_clone_makes_no_namespaces(machine: str, flags: int) -> None:
    wanted = refusal(errno.EPERM) if flags & seccomp.CLONE_NEW_MASK else ALLOW
    assert decide(machine, seccomp.ARCHES[machine].clone, flags) == wanted


@given(machine=st.sampled_from(MACHINES), family=st.integers(0, 2**64 - 1) | st.integers(0, 50))
def test_sockets_have_allowed_families(machine: str, family: int) -> None:
    arch = seccomp.ARCHES[machine]
    # The family is an int: the kernel ignores the upper half.
    wanted = ALLOW if family & 0xFFFFFFFF in seccomp.SOCKET_FAMILIES else refusal(errno.EAFNOSUPPORT)
    assert decide(machine, arch.socket, family) == decide(machine, arch.socketpair, family) == wanted


@given(machine=st.sampled_from(MACHINES), command=st.integers(0, 2**64 - 1) | st.sampled_from([0x5412, 0x541C, 0x5423]))
def test_dangerous_ioctls_are_refused(machine: str, command: int) -> None:
    denied = command & 0xFFFFFFFF in seccomp.DENIED_IOCTLS.values()
    wanted = refusal(errno.EPERM) if denied else ALLOW
    assert decide(machine, seccomp.ARCHES[machine].ioctl, 1, command) == wanted


@pytest.mark.parametrize("machine", MACHINES)
def test_members_of_gangs_may_ask_for_addresses_and_nothing_else_is_different(machine: str) -> None:
    arch, netlink, route = seccomp.ARCHES[machine], 16, 0
    assert decide(machine, arch.socket, netlink, 3, route) == refusal(errno.EAFNOSUPPORT)
    assert decide(machine, arch.socket, netlink, 3, route, netlink=True) == ALLOW
    for protocol in range(1, 32):
        assert decide(machine, arch.socket, netlink, 3, protocol, netlink=True) == refusal(errno.EAFNOSUPPORT)
    assert decide(machine, arch.socketpair, netlink, 3, route, netlink=True) == refusal(errno.EAFNOSUPPORT)
    for number in range(600):
        for family in range(64):
            if number not in (arch.socket, arch.socketpair):
                break
            if family != netlink:
                same = decide(machine, number, family, 3, 0)
                assert decide(machine, number, family, 3, 0, netlink=True) == same, (number, family)
        else:
            continue
        assert decide(machine, number, 0, netlink=True) == decide(machine, number, 0), number
