"""The state of a node, in one word and one sentence. Every view shows this one, so that no two can disagree.

What the owner wants (`NodeState`), how the node was heard, and what the market pays are facts of their own; the status
is what follows from all of them together. The first part of it, why a node rests, is also what placing goes by.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from computepool.core.resources import NodeState
from computepool.core.words import counted


class NodeStatus(StrEnum):
    REVOKED = "revoked"  #: its key is refused for good
    LEFT = "left"  #: its owner took it out of the pool on the machine itself; its key is refused, too
    OFFLINE = "offline"  #: its agent was stopped, or was not heard of for a lease
    PAUSED = "paused"  #: its owner wants no new jobs there
    DRAINING = "draining"  #: as paused, and the agent stops when the last job ends
    UNRESPONSIVE = "unresponsive"  #: it missed polls and heartbeats; soon it counts as offline
    NOT_POLLING = "not_polling"  #: it is heard of, and does not ask for jobs
    COOLING_OFF = "cooling_off"  #: it failed several jobs in a row by its own fault
    OWNER_ONLY = "owner_only"  #: banned for wrong results: it works for its owner alone
    FLOOR_ABOVE_PRICE = "floor_above_price"  #: until the price rises it works for its owner alone
    WORKING = "working"  #: it has jobs, and takes more if they fit beside these
    READY = "ready"  #: it takes jobs that fit it

    @property
    def label(self) -> str:
        return self.value.replace("_", " ")

    @property
    def is_online(self) -> bool:
        return self not in (NodeStatus.REVOKED, NodeStatus.LEFT, NodeStatus.OFFLINE)

    @property
    def takes_jobs(self) -> bool:
        """Of everybody. Its owner's jobs also run where it is `owner_only` or `floor_above_price`."""
        return self in (NodeStatus.WORKING, NodeStatus.READY)


class Departure(StrEnum):
    """How a node last said goodbye. One that is back has none."""

    STOPPED = "stopped"  #: its agent ended
    LEFT = "left"  #: it is no part of the pool any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """How lately a node was heard, and whether it asks for jobs."""

    reachable: bool  #: within a lease, and it did not say goodbye
    prompt: bool = True  #: and no word of it is overdue
    polls: bool = True  #: a poll of it is not overdue; heartbeats alone are none
    claims: bool = True  #: its last poll asked for jobs


def rest_reason(
    requested: NodeState, contact: Contact, *, cooling: bool, left: bool = False
) -> NodeStatus | None:
    """Why no new job may go there; None if one may. What would have to change first comes first."""
    if requested is NodeState.REVOKED:
        return NodeStatus.LEFT if left else NodeStatus.REVOKED
    if not contact.reachable:
        return NodeStatus.OFFLINE
    if requested is not NodeState.ACTIVE:
        return NodeStatus(requested.value)
    if not contact.prompt:
        return NodeStatus.UNRESPONSIVE
    if not contact.polls:
        return NodeStatus.NOT_POLLING
    if not contact.claims:
        return NodeStatus.PAUSED  # its owner said so on the machine itself
    return NodeStatus.COOLING_OFF if cooling else None


def node_status(rest: NodeStatus | None, *, banned: bool, floor_met: bool, jobs: int) -> NodeStatus:
    if rest is not None:
        return rest
    if banned:
        return NodeStatus.OWNER_ONLY
    if not floor_met:
        return NodeStatus.FLOOR_ABOVE_PRICE
    return NodeStatus.WORKING if jobs else NodeStatus.READY


_SENTENCES = {
    NodeStatus.REVOKED: "The node was revoked: its key is refused for good.",
    NodeStatus.LEFT: "The node left the pool: it can join again with a new code.",
    NodeStatus.OFFLINE: "The node is offline: its agent was stopped, or does not reach the hub.",
    NodeStatus.PAUSED: "The node is paused: it takes no new jobs until its owner resumes it.",
    NodeStatus.DRAINING: "The node is draining: it takes no new jobs, and stops when the last one ends.",
    NodeStatus.UNRESPONSIVE: "The node does not respond: nothing new goes there until it is heard again.",
    NodeStatus.NOT_POLLING: "The node is online and does not ask this hub for jobs.",
    NodeStatus.COOLING_OFF: "The node failed several jobs in a row by its own fault and rests.",
    NodeStatus.OWNER_ONLY: "The node is banned for wrong results, and works for its owner alone.",
    NodeStatus.FLOOR_ABOVE_PRICE: (
        "Its price floor is above the spot price: until the price rises it works for its owner alone."
    ),
    NodeStatus.READY: "The node is online and takes jobs that fit it.",
}


def status_sentence(status: NodeStatus, *, jobs: int = 0, rest_s: int = 0, faults: int = 0) -> str:
    """`rest_s`: how much longer it cools off, after `faults` in a row."""
    if status is NodeStatus.WORKING:
        return f"The node is online and has {counted(jobs, 'job')}."
    if status is NodeStatus.COOLING_OFF and rest_s > 0:
        return f"The node failed {counted(faults, 'job')} in a row by its own fault and rests for {rest_s} s."
    sentence = _SENTENCES[status]
    return f"{sentence} It still has {counted(jobs, 'job')}." if jobs and status.is_online else sentence
