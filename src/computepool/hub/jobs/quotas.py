"""Quotas: how many unfinished jobs an account may have, and how much its jobs of one day may cost."""

from __future__ import annotations

from computepool.core.errors import BadRequest, NotFound, RateLimited
from computepool.core.ids import make_id
from computepool.core.money.money import format_credits
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import access, rows as account_rows
from computepool.hub.identity.access import Principal
from computepool.hub.identity.sign_in import account_view
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.state import QuotaUse
from computepool.protocol.accounts import AccountView, QuotaRequest

QUOTAS_TOPIC = "quotas"
_DAY_MS = 24 * 3600 * 1000
_RETRY_S = 60


async def reserve(hub: Hub, account_id: str, *, jobs: int, cost: int) -> None:
    """Count a submission until `end_submission`, or refuse it.

    The database is asked only if the estimate, which never shrinks by itself, says no.
    """
    use = hub.jobs.quota_uses.get(account_id)
    if use is None or _excess(hub, account_id, use, jobs=jobs, cost=cost):
        use = await _count(hub, account_id)
    if cost > use.cost_max:
        raise BadRequest(
            f"This would put {format_credits(cost)} credits on hold; your account may spend "
            f"{format_credits(use.cost_max)} a day.",
            field="max_price",
        )
    if problem := _excess(hub, account_id, use, jobs=jobs, cost=cost):
        raise RateLimited(problem, retry_after_s=_RETRY_S)
    hub.jobs.submitting_jobs[account_id] += jobs
    hub.jobs.submitting_cost[account_id] += cost


def end_submission(hub: Hub, account_id: str, *, jobs: int, cost: int, is_kept: bool) -> None:
    for submitting, amount in ((hub.jobs.submitting_jobs, jobs), (hub.jobs.submitting_cost, cost)):
        submitting[account_id] -= amount
        if not submitting[account_id]:
            del submitting[account_id]
    if is_kept and (use := hub.jobs.quota_uses.get(account_id)) is not None:
        use.jobs += jobs
        use.cost += cost


def _excess(hub: Hub, account_id: str, use: QuotaUse, *, jobs: int, cost: int) -> str:
    open_jobs = use.jobs + hub.jobs.submitting_jobs[account_id]
    spent = use.cost + hub.jobs.submitting_cost[account_id]
    if open_jobs + jobs > use.jobs_max:
        return f"Your account may have {use.jobs_max} unfinished jobs at once; it has {open_jobs}."
    if cost and spent + cost > use.cost_max:
        return (
            f"Your account may spend {format_credits(use.cost_max)} credits a day; the jobs of the last 24 hours "
            f"cost or hold {format_credits(spent)} and these would hold {format_credits(cost)}."
        )
    return ""


async def _count(hub: Hub, account_id: str) -> QuotaUse:
    """Submissions that are under way may be missing: the limit need not be exact."""
    use = hub.jobs.quota_uses[account_id] = await hub.store.read(lambda connection: _read(hub, connection, account_id))
    return use


def _read(hub: Hub, connection: Connection, account_id: str) -> QuotaUse:
    row, settings = account_rows.get_account(connection, account_id), hub.settings
    jobs_max = None if row is None else row.jobs_open_max
    cost_max = None if row is None else row.spend_per_day_max
    since = make_id("job", max(0, hub.now_ms() - _DAY_MS), bytes(10))  # ids begin with their time
    return QuotaUse(
        jobs=job_rows.count_open(connection, account_id),
        cost=job_rows.cost_since(connection, account_id, since),
        jobs_max=settings.jobs_open_max if jobs_max is None else jobs_max,
        cost_max=settings.spend_per_day_max if cost_max is None else cost_max,
    )


async def change(hub: Hub, admin: Principal, account_id: str, *, request: QuotaRequest) -> AccountView:
    access.check_not_pools(account_id)

    def unit(tx: Tx) -> AccountView:
        if not account_rows.set_account(tx, account_id, **request.model_dump()):
            raise NotFound("There is no such account.")
        tx.emit(actor=admin.account_id, action="account.quotas", account_id=account_id, data=request.model_dump_json())
        tx.touch(QUOTAS_TOPIC)
        row = account_rows.get_account(tx.connection, account_id)
        assert row is not None
        return account_view(row)

    return await hub.store.write(unit)
