"""Credits to begin with: every new account gets some from the platform's balance for it, as an ordinary transfer."""

from __future__ import annotations

from computepool.core.money import ledger
from computepool.core.money.pricing import Economy
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx


def for_newcomers(hub: Hub) -> int:
    return 0 if hub.market.table.economy is Economy.NONE else hub.settings.signup_grant


def welcome(hub: Hub, tx: Tx, account_id: str, *, amount: int) -> None:
    _grant(hub, tx, account_id, amount=amount)


def found(hub: Hub, tx: Tx, account_id: str) -> None:
    """For the first admin, who can give credits to everybody anyway: enough to try everything at once."""
    _grant(hub, tx, account_id, amount=hub.settings.operator_grant)


def _grant(hub: Hub, tx: Tx, account_id: str, *, amount: int) -> None:
    if hub.market.table.economy is not Economy.NONE:
        tx.post(f"grant:{account_id}", ledger.grant(account_id, amount))
