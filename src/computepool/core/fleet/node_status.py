"""The status of a node, as one word and one sentence. Every view shows this one, so that no two disagree.

It combines the owner's wish (`NodeState`), the node's contact with the hub, and the market price. Placement uses the
first part, `rest_reason`: why a node takes no new jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from computepool.core.resources import NodeState
from computepool.core.words import pluralize


class NodeStatus(StrEnum):
    REVOKED = "revoked"  #: its key is refused permanently
    LEFT = "left"  #: its owner removed it from the pool on the machine itself; its key is refused, too
    OFFLINE = "offline"  #: its agent was stopped, or has been silent for a whole lease
    PAUSED = "paused"  #: its owner wants no new jobs there
    DRAINING = "draining"  #: paused, and the agent stops when the last job ends
    UNRESPONSIVE = "unresponsive"  #: it missed polls and heartbeats, and soon counts as offline
    NOT_POLLING = "not_polling"  #: it sends heartbeats but does not ask for jobs
    COOLING_OFF = "cooling_off"  #: it failed several consecutive jobs through its own fault
    OWNER_ONLY = "owner_only"  #: banned for wrong results, so it runs only its owner's jobs
    FLOOR_ABOVE_PRICE = "floor_above_price"  #: it runs only its owner's jobs until the price rises
    WORKING = "working"  #: it has jobs, and takes more if they fit
    READY = "ready"  #: it takes jobs that fit

    @property
    def label(self) -> str:
        return self.value.replace("_", " ")

    @property
    def is_online(self) -> bool:
        return self not in (NodeStatus.REVOKED, NodeStatus.LEFT, NodeStatus.OFFLINE)

    @property
    def takes_jobs(self) -> bool:
        """Whether it takes any account's jobs. Its owner's jobs also run while `owner_only` or `floor_above_price`."""
        return self in (NodeStatus.WORKING, NodeStatus.READY)


class Departure(StrEnum):
    """How a node announced that it was going away. Cleared when it returns."""

    STOPPED = "stopped"  #: its agent ended
    LEFT = "left"  #: it no longer belongs to the pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """A node's contact with the hub."""

    reachable: bool  #: it was in contact within a lease, and did not announce a departure
    prompt: bool = True  #: neither a poll nor a heartbeat is overdue
    polls: bool = True  #: a poll is not overdue; heartbeats do not count
    claims: bool = True  #: its last poll asked for jobs


def rest_reason(requested: NodeState, contact: Contact, *, cooling: bool, left: bool = False) -> NodeStatus | None:
    """Why the node takes no new jobs; None if it does. Of several reasons, the one that must change first."""
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
        return NodeStatus.PAUSED  # by its owner, on the machine itself
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
    NodeStatus.REVOKED: "The node was revoked: its key is refused permanently.",
    NodeStatus.LEFT: "The node left the pool. It can join again with a new code.",
    NodeStatus.OFFLINE: "The node is offline: its agent was stopped, or cannot reach the hub.",
    NodeStatus.PAUSED: "The node is paused: it takes no new jobs until its owner resumes it.",
    NodeStatus.DRAINING: "The node is draining: it takes no new jobs, and stops when the last one ends.",
    NodeStatus.UNRESPONSIVE: "The node does not respond: it gets no new jobs until it is back in contact.",
    NodeStatus.NOT_POLLING: "The node is online but does not ask this hub for jobs.",
    NodeStatus.COOLING_OFF: "The node is cooling off: it failed several consecutive jobs through its own fault.",
    NodeStatus.OWNER_ONLY: "The node is banned for wrong results, and runs only its owner's jobs.",
    NodeStatus.FLOOR_ABOVE_PRICE: (
        "Its price floor is above the spot price: until the price rises, it runs only its owner's jobs."
    ),
    NodeStatus.READY: "The node is online and takes jobs that fit.",
}


def status_sentence(status: NodeStatus, *, jobs: int = 0, rest_s: int = 0, faults: int = 0) -> str:
    """`rest_s`: the remaining time to cool off after `faults` consecutive faults."""
    if status is NodeStatus.WORKING:
        return f"The node is online and has {pluralize(jobs, 'job')}."
    if status is NodeStatus.COOLING_OFF and rest_s > 0:
        failed = f"it failed {pluralize(faults, 'consecutive job')} through its own fault"
        return f"The node is cooling off for {rest_s} s: {failed}."
    sentence = _SENTENCES[status]
    return f"{sentence} It still has {pluralize(jobs, 'job')}." if jobs and status.is_online else sentence
