"""New accounts and their sign-up grant, an ordinary transfer from the platform's promotion balance.

Where top-ups need two administrators, so does the grant: otherwise one alone could create credits by creating accounts.
"""

from __future__ import annotations

from computepool.core.errors import Conflict, Forbidden
from computepool.core.money import ledger
from computepool.core.money.pricing import Economy, PriceTable
from computepool.hub.approvals import rows as approval_rows
from computepool.hub.clock import new_id
from computepool.hub.context import Hub
from computepool.hub.db.session import Tx
from computepool.hub.identity import access, rows as account_rows
from computepool.hub.identity.access import Principal
from computepool.hub.identity.idempotency import Remembered, write_once
from computepool.hub.money import booking
from computepool.protocol.accounts import AccountRequest, AccountView


async def create(hub: Hub, admin: Principal, request: AccountRequest, *, remembered: Remembered) -> AccountView:
    settings, clock, table = hub.settings, hub.clock, hub.money.market.table
    account_id, name, roles = new_id(clock, "acc"), request.name, request.roles
    two_person = settings.two_person_kinds()
    if access.Role.ADMIN in roles and "roles" in two_person:
        raise Forbidden(
            "A new administrator needs two administrators here: create the account without the role, then request it "
            "with `pool accounts roles`.",
            field="roles",
        )
    amount = 0 if table.economy is Economy.NONE else settings.signup_grant

    def effect(tx: Tx) -> AccountView:
        if not account_rows.insert_account(tx, account_id=account_id, name=name, roles=roles):
            raise Conflict(f"An account named {name} already exists.", field="name")
        tx.emit(actor=admin.account_id, action="account.created", account_id=account_id)
        made = AccountView(id=account_id, name=name, roles=list(roles), created_at_ms=tx.now_ms)
        if not amount or "top-ups" not in two_person:
            grant_credits(tx, account_id, amount=amount, table=table)
            return made
        details = {"account_id": account_id, "name": name, "amount": amount}
        approval_id = approval_rows.ask(tx, clock, admin.account_id, kind=approval_rows.GRANT, request=details)
        return made.model_copy(update={"approval_id": approval_id})

    return await write_once(hub, remembered, effect, model=AccountView)


def grant_credits(tx: Tx, account_id: str, *, amount: int, table: PriceTable) -> None:
    if table.economy is not Economy.NONE:
        booking.post(tx, f"grant:{account_id}", ledger.grant(account_id, amount))
