"""Payouts as people use them: request, cancel, approve, reject, mark, list and export. No bank is called here.

A request reserves the money in the same transaction; every later step moves it in the transaction that changes the state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any, Unpack

from computepool.core.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    InsufficientCredits,
    InvariantViolation,
    RateLimited,
)
from computepool.core.money import ledger, payouts as rules
from computepool.core.money.money import format_credits
from computepool.core.money.payouts import PayoutReason, PayoutState, Target, UpiTarget, reason_parts, reason_text
from computepool.core.money.pricing import Economy
from computepool.hub.clock import new_id
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, EventFields, Tx
from computepool.hub.identity import access
from computepool.hub.identity.access import Principal
from computepool.hub.identity.idempotency import Remembered, write_once
from computepool.hub.money import booking
from computepool.hub.money.banks.choice import MANUAL
from computepool.hub.money.csv_files import csv_lines
from computepool.hub.money.payouts import rows
from computepool.hub.money.payouts.rows import PayoutRow
from computepool.hub.settings import Settings
from computepool.protocol.money.payouts import BankAccount, PayoutPage, PayoutRequest, PayoutView

_EXPORT_COLUMNS = [
    "reference",
    "amount_inr",
    "method",
    "name",
    "account_number",
    "ifsc",
    "upi",
    "account",
    "requested_at",
]
_SENTENCES: dict[PayoutReason, str] = {
    PayoutReason.FIRST: "waits for an administrator: it is the first payout of this account",
    PayoutReason.LARGE: "waits for an administrator: it is a large payout",
    PayoutReason.SECOND: "waits for a second administrator: one has approved it",
    PayoutReason.READY: "goes to the bank next",
    PayoutReason.APPROVED: "approved; goes to the bank next",
    PayoutReason.SENDING: "being sent to the bank",
    PayoutReason.PROCESSING: "the bank is working on it",
    PayoutReason.NO_ANSWER: "the bank's answer was lost; the hub asks until it is clear, and the money stays on hold",
    PayoutReason.REFUSED_AGAIN: "the bank refused a second try; the hub makes sure that the first one did not arrive",
    PayoutReason.BANK_PAID: "paid",
    PayoutReason.BANK_REFUSED: "the bank refused it; the money is back",
    PayoutReason.MARKED_PAID: "paid",
    PayoutReason.MARKED_FAILED: "it failed; the money is back",
    PayoutReason.REJECTED: "rejected by an administrator; the money is back",
    PayoutReason.CANCELLED: "cancelled; the money is back",
}


# requests


async def request(hub: Hub, principal: Principal, order: PayoutRequest, *, remembered: Remembered) -> PayoutView:
    table = hub.money.market.table
    if table.economy is not Economy.MARKET:
        raise Conflict("There are no payouts here: this pool's credits are not money.")
    rules.check_amount(order.amount, least=table.payout_min)
    target = _target(order)
    payout_id, settings = new_id(hub.clock, "payout"), hub.settings

    def effect(tx: Tx) -> PayoutView:
        return _reserve(tx, principal, payout_id, amount=order.amount, target=target, settings=settings)

    return await write_once(hub, remembered, effect, model=PayoutView)


def _target(order: PayoutRequest) -> Target:
    if order.upi is not None:
        return rules.upi_target(order.upi)
    if order.bank is None:
        raise BadRequest("Name one target: either upi or bank.")
    given = order.bank
    return rules.bank_target(account_number=given.account_number, ifsc=given.ifsc, name=given.name)


def _reserve(
    tx: Tx, principal: Principal, payout_id: str, *, amount: int, target: Target, settings: Settings
) -> PayoutView:
    account = principal.account_id
    available = booking.balance(tx, ledger.owner(account))
    if available < amount:
        raise InsufficientCredits(
            f"You have {format_credits(available)} matured credits; {format_credits(amount - available)} are "
            f"missing for a payout of {format_credits(amount)}.",
            field="amount",
        )
    if rows.count_undecided(tx.connection, account) >= settings.payouts_open_max:
        raise RateLimited(
            f"An account may have {settings.payouts_open_max} payouts under way at once.", retry_after_s=60
        )
    booking.post(
        tx,
        f"payout:{payout_id}:reserve",
        ledger.reserve_payout(account, payout_id=payout_id, amount=amount),
        ref=payout_id,
    )
    paid_before = rows.was_paid(tx.connection, account)
    waits_for = rules.needs_approval(amount, settings.approval_rules(), paid_before=paid_before)
    requested, why = PayoutState.REQUESTED.value, waits_for or PayoutReason.READY
    rows.insert(
        tx,
        id=payout_id,
        account_id=account,
        amount=amount,
        method=target.method,
        target=rules.target_to_json(target),
        provider=settings.payout_provider,
        state=requested,
        reason=reason_text(why),
    )
    row = _find(tx.connection, payout_id)
    _emit(tx, row, actor=account, action=f"payout.{requested}", after=requested, reason=why.value)
    if waits_for is None:
        row = move(tx, row, to=PayoutState.RESERVED, why=PayoutReason.READY, actor=account)
    return view(row, principal, settings)


# decisions


async def cancel(hub: Hub, principal: Principal, payout_id: str, *, remembered: Remembered) -> PayoutView:
    step = partial(_withdraw, why=PayoutReason.CANCELLED, actor=principal.account_id)
    return await _change(hub, principal, payout_id, step=step, remembered=remembered)


def _withdraw(tx: Tx, row: PayoutRow, *, why: PayoutReason, actor: str, detail: str = "") -> PayoutRow:
    """Return the money of a payout that has not been sent to the bank."""
    if PayoutState(row.state) not in rules.CANCELLABLE:
        raise Conflict(f"This payout can no longer be {why.value}: {sentence(row.reason)}.")
    return move(tx, row, to=PayoutState.REJECTED, why=why, actor=actor, detail=detail)


async def approve(hub: Hub, admin: Principal, payout_id: str, *, remembered: Remembered) -> PayoutView:
    settings = hub.settings

    def step(tx: Tx, row: PayoutRow) -> PayoutRow:
        if row.state != PayoutState.REQUESTED:
            raise Conflict(f"This payout does not wait for an approval: {sentence(row.reason)}.")
        if why := _approver_refusal(row, admin, settings):
            raise Forbidden(why)
        if settings.approval_rules().two_approvals and row.approved_by is None:
            return _record_first_approval(tx, row, admin)
        by = {"approved_by": ",".join(filter(None, (row.approved_by, admin.account_id)))}
        return move(tx, row, to=PayoutState.RESERVED, why=PayoutReason.APPROVED, actor=admin.account_id, columns=by)

    return await _change(hub, admin, payout_id, step=step, remembered=remembered)


def _approver_refusal(row: PayoutRow, admin: Principal, settings: Settings) -> str | None:
    return rules.approver_refusal(
        settings.approval_rules(), owner=row.account_id, approver=admin.account_id, approved_by=row.approved_by
    )


def can_approve(row: PayoutRow, principal: Principal, settings: Settings) -> bool:
    waits = row.state == PayoutState.REQUESTED
    return principal.is_admin and waits and _approver_refusal(row, principal, settings) is None


def _record_first_approval(tx: Tx, row: PayoutRow, admin: Principal) -> PayoutRow:
    reason = reason_text(PayoutReason.SECOND)
    if not rows.change(tx, row, state=row.state, reason=reason, approved_by=admin.account_id):
        raise Conflict("This payout changed concurrently; reload and try again.")
    _emit(tx, row, actor=admin.account_id, action="payout.approved_once", reason=PayoutReason.SECOND.value)
    return _find(tx.connection, row.id)


async def reject(hub: Hub, admin: Principal, payout_id: str, *, detail: str, remembered: Remembered) -> PayoutView:
    step = partial(_withdraw, why=PayoutReason.REJECTED, actor=admin.account_id, detail=detail)
    return await _change(hub, admin, payout_id, step=step, remembered=remembered)


async def mark_paid(
    hub: Hub, admin: Principal, payout_id: str, *, reference: str, remembered: Remembered
) -> PayoutView:
    """For an administrator who has seen it on the bank's statement."""

    def step(tx: Tx, row: PayoutRow) -> PayoutRow:
        _check_markable(row)
        if rows.ref_taken(tx.connection, reference, payout_id=payout_id):
            raise Conflict("Another payout already has this bank reference.", field="reference")
        return move(
            tx,
            row,
            to=PayoutState.PAID,
            why=PayoutReason.MARKED_PAID,
            actor=admin.account_id,
            detail=reference,
            columns={"provider_ref": row.provider_ref or reference},
        )

    return await _change(hub, admin, payout_id, step=step, remembered=remembered)


async def mark_failed(hub: Hub, admin: Principal, payout_id: str, *, detail: str, remembered: Remembered) -> PayoutView:
    """For an administrator who is certain that the bank has not paid it and will not."""

    def step(tx: Tx, row: PayoutRow) -> PayoutRow:
        _check_markable(row)
        return move(
            tx, row, to=PayoutState.FAILED, why=PayoutReason.MARKED_FAILED, actor=admin.account_id, detail=detail
        )

    return await _change(hub, admin, payout_id, step=step, remembered=remembered)


async def _change(
    hub: Hub,
    principal: Principal,
    payout_id: str,
    *,
    step: Callable[[Tx, PayoutRow], PayoutRow],
    remembered: Remembered,
) -> PayoutView:
    settings = hub.settings

    def effect(tx: Tx) -> PayoutView:
        return view(step(tx, _own(tx.connection, principal, payout_id)), principal, settings)

    return await write_once(hub, remembered, effect, model=PayoutView)


def _check_markable(row: PayoutRow) -> None:
    if not _can_mark(row):
        raise Conflict(f"This payout cannot be marked by hand: {sentence(row.reason)}.")


def _can_mark(row: PayoutRow) -> bool:
    """Not while a bank can still answer for the payout."""
    state = PayoutState(row.state)
    return state is PayoutState.UNKNOWN or (state is PayoutState.SUBMITTED and row.provider == MANUAL)


# transitions


def move(
    tx: Tx,
    row: PayoutRow,
    *,
    to: PayoutState,
    why: PayoutReason,
    actor: str,
    detail: str = "",
    columns: dict[str, Any] | None = None,
) -> PayoutRow:
    """Change the state, move the money that goes with it and emit the event. Raises Conflict if the payout has changed."""
    before = PayoutState(row.state)
    if not rules.may_become(before, to):
        raise InvariantViolation(f"payout {row.id} cannot become {to} from {before}")
    if not rows.change(tx, row, state=to.value, reason=reason_text(why, detail), **(columns or {})):
        raise Conflict("This payout changed concurrently; reload and try again.")
    if to is PayoutState.PAID:
        booking.post(tx, f"payout:{row.id}:paid", ledger.pay_out(row.id, row.amount), ref=row.id)
    elif to in rules.RETURNED:
        legs = ledger.return_payout(row.account_id, payout_id=row.id, amount=row.amount)
        booking.post(tx, f"payout:{row.id}:return", legs, ref=row.id)
    _emit(tx, row, actor=actor, action=f"payout.{to}", before=before.value, after=to.value, reason=why.value)
    return _find(tx.connection, row.id)


def _emit(tx: Tx, row: PayoutRow, *, actor: str, action: str, **about: Unpack[EventFields]) -> None:
    about["account_id"] = row.account_id
    tx.emit(actor=actor, action=action, data=event_data(row), **about)


def event_data(row: PayoutRow) -> dict[str, object]:
    """With the target masked: events are kept for ever, and many people read them."""
    masked = rules.target_from_json(row.target).mask()
    return {"payout_id": row.id, "amount": row.amount, "target": masked}


def _find(connection: Connection, payout_id: str) -> PayoutRow:
    row = rows.get(connection, payout_id)
    if row is None:
        raise InvariantViolation(f"payout {payout_id} is gone")
    return row


def _own(connection: Connection, principal: Principal, payout_id: str) -> PayoutRow:
    return access.require_owned(principal, rows.get(connection, payout_id), what="payout")


# views


async def get(hub: Hub, principal: Principal, payout_id: str) -> PayoutView:
    row = await hub.store.read(_own, principal, payout_id)
    return view(row, principal, hub.settings)


async def list_payouts(
    hub: Hub, principal: Principal, *, everybody: bool, state: str | None, after: str | None, limit: int
) -> PayoutPage:
    if everybody and not principal.is_admin:
        raise Forbidden("Only an administrator sees the payouts of all accounts.")

    def load(connection: Connection) -> tuple[list[PayoutRow], int]:
        account = None if everybody else principal.account_id
        found = rows.list_payouts(connection, account_id=account, state=state, before=after, limit=limit)
        return list(found), booking.balance_of(connection, ledger.owner(principal.account_id))

    found, available = await hub.store.read(load)
    views = [view(row, principal, hub.settings) for row in found]
    return PayoutPage(
        payouts=views,
        next=views[-1].id if len(views) == limit else None,
        available=available,
        minimum=hub.money.market.table.payout_min,
    )


async def export(hub: Hub) -> str:
    """The payouts to be paid by hand, as CSV for the bank."""
    found = await hub.store.read(rows.list_at_bank, provider=MANUAL)
    return csv_lines([_EXPORT_COLUMNS, *map(_export_cells, found)])


def _export_cells(row: PayoutRow) -> tuple[str, ...]:
    target = rules.target_from_json(row.target)
    bank = (target.name, target.account_number, target.ifsc) if isinstance(target, rules.BankTarget) else ("", "", "")
    upi = target.upi if isinstance(target, UpiTarget) else ""
    requested = datetime.fromtimestamp(row.created_at_ms / 1000, tz=UTC).isoformat(timespec="seconds")
    return (row.id, rules.rupees_of(row.amount), target.method, *bank, upi, row.account_name, requested)


def sentence(reason: str) -> str:
    why, detail = reason_parts(reason)
    return f"{_SENTENCES[why]} ({detail})" if detail else _SENTENCES[why]


def view(row: PayoutRow, principal: Principal, settings: Settings) -> PayoutView:
    state, target = PayoutState(row.state), rules.target_from_json(row.target)
    shown = access.may_manage(principal, row.account_id)
    return PayoutView.from_attributes(
        row,
        masked=target.mask(),
        upi=target.upi if shown and isinstance(target, UpiTarget) else None,
        bank=BankAccount(**asdict(target)) if shown and isinstance(target, rules.BankTarget) else None,
        reason=reason_parts(row.reason)[0].value,
        status=sentence(row.reason),
        can_cancel=shown and state in rules.CANCELLABLE,
        can_approve=can_approve(row, principal, settings),
        can_mark=principal.is_admin and _can_mark(row),
    )
