"""The hub's memory of one try of a gang: how far its members have got, and the packets that wait for them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from computepool.core.jobs import gang_network
from computepool.protocol.gangs import BATCH_MAX


@dataclass(slots=True, eq=False)
class Member:
    rank: int
    node_id: str
    attempt_id: str
    phase: int = 0
    lan: str | None = None
    sent: int = 0  #: bytes to the others
    dropped: int = 0  #: packets for it that found its queue full
    packets: deque[bytes] = field(default_factory=deque)  #: for it
    waiting: int = 0  #: their bytes

    def put(self, packet: bytes, most: int) -> bool:
        """Like a router, drop what does not fit: the programs' connections notice, and slow down."""
        if self.waiting + len(packet) > most:
            self.dropped += 1
            return False
        self.packets.append(packet)
        self.waiting += len(packet)
        return True

    def take(self) -> bytes:
        parts, size = [], 0
        while self.packets and size + len(self.packets[0]) <= BATCH_MAX:
            packet = self.packets.popleft()
            self.waiting -= len(packet)
            size += len(packet) + 2
            parts.append(gang_network.frame(packet))
        return b"".join(parts)


@dataclass(slots=True, eq=False)
class GangRun:
    """One try of a gang: the attempts of all members with the same number."""

    id: str
    size: int
    key: str
    members: dict[int, Member] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        return f"gang:{self.id}"

    def behind(self, phase: int) -> list[int]:
        """The ranks that have not got so far."""
        known = self.members
        return [rank for rank in range(self.size) if rank not in known or known[rank].phase < phase]
