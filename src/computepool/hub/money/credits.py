"""An account's balances, top-ups by the operator, maturing of earnings, and the leaderboard."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from computepool.core.errors import BadRequest, Conflict, NotFound
from computepool.core.ids import make_id
from computepool.core.money import ledger
from computepool.core.money.money import AMOUNT_MAX, format_credits
from computepool.core.money.pricing import Economy, PriceTable
from computepool.core.trust.reputation import TENURED_DAYS
from computepool.core.trust.violations import WINDOW_MS
from computepool.hub.approvals import rows as approval_rows
from computepool.hub.clock import new_id
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import access, rows as account_rows
from computepool.hub.identity.access import POOL_ACCOUNT, Principal
from computepool.hub.identity.idempotency import Remembered, write_once
from computepool.hub.identity.rows import AccountRow
from computepool.hub.jobs import rows as job_rows
from computepool.hub.money import booking, holds, ledger_rows
from computepool.hub.money.ledger_rows import TransferRow
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
_ISSUED_MAX = 2**62
_PLACES_MAX = 100
_SOURCES = {"bank": ledger.BANK, "promo": ledger.PROMO}


async def show(hub: Hub, principal: Principal, account_id: str | None) -> CreditsView:
    owner = access.chosen_account(principal, account_id)

    def load(connection: Connection) -> tuple[dict[str, int], TransferRow | None, bool, int]:
        matured = ledger_rows.last_matured(connection, owner)
        return (
            ledger_rows.get_balances(connection, owner),
            ledger_rows.next_earned(connection, owner, after=matured),
            owner in _tenured_owners(connection, [owner], hub.now_ms()),
            ledger_rows.unconfirmed_pay(connection, owner),
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
    """Give credits at once, or ask a second administrator where the operator requires one."""
    _check_economy(hub.money.market.table, request)
    snapshot = take(hub)
    top_up_id = new_id(hub.clock, "top")

    def effect(tx: Tx) -> TopUpReply:
        if "top-ups" not in snapshot.settings.two_person_kinds():
            return give(tx, snapshot, request, actor=admin.account_id, top_up_id=top_up_id)
        account = _check_recipient(tx, request)
        details, asker = request.model_dump(mode="json"), admin.account_id
        approval_id = approval_rows.ask(tx, snapshot.clock, asker, kind=approval_rows.TOP_UP, request=details)
        return _reply(tx, account, request, top_up_id=top_up_id, approval_id=approval_id)

    return await write_once(hub, remembered, effect, model=TopUpReply)


def give(tx: Tx, snapshot: Snapshot, request: TopUpRequest, *, actor: str, top_up_id: str) -> TopUpReply:
    _check_economy(snapshot.table, request)
    account = _check_recipient(tx, request)
    legs = ledger.top_up(account.id, request.amount, source=_SOURCES[request.source])
    booking.post(tx, f"topup:{top_up_id}", legs, ref=request.note)
    data = {"amount": request.amount, "source": request.source}
    tx.emit(actor=actor, action="credits.given", account_id=account.id, data=data)
    return _reply(tx, account, request, top_up_id=top_up_id)


def _check_recipient(tx: Tx, request: TopUpRequest) -> AccountRow:
    """The account, by id or name. Neither its balance nor the source may exceed what can be counted exactly: SQLite would
    continue in floating point."""
    account = account_rows.find_account(tx.connection, request.account)
    if account is None:
        raise NotFound(f"There is no account {request.account}.", field="account")
    access.check_not_pools(account.id)
    balance = booking.balance(tx, ledger.user(account.id))
    issued = -booking.balance(tx, _SOURCES[request.source])
    if balance + request.amount > AMOUNT_MAX or issued + request.amount > _ISSUED_MAX:
        raise BadRequest(f"The total would exceed {format_credits(AMOUNT_MAX)} credits.", field="amount")
    return account


def _reply(
    tx: Tx, account: AccountRow, request: TopUpRequest, *, top_up_id: str, approval_id: str | None = None
) -> TopUpReply:
    return TopUpReply(
        id=top_up_id,
        account_id=account.id,
        name=account.name,
        amount=request.amount,
        source=request.source,
        available=booking.balance(tx, ledger.user(account.id)) + booking.balance(tx, ledger.owner(account.id)),
        approval_id=approval_id,
    )


def _check_economy(table: PriceTable, request: TopUpRequest) -> None:
    economy = table.economy
    if economy is Economy.NONE:
        raise Conflict("Jobs are free in this pool, so there are no credits.")
    if economy is Economy.TIME_BANK and request.source == "bank":
        raise BadRequest("This pool is a time bank: hours can be given, but not bought.", field="source")


# earnings


async def mature(hub: Hub) -> int:
    """Move earnings past their holdback to where they can be spent. Returns how many accounts had any."""
    done = await _mature_all(hub, soon=False)
    if hub.settings.holdback_tenured_s < hub.settings.holdback_s:
        done += await _mature_all(hub, soon=True)
    return done + await _mature_held(hub)


async def _mature_held(hub: Hub) -> int:
    """Pay that was held for a check and is due: job by job, independently of the owner's other earnings."""
    now_ms, done = hub.now_ms(), 0
    while found := await hub.store.read(recheck_rows.due_jobs, now_ms=now_ms, limit=_MATURED_AT_ONCE):
        done += await hub.store.write(_release_held, job_ids=found, now_ms=now_ms)
    return done


def _release_held(tx: Tx, *, job_ids: list[str], now_ms: int) -> int:
    owed: Counter[str] = Counter()
    for job in job_rows.lock_jobs(tx, job_ids).values():
        if job.held_until_ms and job.held_until_ms <= now_ms:  # else another hub did it
            owed.update(holds.mature_held(tx, job))
    for account_id, amount in sorted(owed.items()):
        tx.emit(actor="hub", action="credits.matured", account_id=account_id, data={"amount": amount})
    return len(owed)


async def _mature_all(hub: Hub, *, soon: bool) -> int:
    settings, now_ms, seen = hub.settings, hub.now_ms(), hub.money.matured.get(soon)
    before, names = await hub.store.read(_candidates, seen=seen, soon=soon, settings=settings, now_ms=now_ms)
    done = 0
    for start in range(0, len(names), _MATURED_AT_ONCE):
        some = names[start : start + _MATURED_AT_ONCE]
        # Read before writing: a pool at rest writes nothing.
        due = await hub.store.read(_due, names=some, soon=soon, settings=settings, now_ms=now_ms)
        if due:
            done += await hub.store.write(_mature, names=due, soon=soon, settings=settings)
    hub.money.matured[soon] = before
    return done


def _candidates(
    connection: Connection, *, seen: int | None, soon: bool, settings: Settings, now_ms: int
) -> tuple[int, list[str]]:
    before = _matures_by(settings, connection, now_ms, soon=soon)
    if seen is None:
        return before, ledger_rows.earners(connection)
    return before, ledger_rows.earners_between(connection, first=seen, before=before)


def _due(connection: Connection, *, names: list[str], soon: bool, settings: Settings, now_ms: int) -> list[str]:
    before = _matures_by(settings, connection, now_ms, soon=soon)
    if soon:
        trusted = _tenured_owners(connection, names, now_ms)
        names = [name for name in names if name in trusted]
    return [name for name in names if _matured_pay(connection, name, before=before)[0]]


def _tenured_owners(connection: Connection, names: list[str], now_ms: int) -> set[str]:
    """Owners with a node that has been right for long enough and not wrong recently: their holdback is shorter."""
    return reputation_rows.tenured_owners(connection, names, days=TENURED_DAYS, clean_since_ms=now_ms - WINDOW_MS)


def _mature(tx: Tx, *, names: list[str], settings: Settings, soon: bool = False) -> int:
    account_rows.lock_accounts(tx, names)  # pay that another hub is taking back must not mature here
    before, count = _matures_by(settings, tx.connection, tx.now_ms, soon=soon), 0
    for name in names:
        amount, last, after = _matured_pay(tx.connection, name, before=before)
        if not amount:
            continue
        # The key names where it begins: two hubs doing this at once, each by its own clock, collide on one key.
        booking.post(tx, f"mature:{name}:{after}", ledger.mature(name, amount), ref=str(last))
        tx.emit(actor="hub", action="credits.matured", account_id=name, data={"amount": amount})
        count += 1
    return count


def _matures_by(settings: Settings, connection: Connection, now_ms: int, *, soon: bool) -> int:
    wait_s = settings.holdback_tenured_s if soon else settings.holdback_s
    return ledger_rows.first_at(connection, now_ms - round(wait_s * 1000) + 1)


def _matured_pay(connection: Connection, account_id: str, *, before: int) -> tuple[int, int, int]:
    """The amount, the last transfer it covers, and the last one covered before."""
    after = ledger_rows.last_matured(connection, account_id)
    amount, last = ledger_rows.sum_earned(connection, account_id, after=after, before=before)
    return amount, last, after


# the leaderboard


async def leaderboard(hub: Hub, *, by: By, limit: int) -> LeaderboardView:
    """The last 30 days, by account name."""
    at_ms, board = hub.money.boards.get(by, (0, None))
    if board is None or not 0 <= hub.now_ms() - at_ms < _BOARD_AGE_MS:
        since_ms = max(0, hub.now_ms() - _BOARD_MS)
        board = await hub.store.read(_board, by=by, since_ms=since_ms)
        hub.money.boards[by] = (hub.now_ms(), board)
    return board.model_copy(update={"lenders": board.lenders[:limit], "borrowers": board.borrowers[:limit]})


def _board(connection: Connection, *, by: By, since_ms: int) -> LeaderboardView:
    since = ledger_rows.first_at(connection, since_ms)
    earned, paid = ledger_rows.credits_moved(connection, since=since)
    since_id = make_id("job", since_ms, bytes(10))
    lent, borrowed = ledger_rows.time_moved(connection, since_id=since_id)
    for theirs in (paid, borrowed):  # hub jobs count for who runs them, but the pool is no borrower
        theirs.pop(POOL_ACCOUNT, None)
    return LeaderboardView(
        since_ms=since_ms,
        by=by,
        lenders=_leaders(connection, by, credits=earned, time_used=lent),
        borrowers=_leaders(connection, by, credits=paid, time_used=borrowed),
    )


def _leaders(
    connection: Connection, by: By, *, credits: dict[str, int], time_used: dict[str, tuple[int, int]]
) -> list[Leader]:
    def merit(account: str) -> tuple[int, int]:
        both = credits.get(account, 0), time_used.get(account, (0, 0))[0]
        return both if by == "credits" else both[::-1]

    best = sorted(credits.keys() | time_used.keys(), key=merit, reverse=True)[:_PLACES_MAX]
    names = account_rows.get_names(connection, best)
    leaders = []
    for rank, account in enumerate(best, 1):
        ran_ms, jobs = time_used.get(account, (0, 0))
        name, amount = names.get(account, "a former account"), credits.get(account, 0)
        leaders.append(Leader(rank=rank, name=name, ran_ms=ran_ms, jobs=jobs, credits=amount))
    return leaders
