"""The registry of live nodes: what each holds and runs, and its parked poll. Every method is synchronous.

This is soft state. If it is lost, agents poll again, and their attempts are read back from the store.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from itertools import count

from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import Free, Reservation
from computepool.core.fleet.node_status import Contact, NodeStatus, node_status, rest_reason
from computepool.core.jobs.leases import LeaseRules
from computepool.core.placement.gates import meets_floor
from computepool.core.places import NOWHERE, Place
from computepool.core.resources import NodeProfile, NodeState, Shape
from computepool.core.trust.hardware import UNKNOWN, Truth
from computepool.protocol.jobs.requirements import satisfies
from computepool.protocol.nodes.nodes import Grant, RunningAttempt
from computepool.protocol.nodes.rules import NO_RULES


@dataclass(slots=True)
class Lane:
    """A reservation on a node, with the attempts that use it one after the other."""

    id: str
    node_id: str
    owner: str  #: the account that is paid
    shape: Shape
    reservation: Reservation | None
    since_ms: int  #: when it was opened
    narrow: bool = False  #: the submitter's wishes left no choice of nodes, so its results count for no node's record
    attempts: set[str] = field(default_factory=set)

    @property
    def gpus(self) -> list[int]:
        return list(self.reservation.cards) if self.reservation is not None else []


@dataclass(slots=True)
class LiveAttempt:
    """An attempt that a node holds, or is about to be given."""

    lane: Lane
    grant: Grant
    since_ms: int  #: when it was leased
    hub_job: bool = False
    running: bool = False
    delivered: bool = False
    last_report: RunningAttempt | None = None

    @property
    def id(self) -> str:
        return self.grant.attempt_id

    @property
    def job_id(self) -> str:
        return self.grant.job_id


@dataclass(slots=True)
class NodeSession:
    """One node that polls this hub."""

    profile: NodeProfile
    boot_id: str
    state: NodeState
    seen_ms: int  #: its last message of any kind
    polled_ms: int = 0  #: its last poll
    cool_off_until_ms: int = 0
    claims: bool = False  #: its last poll asked for work, or would have if the hub had not paused it
    attempts: dict[str, LiveAttempt] = field(default_factory=dict)
    outgoing: list[str] = field(default_factory=list)  #: attempts not delivered yet
    cancel: set[str] = field(default_factory=set)  #: attempts that it must stop
    polls: int = 0  #: how many it began; only the last one still has a connection
    waiter: asyncio.Future[None] | None = None  #: of its parked poll
    rules: str = NO_RULES  #: its owner's, as JSON
    rules_digest: str = ""
    claimed: tuple[str, ...] = ()  #: tiers of its cards as it claims them; the profile has those in force
    truth: Truth = UNKNOWN  #: about its hardware
    measure: str = ""  #: the measurement that it was asked for and has not answered
    measure_sent: bool = False
    measure_sent_ms: int = 0
    result_deliveries: list[str] = field(default_factory=list)  #: groups that wait for it, as their home
    home_due: bool = False  #: these may have changed in the store
    place: Place = NOWHERE  #: on the map
    #: Its line in the view of the queue while it holds nothing: what the line depends on, and its text around `seen_ms`.
    idle_line: tuple[tuple[NodeProfile, NodeState, NodeStatus, Free], bytes, bytes] | None = None

    @property
    def node_id(self) -> str:
        return self.profile.node_id

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Registry:
    def __init__(self, rules: LeaseRules) -> None:
        self.rules = rules
        self.fleet = Fleet(satisfies)
        self.lane_numbers = count(1)  #: never reused, because the attempts of a lane are billed together
        self._sessions: dict[str, NodeSession] = {}
        self.interval_ms = rules.interval_ms(0)  #: how long a poll is parked

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def sessions(self) -> list[NodeSession]:
        return list(self._sessions.values())

    def online(self, now_ms: int) -> int:
        """The number of nodes that have missed no poll."""
        since_ms = now_ms - self.rules.suspect_after_ms(self.interval_ms)
        return sum(session.seen_ms >= since_ms for session in self._sessions.values())

    def _count_changed(self) -> None:
        self.interval_ms = self.rules.interval_ms(len(self._sessions))

    @property
    def lease_ms(self) -> int:
        return self.rules.lease_ms(self.interval_ms)

    def get(self, node_id: str) -> NodeSession | None:
        return self._sessions.get(node_id)

    def on_node_seen(
        self, profile: NodeProfile, *, boot_id: str, state: NodeState, cool_off_until_ms: int, now_ms: int
    ) -> NodeSession:
        """A node arrives, comes back, or has a new profile."""
        if profile.environments:
            profile = replace(profile, environments=self.fleet.software.intern(profile.environments))
        session = self._sessions.get(profile.node_id)
        if session is None:
            session = NodeSession(
                profile=profile, boot_id=boot_id, state=state, seen_ms=now_ms, claims=state is not NodeState.ACTIVE
            )
            self._sessions[profile.node_id] = session
            self._count_changed()
        session.profile, session.boot_id, session.state, session.seen_ms = profile, boot_id, state, now_ms
        session.cool_off_until_ms = cool_off_until_ms
        self.fleet.upsert(profile)
        self.refresh(session, now_ms)
        return session

    def rest(self, node_id: str, until_ms: int, *, now_ms: int) -> None:
        """Give the node no work until then; 0: from now on it may get work."""
        session = self._sessions.get(node_id)
        if session is not None:
            session.cool_off_until_ms = until_ms
            self.refresh(session, now_ms)

    def refresh(self, session: NodeSession, now_ms: int) -> None:
        """Update whether the node may be given work: it asks for it, spoke lately, is not paused, and is not cooling off."""
        rest = self._rest(session, now_ms)
        self.fleet.set_available(session.node_id, rest is None, rest)

    def suspect_silent(self, now_ms: int) -> None:
        """Give nodes that may be gone no work until they ask. They keep what they hold until its leases end."""
        for session in self._sessions.values():
            rest = self._rest(session, now_ms)
            if rest is not None:
                self.fleet.set_available(session.node_id, False, rest)

    def status(self, session: NodeSession, now_ms: int, *, banned: bool = False) -> NodeStatus:
        """The node's status, the same in every view. `banned`: according to the store."""
        rest, jobs = self._rest(session, now_ms), len(session.attempts)
        node = self.fleet.get(session.node_id)
        if node is None:  # it left in the meantime
            return rest or NodeStatus.OFFLINE
        return node_status(rest, banned=banned or node.banned, floor_met=meets_floor(self.fleet, node), jobs=jobs)

    def _rest(self, session: NodeSession, now_ms: int) -> NodeStatus | None:
        """Why it may not be given work, if so."""
        suspect_ms, silent_ms = self.rules.suspect_after_ms(self.interval_ms), now_ms - session.seen_ms
        contact = Contact(
            reachable=silent_ms <= self.lease_ms,
            prompt=silent_ms <= suspect_ms,
            polls=session.polls > 0 and now_ms - session.polled_ms <= suspect_ms,
            claims=session.claims,
        )
        return rest_reason(session.state, contact, cooling=session.cool_off_until_ms > now_ms)

    def on_node_lost(self, node_id: str) -> NodeSession | None:
        session = self._sessions.pop(node_id, None)
        if session is not None:
            self._count_changed()
            self.fleet.remove(node_id)
            session.wake()
        return session

    def silent(self, now_ms: int) -> list[NodeSession]:
        limit = self.lease_ms
        return [session for session in self._sessions.values() if now_ms - session.seen_ms > limit]

    # attempts

    def hold(self, session: NodeSession, attempt: LiveAttempt) -> None:
        attempt_id = attempt.id
        attempt.lane.attempts.add(attempt_id)
        session.attempts[attempt_id] = attempt
        if not attempt.delivered:
            session.outgoing.append(attempt_id)

    def drop(self, node_id: str, attempt_id: str) -> None:
        """The attempt has ended. When its lane is empty, the reservation is released."""
        session = self._sessions.get(node_id)
        attempt = session.attempts.pop(attempt_id, None) if session is not None else None
        if attempt is not None:
            attempt.lane.attempts.discard(attempt_id)
            if not attempt.lane.attempts:
                self.close_lane(attempt.lane)

    def close_lane(self, lane: Lane) -> None:
        if lane.reservation is not None and lane.node_id in self._sessions:
            self.fleet.release(lane.node_id, lane.reservation)
        lane.reservation = None

    def cancel(self, node_id: str, attempt_id: str) -> None:
        """Tell the node in the next reply (now, if its poll is parked) to stop this attempt."""
        session = self._sessions.get(node_id)
        if session is not None:
            session.cancel.add(attempt_id)
            self.drop(node_id, attempt_id)
            session.wake()

    def adopt_lane(self, node_id: str, lane_id: str, *, shape: Shape, since_ms: int) -> Lane:
        """Restore a lane that the hub's memory has lost, with its reservation if the node still has room for it."""
        return Lane(
            id=lane_id,
            node_id=node_id,
            owner=self.fleet[node_id].profile.owner,
            shape=shape,
            reservation=self.fleet.adopt(node_id, shape.requirements, shape.account, value=shape.value),
            since_ms=since_ms,
        )
