"""Balances of an account, credits given by the operator, earnings that mature, and who lends and borrows most."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Literal

from computepool.core.errors import BadRequest, Conflict, NotFound
from computepool.core.ids import make_id
from computepool.core.money import ledger
from computepool.core.money.money import AMOUNT_MAX, format_credits
from computepool.core.money.pricing import Economy, PriceTable
from computepool.core.trust.reputation import TENURED_DAYS, VIOLATIONS_WINDOW_MS
from computepool.hub.clock import new_id
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import access, approval_requests
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.access import POOL_ACCOUNT, Principal
from computepool.hub.identity.idempotency import Remembered, once
from computepool.hub.identity.rows import AccountRow
from computepool.hub.jobs import rows as job_rows
from computepool.hub.money import booking, holds, ledger_rows
from computepool.hub.money.ledger_rows import Earning, TimeUsed
from computepool.hub.money.statements import whose
from computepool.hub.settings import Settings
from computepool.hub.settlement.verification import recheck_rows
from computepool.hub.snapshot import Snapshot, take
from computepool.hub.trust import reputation_rows
from computepool.protocol.money.credits import CreditsView, Leader, LeaderboardView, TopUpReply, TopUpRequest

By = Literal["credits", "hours"]
_MATURED_AT_ONCE = 200
_BOARD_MS = 30 * 24 * 3600 * 1000
_BOARD_AGE_MS = 60_000
#: Half of what 64 bits can count.
_BROUGHT_IN_MAX = 2**62
_SOURCES = {"bank": ledger.BANK, "promo": ledger.PROMO}


async def show(hub: Hub, principal: Principal, account_id: str | None) -> CreditsView:
    owner = whose(principal, account_id)

    def load(connection: Connection) -> tuple[dict[str, int], Earning | None, bool, int]:
        matured = ledger_rows.matured_up_to(connection, owner)
        return (
            ledger_rows.get_balances(connection, owner),
            ledger_rows.next_earned(connection, owner, after=matured),
            owner in _tenured_owners(connection, [owner], hub.now_ms()),
            ledger_rows.unconfirmed(connection, owner),
        )

    balances, upcoming, tenured, unconfirmed = await hub.store.read(load)
    user, held, maturing, earned = (balances[name] for name in ledger_rows.balance_names(owner))
    economy, holdback_ms = hub.money.market.table.economy, _holdback_ms(hub, tenured=tenured)
    return CreditsView(
        account_id=owner,
        economy=economy.value,
        available=user + earned,
        withdrawable=earned if economy is Economy.MARKET else 0,
        held=held,
        maturing=maturing,
        unconfirmed=unconfirmed,
        matures_next=upcoming.amount if upcoming is not None else 0,
        matures_at_ms=upcoming.at_ms + holdback_ms if upcoming is not None else None,
        holdback_ms=holdback_ms,
    )


def _holdback_ms(hub: Hub, *, tenured: bool) -> int:
    usual_ms = round(hub.settings.holdback_s * 1000)
    return min(usual_ms, round(hub.settings.holdback_tenured_s * 1000)) if tenured else usual_ms


# credits from the operator


async def top_up(hub: Hub, admin: Principal, request: TopUpRequest, *, remembered: Remembered) -> TopUpReply:
    """Given at once, or kept for a second administrator where the operator wants that."""
    _check_economy(hub.money.market.table, request)
    snapshot = take(hub)
    top_up_id = new_id(hub.clock, "top")

    def effect(tx: Tx) -> TopUpReply:
        if "top-ups" not in snapshot.settings.two_person_kinds():
            return give(tx, snapshot, request, actor=admin.account_id, top_up_id=top_up_id)
        account = _recipient(tx, request)
        _check_room(tx, account.id, request)
        shown = _give(tx, account, request, top_up_id=top_up_id)
        text = request.model_dump_json()
        approval_id = approval_requests.ask(
            tx, snapshot.clock, admin, kind=approval_requests.TOP_UP, request=text
        )
        return shown.model_copy(update={"approval_id": approval_id})

    return await hub.store.write(lambda tx: once(tx, remembered, lambda: effect(tx), model=TopUpReply))


def give(tx: Tx, snapshot: Snapshot, request: TopUpRequest, *, actor: str, top_up_id: str) -> TopUpReply:
    _check_economy(snapshot.table, request)
    account = _recipient(tx, request)
    _check_room(tx, account.id, request)
    legs = ledger.top_up(account.id, request.amount, source=_SOURCES[request.source])
    booking.post(tx, f"topup:{top_up_id}", legs, ref=request.note)
    data = {"amount": request.amount, "source": request.source}
    tx.emit(actor=actor, action="credits.given", account_id=account.id, data=json.dumps(data))
    return _give(tx, account, request, top_up_id=top_up_id)


def _recipient(tx: Tx, request: TopUpRequest) -> AccountRow:
    account = account_rows.get_account(tx.connection, request.account) or account_rows.find_account(
        tx.connection, request.account
    )
    if account is None:
        raise NotFound(f"There is no account {request.account}.", field="account")
    access.check_not_pools(account.id)
    return account


def _give(tx: Tx, account: AccountRow, request: TopUpRequest, *, top_up_id: str) -> TopUpReply:
    return TopUpReply(
        id=top_up_id,
        account_id=account.id,
        name=account.name,
        amount=request.amount,
        source=request.source,
        available=booking.balance(tx, ledger.user(account.id))
        + booking.balance(tx, ledger.owner(account.id)),
    )


def _check_room(tx: Tx, account_id: str, request: TopUpRequest) -> None:
    """No balance may grow beyond what every program can count exactly: SQLite would go on in floating point."""
    has = booking.balance(tx, ledger.user(account_id))
    brought_in = -booking.balance(tx, _SOURCES[request.source])
    if has + request.amount > AMOUNT_MAX or brought_in + request.amount > _BROUGHT_IN_MAX:
        raise BadRequest(f"The total would exceed {format_credits(AMOUNT_MAX)} credits.", field="amount")


def _check_economy(table: PriceTable, request: TopUpRequest) -> None:
    economy = table.economy
    if economy is Economy.NONE:
        raise Conflict("Jobs are free in this pool, so there are no credits.")
    if economy is Economy.TIME_BANK and request.source == "bank":
        raise BadRequest("This pool is a time bank: hours can be given, but not bought.", field="source")


# earnings


async def mature(hub: Hub) -> int:
    """Move what was earned long enough ago to where it can be spent. Returns how many accounts had any."""
    done = await _mature_all(hub, hub.money.matured, soon=False)
    if hub.settings.holdback_tenured_s < hub.settings.holdback_s:
        done += await _mature_all(hub, hub.money.matured_soon, soon=True)
    return done + await _mature_held(hub)


async def _mature_held(hub: Hub) -> int:
    """What was held until it was checked, or for long enough: job by job, whatever else its owner earned."""
    now_ms, done = hub.now_ms(), 0
    while found := await hub.store.read(
        lambda connection: recheck_rows.held_until(connection, now_ms=now_ms, limit=_MATURED_AT_ONCE)
    ):
        done += await hub.store.write(partial(_release, job_ids=found, now_ms=now_ms))
    return done


def _release(tx: Tx, *, job_ids: list[str], now_ms: int) -> int:
    owed: Counter[str] = Counter()
    for job in job_rows.lock_jobs(tx, job_ids).values():
        if job.held_until_ms and job.held_until_ms <= now_ms:  # else another hub was faster
            owed.update(holds.mature_held(tx, job))
    for account_id, amount in sorted(owed.items()):
        data = json.dumps({"amount": amount})
        tx.emit(actor="hub", action="credits.matured", account_id=account_id, data=data)
    return len(owed)


async def _mature_all(hub: Hub, seen: int | None, *, soon: bool) -> int:
    settings, now_ms = hub.settings, hub.now_ms()
    before, names = await hub.store.read(
        partial(_candidates, seen=seen, soon=soon, settings=settings, now_ms=now_ms)
    )
    done = 0
    for start in range(0, len(names), _MATURED_AT_ONCE):
        done += await _mature_some(hub, names[start : start + _MATURED_AT_ONCE], soon=soon)
    if soon:
        hub.money.matured_soon = before
    else:
        hub.money.matured = before
    return done


def _candidates(
    connection: Connection, *, seen: int | None, soon: bool, settings: Settings, now_ms: int
) -> tuple[int, list[str]]:
    before = _matures_by(settings, connection, now_ms, soon=soon)
    if seen is None:
        return before, ledger_rows.earning(connection)
    return before, ledger_rows.earners_between(connection, first=seen, before=before)


async def _mature_some(hub: Hub, names: list[str], *, soon: bool) -> int:
    """Looked at before anything is written: a pool at rest writes nothing."""
    settings, now_ms = hub.settings, hub.now_ms()
    due = await hub.store.read(partial(_due, names=names, soon=soon, settings=settings, now_ms=now_ms))
    return await hub.store.write(partial(_mature, names=due, soon=soon, settings=settings)) if due else 0


def _due(
    connection: Connection, *, names: list[str], soon: bool, settings: Settings, now_ms: int
) -> list[str]:
    before = _matures_by(settings, connection, now_ms, soon=soon)
    if soon:
        trusted = _tenured_owners(connection, names, now_ms)
        names = [name for name in names if name in trusted]
    return [name for name in names if _matured_pay(connection, name, before=before)[0]]


def _tenured_owners(connection: Connection, names: list[str], now_ms: int) -> set[str]:
    """Owners whose nodes were right for long enough, and never wrong lately: their earnings wait less."""
    return reputation_rows.tenured(
        connection, names, days=TENURED_DAYS, clean_since_ms=now_ms - VIOLATIONS_WINDOW_MS
    )


def _mature(tx: Tx, *, names: list[str], settings: Settings, soon: bool = False) -> int:
    account_rows.lock_accounts(tx, names)  # what another hub takes back now must not mature here
    before, count = _matures_by(settings, tx.connection, tx.now_ms, soon=soon), 0
    for name in names:
        amount, last, after = _matured_pay(tx.connection, name, before=before)
        if not amount:
            continue
        # Named by where it begins: two hubs that do this at once, each with its own idea of now, meet in one key.
        booking.post(tx, f"mature:{name}:{after}", ledger.mature(name, amount), ref=str(last))
        tx.emit(actor="hub", action="credits.matured", account_id=name, data=json.dumps({"amount": amount}))
        count += 1
    return count


def _matures_by(settings: Settings, connection: Connection, now_ms: int, *, soon: bool) -> int:
    wait_s = settings.holdback_tenured_s if soon else settings.holdback_s
    return ledger_rows.first_at(connection, now_ms - round(wait_s * 1000) + 1)


def _matured_pay(connection: Connection, account_id: str, *, before: int) -> tuple[int, int, int]:
    """(how much, the last transfer it covers, the last one that is covered already)"""
    after = ledger_rows.matured_up_to(connection, account_id)
    amount, last = ledger_rows.earned_between(connection, account_id, after=after, before=before)
    return amount, last, after


# the leaderboard


async def leaderboard(hub: Hub, *, by: By, limit: int) -> LeaderboardView:
    """Of the last 30 days. Names only: what somebody has is nobody else's business."""
    at_ms, board = hub.money.boards.get(by, (0, None))
    if board is None or not 0 <= hub.now_ms() - at_ms < _BOARD_AGE_MS:
        since_ms = max(0, hub.now_ms() - _BOARD_MS)
        board = await hub.store.read(lambda connection: _board(connection, by=by, since_ms=since_ms))
        hub.money.boards[by] = (hub.now_ms(), board)
    return board.model_copy(update={"lenders": board.lenders[:limit], "borrowers": board.borrowers[:limit]})


_PLACES_MAX = 100


def _board(connection: Connection, *, by: By, since_ms: int) -> LeaderboardView:
    since = ledger_rows.first_at(connection, since_ms)
    earned, paid = ledger_rows.credits_moved(connection, since=since)
    lent, borrowed = ledger_rows.time_used(connection, since_id=make_id("job", since_ms, bytes(10)))
    for theirs in (paid, borrowed):  # who runs hub jobs lends; the pool itself borrows nothing
        theirs.pop(POOL_ACCOUNT, None)
    return LeaderboardView(
        since_ms=since_ms,
        by=by,
        lenders=_leaders(connection, by, credits=earned, used=lent),
        borrowers=_leaders(connection, by, credits=paid, used=borrowed),
    )


def _leaders(
    connection: Connection, by: By, *, credits: dict[str, int], used: dict[str, TimeUsed]
) -> list[Leader]:
    ms = {account: int(row.ms or 0) for account, row in used.items()}

    def merit(account: str) -> tuple[int, int]:
        both = credits.get(account, 0), ms.get(account, 0)
        return both if by == "credits" else (both[1], both[0])

    best = sorted(credits.keys() | ms.keys(), key=merit, reverse=True)[:_PLACES_MAX]
    names = ledger_rows.get_names(connection, best)
    return [
        Leader(
            rank=rank,
            name=names.get(account, "somebody who left"),
            ran_ms=ms.get(account, 0),
            jobs=used[account].jobs if account in used else 0,
            credits=credits.get(account, 0),
        )
        for rank, account in enumerate(best, 1)
    ]
