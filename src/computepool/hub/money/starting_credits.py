"""Credits to begin with: every new account gets some from the platform's balance for it, as an ordinary transfer."""

from __future__ import annotations

from computepool.core.money import ledger
from computepool.core.money.pricing import Economy, PriceTable
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.settings import Settings


def for_newcomers(hub: Hub) -> int:
    return 0 if hub.market.table.economy is Economy.NONE else hub.settings.signup_grant


def welcome(tx: Tx, account_id: str, *, amount: int, table: PriceTable) -> None:
    if table.economy is not Economy.NONE:
        tx.post(f"grant:{account_id}", ledger.grant(account_id, amount))


def found(tx: Tx, account_id: str, *, settings: Settings, table: PriceTable) -> None:
    """For the first admin, who can give credits to everybody anyway: enough to try everything at once."""
    welcome(tx, account_id, amount=settings.operator_grant, table=table)
