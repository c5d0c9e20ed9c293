"""New accounts, and the credits that each begins with: an ordinary transfer from the platform's balance for it.

Where top-ups need two administrators these credits do, too: else one alone makes credits by making accounts.
"""

from __future__ import annotations

import json

from computepool.core.errors import Conflict, Forbidden
from computepool.core.money import ledger
from computepool.core.money.pricing import Economy, PriceTable
from computepool.hub.clock import new_id
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity import access, approval_requests
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.access import Principal
from computepool.hub.identity.idempotency import Remembered, once
from computepool.hub.money import booking
from computepool.hub.settings import Settings
from computepool.protocol.accounts import AccountRequest, AccountView


async def create(
    hub: Hub, admin: Principal, request: AccountRequest, *, remembered: Remembered
) -> AccountView:
    settings, clock, table = hub.settings, hub.clock, hub.money.market.table
    account_id, name, roles = new_id(clock, "acc"), request.name, request.roles
    two_person = settings.two_person_kinds()
    if access.Role.ADMIN in roles and "roles" in two_person:
        raise Forbidden(
            "A new administrator needs two here: make the account without the role, then ask for it with "
            "`pool accounts roles`.",
            field="roles",
        )
    amount = 0 if table.economy is Economy.NONE else settings.signup_grant

    def effect(tx: Tx) -> AccountView:
        if not account_rows.insert_account(tx, account_id=account_id, name=name, roles=roles):
            raise Conflict(f"There is an account named {name} already.", field="name")
        tx.emit(actor=admin.account_id, action="account.created", account_id=account_id)
        made = AccountView(id=account_id, name=name, roles=list(roles), created_at_ms=tx.now_ms)
        if not amount or "top-ups" not in two_person:
            welcome(tx, account_id, amount=amount, table=table)
            return made
        text = json.dumps({"account_id": account_id, "name": name, "amount": amount})
        approval_id = approval_requests.ask(tx, clock, admin, kind=approval_requests.GRANT, request=text)
        return made.model_copy(update={"approval_id": approval_id})

    return await hub.store.write(lambda tx: once(tx, remembered, lambda: effect(tx), model=AccountView))


def welcome(tx: Tx, account_id: str, *, amount: int, table: PriceTable) -> None:
    if table.economy is not Economy.NONE:
        booking.post(tx, f"grant:{account_id}", ledger.grant(account_id, amount))


def grant_to_operator(tx: Tx, account_id: str, *, settings: Settings, table: PriceTable) -> None:
    """For the first admin, who can give credits to everybody anyway: enough to try everything at once."""
    welcome(tx, account_id, amount=settings.operator_grant, table=table)
