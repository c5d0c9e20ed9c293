"""Fair use: how many jobs an account may have unfinished, and how much its jobs of one day may cost."""

from __future__ import annotations

from computepool.core.errors import NotFound, RateLimited
from computepool.core.ids import make_id
from computepool.core.money import format_credits
from computepool.hub.services.access import Principal
from computepool.hub.services.context import Hub, Use
from computepool.hub.services.identity import account_view
from computepool.hub.store import accounts
from computepool.hub.store import jobs as job_rows
from computepool.hub.store.session import Tx
from computepool.protocol.accounts import AccountView, QuotaRequest

QUOTAS_TOPIC = "quotas"
_DAY_MS = 24 * 3600 * 1000
#: What an account spends is added up anew no more often than this: a day may have very many jobs.
_RECOUNT_MS = 5_000
_RETRY_S = 60


def check(hub: Hub, tx: Tx, account_id: str, *, jobs: int, cost: int) -> None:
    """Refuse what is too much. Counts exactly only when the estimate, which never shrinks by itself, says so."""
    use = hub.uses.get(account_id)
    if use is None or _worth_counting(use, jobs, cost, now_ms=tx.now_ms):
        use = _count(hub, tx, account_id)
    if problem := _exceeded(use, jobs, cost):
        raise RateLimited(problem, retry_after_s=_RETRY_S)
    use.jobs += jobs
    use.cost += cost
    hub.uses[account_id] = use


def _worth_counting(use: Use, jobs: int, cost: int, *, now_ms: int) -> bool:
    if use.jobs + jobs > use.jobs_max:
        return True
    return bool(_exceeded(use, jobs, cost)) and now_ms - use.counted_at_ms >= _RECOUNT_MS


def _exceeded(use: Use, jobs: int, cost: int) -> str:
    if use.jobs + jobs > use.jobs_max:
        return f"Your account may have {use.jobs_max} unfinished jobs at once; it has {use.jobs}."
    if cost and use.cost + cost > use.cost_max:
        return (
            f"Your account may spend {format_credits(use.cost_max)} credits a day; the jobs of the last 24 hours "
            f"cost or hold {format_credits(use.cost)} and these would hold {format_credits(cost)}."
        )
    return ""


def _count(hub: Hub, tx: Tx, account_id: str) -> Use:
    row, settings = accounts.get_account(tx.connection, account_id), hub.settings
    since = make_id("job", max(0, tx.now_ms - _DAY_MS), bytes(10))  # ids begin with their time
    return Use(
        jobs=job_rows.count_open(tx.connection, account_id),
        cost=job_rows.cost_since(tx.connection, account_id, since),
        jobs_max=_either(getattr(row, "jobs_open_max", None), settings.jobs_open_max),
        cost_max=_either(getattr(row, "spend_per_day_max", None), settings.spend_per_day_max),
        counted_at_ms=tx.now_ms,
    )


def _either(own: int | None, default: int) -> int:
    return default if own is None else own


async def change(hub: Hub, admin: Principal, account_id: str, *, request: QuotaRequest) -> AccountView:
    def unit(tx: Tx) -> AccountView:
        if not accounts.set_quotas(tx, account_id, **request.model_dump()):
            raise NotFound("There is no such account.")
        tx.emit(
            actor=admin.account_id,
            action="account.quotas",
            account_id=account_id,
            data=request.model_dump_json(),
        )
        tx.touch(QUOTAS_TOPIC)
        row = accounts.get_account(tx.connection, account_id)
        assert row is not None
        return account_view(row)

    return await hub.store.write(unit)
