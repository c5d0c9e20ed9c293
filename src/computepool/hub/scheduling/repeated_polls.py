"""Repeated polls of idle nodes: the same request again and again, parked and answered without a task of its own.

It does what `node_poll.next_` does, and leaves everything to that which takes more than memory.
"""

from __future__ import annotations

from asyncio import Future
from functools import lru_cache

from computepool.core.fleet.node_status import NodeStatus
from computepool.core.resources import NodeState
from computepool.hub.context import Hub
from computepool.hub.fleet.registry import NodeSession
from computepool.hub.scheduling import node_poll
from computepool.protocol.nodes.nodes import NextReply, NextRequest

#: Stands for the time in a reply that is reused; no other number is as long.
_SOME_TIME = 8_888_888_888_888
_SOME_ADDRESS = "0.0.0.0"


def can_repeat(request: NextRequest) -> bool:
    """Whether it can be answered without the store, and without waiting for a lock."""
    plain = request.profile is None and request.cached is None
    return bool(request.wait_ms and request.claim and not (request.running or request.stopping) and plain)


class RepeatedPoll:
    """A node's poll on one connection, and the wait for its reply."""

    __slots__ = ("_address", "_hub", "_mine", "_node_id", "_request", "_session", "_slot", "_token", "_waiter")

    def __init__(self, hub: Hub, node_id: str, request: NextRequest, *, token: str, address: str | None) -> None:
        self._hub, self._node_id, self._token, self._request = hub, node_id, token, request
        self._address = address
        self._session: NodeSession | None = None
        self._waiter: Future[None] | None = None
        self._slot = self._mine = 0

    def begin(self) -> Future[None] | None:
        """The wait; None if the node is not known (any more), or if there is news already."""
        hub, request = self._hub, self._request
        session = hub.nodes.registry.get(self._node_id)
        if hub.identity.authenticator.peek_node(self._token) is None or hub.process.stopping:
            return None
        if session is None or session.boot_id != request.boot_id or node_poll.has_news(session):
            return None
        self._mine = node_poll.receive(hub, session, request, poll=True)
        if node_poll.has_news(session):
            return None  # `next_` receives it once more, which does no harm
        self._session = session
        self._waiter, self._slot = node_poll.begin_wait(hub, session, request.wait_ms)
        return self._waiter

    def drop(self) -> None:
        if self._session is not None and self._waiter is not None:
            node_poll.end_wait(self._hub, self._session, self._waiter, slot=self._slot)
        self._session = self._waiter = None

    def end(self) -> bytes | None:
        """The reply; None if the node was revoked or has left, or if the reply needs the store."""
        session = self._session
        self.drop()
        if session is None or self._hub.nodes.registry.get(self._node_id) is not session:
            return None
        if session.polls != self._mine:
            reply = node_poll.reply_to(self._hub, None, address=self._address)
        elif session.state is NodeState.REVOKED or session.home_due:
            return None
        elif self._is_quiet(session):
            return self._quiet_reply(session)
        else:
            reply = node_poll.news(self._hub, session, self._request, address=self._address)
        return reply.model_dump_json(exclude_defaults=True).encode()

    def _is_quiet(self, session: NodeSession) -> bool:
        same_rules = session.rules_digest == self._request.rules
        return same_rules and not (session.result_deliveries or node_poll.has_news(session))

    def _quiet_reply(self, session: NodeSession) -> bytes:
        registry, now_ms = self._hub.nodes.registry, self._hub.now_ms()
        text = _quiet_text(
            registry.interval_ms,
            registry.lease_ms,
            registry.rules.self_fence_ms,
            session.state,
            registry.status(session, now_ms),
            has_address=self._address is not None,
        )
        return (text % (now_ms, self._address) if self._address is not None else text % now_ms).encode()


@lru_cache(maxsize=256)
def _quiet_text(
    interval_ms: int, lease_ms: int, fence_ms: int, state: NodeState, status: NodeStatus, *, has_address: bool
) -> str:
    """The reply without news, with placeholders for the time and the address (which needs no escapes)."""
    reply = NextReply(
        interval_ms=interval_ms,
        lease_ms=lease_ms,
        fence_ms=fence_ms,
        hub_time_ms=_SOME_TIME,
        state=state.value,
        status=status.value,
        result_deliveries=[],
        seen_from=_SOME_ADDRESS if has_address else None,
    )
    text = reply.model_dump_json(exclude_defaults=True)
    return text.replace(str(_SOME_TIME), "%d").replace(f'"{_SOME_ADDRESS}"', '"%s"')
