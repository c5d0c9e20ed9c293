"""Submitter reputation in the hub's memory and for people. What counts is decided in core/trust/submitter_reputation.py."""

from __future__ import annotations

from collections.abc import Iterable

from computepool.core.trust.submitter_reputation import SubmitterReputation
from computepool.hub.context import Hub
from computepool.hub.trust import submitter_reputation_rows
from computepool.protocol.accounts import AccountPage, AccountView, SubmitterReputationView

#: How far another hub's clock, or a slow commit, may be behind.
_OVERLAP_MS = 60_000
_DIGITS = 4


def follow(hub: Hub, changed: dict[str, SubmitterReputation]) -> None:
    hub.trust.submitters.follow(changed)
    _push(hub, changed)


async def refresh(hub: Hub) -> None:
    """What other hubs recorded: everything at the start, and later what is new. Silence fades, so all scores move."""
    since_ms, now_ms = hub.trust.submitters.read_up_to_ms - _OVERLAP_MS, hub.now_ms()
    hub.trust.submitters.follow(
        await hub.store.read(lambda c: submitter_reputation_rows.changed_since(c, since_ms))
    )
    hub.trust.submitters.read_up_to_ms = now_ms
    _push(hub, hub.trust.submitters.accounts())


def _push(hub: Hub, accounts: Iterable[str]) -> None:
    for account_id in accounts:
        hub.nodes.registry.fleet.set_submitter(account_id, hub.trust.submitters.score(account_id))


def view(hub: Hub, account_id: str) -> SubmitterReputationView:
    known = hub.trust.submitters.of(account_id)
    score = round(hub.trust.submitters.score(account_id), _DIGITS)
    changed_at_ms = known.changed_at_ms or None
    return SubmitterReputationView.from_attributes(known, score=score, changed_at_ms=changed_at_ms)


def shown(hub: Hub, account: AccountView) -> AccountView:
    return account.model_copy(update={"submitter_reputation": view(hub, account.id)})


def shown_all(hub: Hub, page: AccountPage) -> AccountPage:
    return page.model_copy(update={"accounts": [shown(hub, account) for account in page.accounts]})
