"""Keeps the hub's memory in step with commits: its own, and those of other hubs on the same PostgreSQL."""

from __future__ import annotations

import asyncio

from computepool.hub.context import Hub
from computepool.hub.db.session import Commit
from computepool.hub.identity.authenticator import KEYS_TOPIC
from computepool.hub.identity.signing import rotation
from computepool.hub.identity.signing.rotation import SIGNING_TOPIC
from computepool.hub.jobs.quotas import QUOTAS_TOPIC
from computepool.hub.money import prices
from computepool.hub.money.prices import PRICES_TOPIC
from computepool.hub.nodes import group_homes, nodes
from computepool.hub.nodes.group_homes import HOMES_TOPIC
from computepool.hub.trust import reputation, submitter_reputation

_ANYTHING = "*"
_NODE = "node:"
_FOLLOWED = frozenset({"queue", PRICES_TOPIC, SIGNING_TOPIC, _ANYTHING})


def follow_commit(hub: Hub, commit: Commit) -> None:
    """After each commit of this hub."""
    topics = commit.topics
    hub.signals.fire(topics)
    _forget(hub, topics)
    if commit.reputations:
        reputation.update_fleet(hub, commit.reputations)
    if commit.submitters:
        submitter_reputation.update(hub, commit.submitters)


def _forget(hub: Hub, topics: set[str]) -> None:
    """Drop what memory knows about these topics, because it has changed."""
    anything = _ANYTHING in topics
    if KEYS_TOPIC in topics or anything:
        hub.identity.authenticator.forget()
    if QUOTAS_TOPIC in topics or anything:
        hub.jobs.quota_uses.clear()
        hub.artifacts.usage.clear()
    if HOMES_TOPIC in topics or anything:
        group_homes.follow(hub, None if anything else topics)


class OtherHubs:
    """Collects notifications of other hubs, and handles all that have arrived in one go."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._topics: set[str] = set()
        self._wake = asyncio.Event()

    def receive(self, topics: set[str]) -> None:
        if _ANYTHING in topics:
            self._hub.signals.fire_all()
        else:
            self._hub.signals.fire(topics)
        _forget(self._hub, topics)
        self._topics |= {topic for topic in topics if topic in _FOLLOWED or topic.startswith(_NODE)}
        if self._topics:
            self._wake.set()

    async def catch_up(self) -> None:
        """Wait for notifications and handle them. If that fails, they stay to be handled."""
        await self._wake.wait()
        topics = frozenset(self._topics)
        self._topics.clear()
        try:
            await self._work_through(topics)
        except BaseException:
            self._topics |= topics
            raise
        if not self._topics:
            self._wake.clear()

    async def _work_through(self, topics: frozenset[str]) -> None:
        if PRICES_TOPIC in topics or _ANYTHING in topics:
            await prices.reload(self._hub)
        if SIGNING_TOPIC in topics or _ANYTHING in topics:
            await rotation.reload(self._hub)
        if "queue" in topics or _ANYTHING in topics:
            await self._hub.jobs.queue.load()
        here = {session.node_id for session in self._hub.nodes.registry.sessions}
        named = {topic.removeprefix(_NODE) for topic in topics if topic.startswith(_NODE)}
        for node_id in sorted(here if _ANYTHING in topics else here & named):
            await nodes.reconcile(self._hub, node_id)
        self._hub.jobs.queue.wake()
