"""Submitters' reputations in memory and in views. What counts is decided in core/trust/submitter_reputation.py."""

from __future__ import annotations

from collections.abc import Mapping

from computepool.core.trust.submitter_reputation import UNKNOWN, SubmitterReputation
from computepool.hub.context import Hub
from computepool.hub.trust import submitter_reputation_rows
from computepool.protocol.accounts import AccountView, SubmitterReputationView

#: How far another hub's clock, or a slow commit, may be behind.
_OVERLAP_MS = 60_000
_DIGITS = 4


def update(hub: Hub, changed: Mapping[str, SubmitterReputation]) -> None:
    hub.trust.submitters.update(changed)
    _update_fleet(hub, changed)


async def refresh(hub: Hub) -> None:
    """Read what other hubs recorded: all of it at the start, then the news. Evidence fades, so every score changes."""
    since_ms, now_ms = hub.trust.submitters_read_ms - _OVERLAP_MS, hub.now_ms()
    hub.trust.submitters.update(await hub.store.read(submitter_reputation_rows.list_changed_since, since_ms))
    hub.trust.submitters_read_ms = now_ms
    _update_fleet(hub, hub.trust.submitters)


def _update_fleet(hub: Hub, reputations: Mapping[str, SubmitterReputation]) -> None:
    """The fleet keeps scores for placements, which never read the database."""
    for account_id, known in reputations.items():
        hub.nodes.registry.fleet.set_submitter(account_id, known.score(hub.now_ms()))


def add_to_view(hub: Hub, account: AccountView) -> AccountView:
    known = hub.trust.submitters.get(account.id, UNKNOWN)
    score, changed_at_ms = round(known.score(hub.now_ms()), _DIGITS), known.changed_at_ms or None
    view = SubmitterReputationView.from_attributes(known, score=score, changed_at_ms=changed_at_ms)
    return account.model_copy(update={"submitter_reputation": view})
