"""Addresses of the network between the members of a gang, and what makes a packet valid in it. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

#: Each gang has this network to itself, so the same addresses are used in all of them. Rank 0 has the first.
PREFIX: Final = bytes((10, 77, 0))
NETMASK: Final = "255.255.255.0"
MASTER_PORT: Final = 29_500
#: Large packets: each one costs the same, whatever its size.
MTU: Final = 64_000
_LENGTH: Final = struct.Struct(">H")
_HEADER_BYTES: Final = 20


def address(rank: int) -> str:
    return ".".join(map(str, (*PREFIX, rank + 1)))


def ranks_of(packet: bytes | memoryview, size: int) -> tuple[int, int] | None:
    """The ranks that an IPv4 packet comes from and goes to; None unless both are members of a gang of this size."""
    if len(packet) < _HEADER_BYTES or packet[0] >> 4 != 4 or packet[12:15] != PREFIX or packet[16:19] != PREFIX:
        return None
    source, target = packet[15] - 1, packet[19] - 1
    return (source, target) if 0 <= source < size and 0 <= target < size and source != target else None


def frame(packet: bytes) -> bytes:
    """A packet with its length in front."""
    return _LENGTH.pack(len(packet)) + packet


def unframe(data: bytes) -> Iterator[bytes]:
    """The packets of a whole message. Raises ValueError if it ends within one."""
    at = 0
    while at < len(data):
        if at + _LENGTH.size > len(data):
            raise ValueError("the last packet is not complete")
        [length] = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + length > len(data):
            raise ValueError("the last packet is not complete")
        yield data[at : at + length]
        at += length
