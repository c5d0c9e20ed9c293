"""Wire models of gangs: jobs that run on several nodes at once, with a network between their members."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from computepool.core.jobs.lifecycle import JobState
from computepool.protocol.base import Count, Id, Reply, Request

#: Members of a gang: one address of its network each.
NODES_MAX = 250
#: A packet of the network between the members, as read from and written to a TUN device.
PACKET_MAX = 65_535
#: Bytes of packets in one request or reply.
BATCH_MAX = 1024 * 1024
#: Where a member can be reached directly, as ADDRESS:PORT.
LanAddress = Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F.:\[\]]{3,60}$")]


class GangMember(Reply):
    rank: int
    job_id: str
    state: JobState
    node_id: str | None = None
    node_name: str | None = None


class GangGrant(Reply):
    """What a node is told about the gang of an attempt. Its rank is the number of its item."""

    id: Id
    start_ms: Count  #: how long a member that is ready waits for the others

    def text(self) -> str:
        return f"gang {self.id} {self.start_ms}"


class BarrierRequest(Request):
    """A member waits for the others: to start together, and to end together."""

    phase: Literal["ready", "done"]
    lan: LanAddress | None = None  #: where other members of this owner's network can reach it


class GangPeer(Reply):
    rank: Count
    lan: LanAddress | None = None


class BarrierReply(Reply):
    passed: bool  #: all members have got so far; otherwise, ask again
    waits_for: list[Count] = Field(default=[], max_length=NODES_MAX)  #: ranks
    peers: list[GangPeer] = Field(default=[], max_length=NODES_MAX)
    #: base64 of the secret with which members prove to each other, directly, that they belong to this gang
    key: Annotated[str, StringConstraints(max_length=64)] = ""
