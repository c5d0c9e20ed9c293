"""Live nodes: who is here, what each is running, which polls are parked. Soft state; every method is synchronous.

Losing all of it costs nothing but a moment: agents poll again, and their attempts are read back from the store.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import count

from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import Free, Reservation
from computepool.core.fleet.node_status import Contact, NodeStatus, node_status, rest_reason
from computepool.core.jobs.leases import LeaseRules
from computepool.core.placement.gates import meets_floor
from computepool.core.places import NOWHERE, Place
from computepool.core.resources import NodeProfile, NodeState, Shape
from computepool.core.trust.hardware import UNKNOWN, Truth
from computepool.protocol.nodes.nodes import Grant, NextRequest, RunningAttempt
from computepool.protocol.nodes.rules import NO_RULES


@dataclass(slots=True)
class Lane:
    """A reservation on a node and the attempts that use it one after the other."""

    id: str
    node_id: str
    owner: str  #: account that is paid
    shape: Shape
    reservation: Reservation | None
    since_ms: int  #: when it was opened
    narrow: bool = False  #: the submitter's wishes left no choice of nodes, so what runs here makes no record
    attempts: set[str] = field(default_factory=set)

    @property
    def gpus(self) -> list[int]:
        return list(self.reservation.cards) if self.reservation is not None else []


@dataclass(slots=True)
class LiveAttempt:
    """An attempt a node holds, or is about to be told of."""

    id: str
    job_id: str
    lane: Lane
    grant: Grant
    since_ms: int  #: when it was leased
    hub_job: bool = False
    running: bool = False
    delivered: bool = False
    last_report: RunningAttempt | None = None  #: the node's last word about it


@dataclass(slots=True)
class NodeSession:
    """One node that polls this hub."""

    profile: NodeProfile
    boot_id: str
    state: NodeState
    seen_ms: int  #: its last word, also a heartbeat
    polled_ms: int = 0  #: its last poll
    cool_off_until_ms: int = 0
    claims: bool = False  #: its last poll asked for work, or would have if it were not paused here
    attempts: dict[str, LiveAttempt] = field(default_factory=dict)
    outgoing: list[str] = field(default_factory=list)  #: attempts not delivered yet
    cancel: set[str] = field(default_factory=set)
    polls: int = 0  #: that it began; only the last one's connection is there still
    waiter: asyncio.Future[None] | None = None
    word: bytes = (
        b""  #: its last poll as it was sent, and as it was read: an idle node says the same again and again
    )
    request: NextRequest | None = None
    rules: str = NO_RULES  #: its owner's, as JSON
    rules_digest: str = ""
    claimed: tuple[str, ...] = ()  #: tiers of its cards by its own word; the profile has those in force
    truth: Truth = UNKNOWN  #: of its hardware
    measure: str = ""  #: the measurement that was asked for and is not answered
    measure_sent: bool = False
    measure_sent_ms: int = 0
    #: Groups whose home it is, and that wait for it.
    result_deliveries: list[str] = field(default_factory=list)
    home_due: bool = False  #: what the store says of these may have changed
    place: Place = NOWHERE  #: on the map
    #: In the view of the queue while it holds nothing: what it says, and the text around when it last spoke.
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
        self.fleet = Fleet()
        self.lane_numbers = count(1)  #: none is used twice: a lane's attempts are paid for its time together
        self._sessions: dict[str, NodeSession] = {}
        self.interval_ms = rules.interval_ms(0)  #: how long a poll is parked; every poll asks several times

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def sessions(self) -> list[NodeSession]:
        return list(self._sessions.values())

    def online(self, now_ms: int) -> int:
        """How many are heard of as they should be: of one that missed polls nobody knows whether it is still there."""
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
        """A node arrives, comes back, or describes itself anew."""
        session = self._sessions.get(profile.node_id)
        if session is None:
            session = NodeSession(
                profile=profile,
                boot_id=boot_id,
                state=state,
                seen_ms=now_ms,
                claims=state is not NodeState.ACTIVE,
            )
            self._sessions[profile.node_id] = session
            self._count_changed()
        session.profile, session.boot_id, session.state, session.seen_ms = profile, boot_id, state, now_ms
        session.cool_off_until_ms = cool_off_until_ms
        self.fleet.upsert(profile)
        self.refresh(session, now_ms)
        return session

    def rest(self, node_id: str, until_ms: int, *, now_ms: int) -> None:
        """Nothing new until then; 0: it need not rest."""
        session = self._sessions.get(node_id)
        if session is not None:
            session.cool_off_until_ms = until_ms
            self.refresh(session, now_ms)

    def refresh(self, session: NodeSession, now_ms: int) -> None:
        """Whether new work may go there: it asks for it, was heard lately, its owner wants it, it is not cooling off."""
        rest = self._rest(session, now_ms)
        self.fleet.set_available(session.node_id, rest is None, rest)

    def doubt_quiet(self, now_ms: int) -> None:
        """Nodes that may be gone get nothing new until they ask; what they hold stays theirs while its lease lasts."""
        for session in self._sessions.values():
            rest = self._rest(session, now_ms)
            if rest is not None:
                self.fleet.set_available(session.node_id, False, rest)

    def status(self, session: NodeSession, now_ms: int, *, banned: bool = False) -> NodeStatus:
        """What the node does, as every view shows it. `banned`: the store says so, too."""
        rest, jobs = self._rest(session, now_ms), len(session.attempts)
        row = self.fleet.row_of(session.node_id)
        if row is None:  # it left while somebody looked
            return rest or NodeStatus.OFFLINE
        node = self.fleet.node_at(row)
        return node_status(
            rest, banned=banned or node.banned, floor_met=meets_floor(self.fleet, node), jobs=jobs
        )

    def _rest(self, session: NodeSession, now_ms: int) -> NodeStatus | None:
        interval_ms = self.interval_ms
        suspect_ms, silent_ms = self.rules.suspect_after_ms(interval_ms), now_ms - session.seen_ms
        contact = Contact(
            reachable=silent_ms <= self.rules.offline_after_ms(interval_ms),
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
        limit = self.rules.offline_after_ms(self.interval_ms)
        return [session for session in self._sessions.values() if now_ms - session.seen_ms > limit]

    # attempts

    def hold(
        self,
        session: NodeSession,
        lane: Lane,
        grant: Grant,
        *,
        since_ms: int,
        hub_job: bool = False,
        delivered: bool = False,
        running: bool = False,
    ) -> None:
        lane.attempts.add(grant.attempt_id)
        session.attempts[grant.attempt_id] = LiveAttempt(
            id=grant.attempt_id,
            job_id=grant.job_id,
            lane=lane,
            grant=grant,
            since_ms=since_ms,
            hub_job=hub_job,
            delivered=delivered,
            running=running,
        )
        if not delivered:
            session.outgoing.append(grant.attempt_id)

    def drop(self, node_id: str, attempt_id: str) -> bool:
        """The attempt is over for the hub. True when its lane emptied and capacity came free."""
        session = self._sessions.get(node_id)
        attempt = session.attempts.pop(attempt_id, None) if session is not None else None
        if session is None or attempt is None:
            return False
        attempt.lane.attempts.discard(attempt_id)
        if attempt.lane.attempts:
            return False
        self.close_lane(attempt.lane)
        return True

    def close_lane(self, lane: Lane) -> None:
        if lane.reservation is not None and lane.node_id in self._sessions:
            self.fleet.release(lane.node_id, lane.reservation)
        lane.reservation = None

    def cancel(self, node_id: str, attempt_id: str) -> bool:
        """Tell the node at its next word (now, if its poll is parked) to stop this attempt."""
        session = self._sessions.get(node_id)
        if session is None:
            return False
        session.cancel.add(attempt_id)
        freed = self.drop(node_id, attempt_id)
        session.wake()
        return freed

    def adopt_lane(self, node_id: str, lane_id: str, *, shape: Shape, since_ms: int) -> Lane:
        """A lane that outlived the hub's memory gets its reservation back (or none, when the node shrank meanwhile)."""
        return Lane(
            id=lane_id,
            node_id=node_id,
            owner=self.fleet.profile(node_id).owner,
            shape=shape,
            reservation=self.fleet.adopt(node_id, shape.requirements, shape.account, value=shape.value),
            since_ms=since_ms,
        )
