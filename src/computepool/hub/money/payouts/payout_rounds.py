"""Payouts and the bank: sends reserved payouts, asks about undecided ones, and receives the bank's webhooks.

Load, then call the bank outside any transaction, then apply. `submitted` is committed before the order is sent, so a hub
that dies in between leaves an order to ask about, never one that is sent as if for the first time. An order is sent again
only under its own idempotency key, under which the bank pays once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from computepool.core.backoff import double
from computepool.core.errors import Conflict
from computepool.core.money import payouts as rules
from computepool.core.money.payouts import (
    BankReply,
    BankRequest,
    BankStatus,
    PayoutReason,
    PayoutState,
    reason_parts,
    reason_text,
)
from computepool.hub.context import Hub
from computepool.hub.db.crashpoints import crash_point
from computepool.hub.db.session import Tx
from computepool.hub.money.banks.base import Bank, Notice, Order
from computepool.hub.money.banks.choice import open_bank
from computepool.hub.money.payouts import rows
from computepool.hub.money.payouts.payouts import event_data, move
from computepool.hub.money.payouts.rows import PayoutRow

logger = logging.getLogger(__name__)
_HUB = "hub"
#: A claim lasts for a question, an order and the time between them.
_CLAIM_CALLS = 3


@dataclass(frozen=True, slots=True)
class _Claim:
    """The right to call the bank about one payout until a time; then another hub may."""

    row: PayoutRow
    tries: int
    until_ms: int


async def run(hub: Hub) -> int:
    """One round. Returns how many payouts were due."""
    limit = hub.settings.payout_batch_max
    due = await hub.store.read(rows.list_due, now_ms=hub.now_ms(), limit=limit)
    by_provider: dict[str, list[PayoutRow]] = defaultdict(list)
    for row in due:
        by_provider[row.provider].append(row)
    for provider, found in by_provider.items():
        async with open_bank(provider, hub.settings) as bank:
            teller = _Teller(hub, bank)
            served = await asyncio.gather(*(teller.serve(row) for row in found), return_exceptions=True)
        _log_failures(found, served)
    return len(due)


def _log_failures(found: Sequence[PayoutRow], served: Sequence[BaseException | None]) -> None:
    """A payout that fails holds up no other; it is tried again when its claim ends."""
    for row, error in zip(found, served, strict=True):
        if isinstance(error, Conflict):
            logger.info("payout.overtaken: %s", row.id)
        elif error is not None:
            logger.error("payout.round_failed: %s", row.id, exc_info=error)


class _Teller:
    """One round with one bank."""

    def __init__(self, hub: Hub, bank: Bank) -> None:
        self._hub, self._bank = hub, bank
        self._calls = asyncio.Semaphore(hub.settings.payout_calls_max)

    async def serve(self, row: PayoutRow) -> None:
        async with self._calls:
            if row.state != PayoutState.RESERVED:
                await self._ask(row)
            elif (claim := await self._claim(row, submit=True)) is not None:
                await self._send(claim, BankRequest.SUBMIT)

    async def _ask(self, row: PayoutRow) -> None:
        claim = await self._claim(row)
        if claim is None:
            return
        answer = await self._bank.look_up(_order(row), row.provider_ref)
        if answer.status is not BankStatus.ABSENT:
            await self._apply(claim, answer, BankRequest.LOOK_UP)
            return
        absence = rules.judge_absence(
            why=reason_parts(row.reason)[0],
            known=row.provider_ref is not None,
            silent_ms=self._hub.now_ms() - row.updated_at_ms,
            certain_ms=round(self._hub.settings.payout_certain_s * 1000),
        )
        if absence is rules.Absence.SEND_AGAIN:
            await self._send_again(claim)
        elif absence is rules.Absence.GIVE_UP:
            await self._give_up(claim)
        else:
            await self._apply(claim, BankReply(BankStatus.UNCLEAR), BankRequest.LOOK_UP)

    async def _give_up(self, claim: _Claim) -> None:
        """The bank refused the order and does not know it: a definite no, unless another answer came meanwhile."""
        believed = claim.row

        def unit(tx: Tx) -> None:
            row = rows.get(tx.connection, believed.id)
            if row is None or row.tries != claim.tries:
                return
            if (row.state, row.reason, row.provider_ref) == (believed.state, believed.reason, None):
                detail = reason_parts(row.reason)[1]
                move(tx, row, to=PayoutState.FAILED, why=PayoutReason.BANK_REFUSED, actor=_HUB, detail=detail)

        await self._hub.store.write(unit)

    async def _send_again(self, claim: _Claim) -> None:
        """The bank does not know the order: it was lost or is still on its way. Under the same key it is paid once."""

        def unit(tx: Tx) -> PayoutRow | None:
            row = rows.get(tx.connection, claim.row.id)
            if row is None or row.state != claim.row.state or row.tries != claim.tries:
                return None
            if row.state == PayoutState.UNKNOWN:
                return move(tx, row, to=PayoutState.SUBMITTED, why=PayoutReason.SENDING, actor=_HUB)
            return row if rows.change(tx, row) else None  # it counts as sent from now

        row = await self._hub.store.write(unit)
        if row is not None:
            await self._send(_Claim(row, claim.tries, claim.until_ms), BankRequest.SUBMIT_AGAIN)

    async def _send(self, claim: _Claim, request: BankRequest) -> None:
        crash_point("before_bank_call")
        if self._hub.now_ms() >= claim.until_ms:
            return  # this hub was suspended for so long that another one may be sending it
        answer = await self._bank.submit(_order(claim.row))
        crash_point("after_bank_call")
        await self._apply(claim, answer, request)

    async def _claim(self, row: PayoutRow, *, submit: bool = False) -> _Claim | None:
        settings = self._hub.settings

        def unit(tx: Tx) -> _Claim | None:
            until_ms = tx.now_ms + round(_CLAIM_CALLS * settings.payout_call_s * 1000)
            if not rows.claim(tx, row, until_ms=until_ms):
                return None
            claimed = move(tx, row, to=PayoutState.SUBMITTED, why=PayoutReason.SENDING, actor=_HUB) if submit else row
            return _Claim(claimed, row.tries + 1, until_ms)

        return await self._hub.store.write(unit)

    async def _apply(self, claim: _Claim, answer: BankReply, request: BankRequest) -> None:
        if answer.status is BankStatus.UNCLEAR and answer.detail:
            logger.warning("payout.unclear: %s: %s", claim.row.id, answer.detail)
        next_try_ms = self._next_try_ms(claim, answer)

        def unit(tx: Tx) -> None:
            row = rows.get(tx.connection, claim.row.id)
            if row is None:
                return
            # Another hub has called the bank since: a refusal may mean that the order is there twice.
            overtaken = row.tries != claim.tries or row.provider_ref is not None
            effective = BankRequest.SUBMIT_AGAIN if request is BankRequest.SUBMIT and overtaken else request
            after = take_answer(tx, row, answer, request=effective)
            if row.tries == claim.tries and PayoutState(after.state) in rules.AT_THE_BANK:
                rows.try_again_at(tx, after, next_try_ms=next_try_ms)

        await self._hub.store.write(unit)

    def _next_try_ms(self, claim: _Claim, answer: BankReply) -> int:
        if not self._bank.can_look_up and answer.status is BankStatus.PROCESSING:
            return rules.NEVER_MS
        settings = self._hub.settings
        wait_s = double(settings.payout_retry_base_s, claim.tries - 1, most=settings.payout_retry_max_s)
        return self._hub.now_ms() + round(wait_s * 1000)


def _order(row: PayoutRow) -> Order:
    return Order(
        reference=row.id,
        paise=rules.paise_of(row.amount),
        target=rules.target_from_json(row.target),
        account_id=row.account_id,
    )


async def receive_webhook(hub: Hub, provider: str, *, body: bytes, signature: str) -> None:
    """Apply a verified webhook as an answer of the bank. The same one twice changes nothing."""
    async with open_bank(provider, hub.settings) as bank:
        notice = bank.read_notice(body, signature)
    if notice is not None:
        await hub.store.write(_take_notice, notice, provider)


def _take_notice(tx: Tx, notice: Notice, provider: str) -> None:
    row = rows.get(tx.connection, notice.reference)
    # Others may use the same bank account.
    if row is None or row.provider != provider:
        return
    if rules.paise_of(row.amount) != notice.paise:
        logger.error("payout.odd_notice: %s: the bank reports %d paise", row.id, notice.paise)
        return
    take_answer(tx, row, notice.answer, request=BankRequest.LOOK_UP)


def take_answer(tx: Tx, row: PayoutRow, answer: BankReply, *, request: BankRequest) -> PayoutRow:
    """Apply the bank's answer to the payout as it is now. States only move forward."""
    state = PayoutState(row.state)
    if state not in rules.AT_THE_BANK:
        if rules.contradicts(state, answer):
            _alarm(tx, row, answer)
        return row
    if answer.ref is not None and _is_another(tx, row, answer.ref):
        _alarm(tx, row, answer)
        return row
    columns = {} if answer.ref is None else {"provider_ref": answer.ref}
    step = rules.judge(answer, request)
    if step is None or (step.state is state and reason_parts(row.reason)[0] is step.why):
        if columns and row.provider_ref is None:
            rows.change(tx, row, **columns)
        return row
    if step.state is state:
        rows.change(tx, row, reason=reason_text(step.why, answer.detail), **columns)
        return row
    return move(tx, row, to=step.state, why=step.why, actor=_HUB, detail=answer.detail, columns=columns)


def _is_another(tx: Tx, row: PayoutRow, ref: str) -> bool:
    """Whether the bank has two payouts for one of ours, or one for two."""
    return row.provider_ref not in (None, ref) or rows.ref_taken(tx.connection, ref, payout_id=row.id)


def _alarm(tx: Tx, row: PayoutRow, answer: BankReply) -> None:
    """The ledger and the bank disagree. Nothing is moved: a person must compare both."""
    logger.error("payout.contradicted: %s is %s; the bank says %s", row.id, row.state, answer.status.value)
    tx.emit(
        actor=_HUB,
        action="payout.contradicted",
        account_id=row.account_id,
        before=row.state,
        after=row.state,
        reason=answer.status.value,
        data=event_data(row) | {"bank_ref": answer.ref},
    )
