"""Fair use: how many jobs an account may have unfinished, and how much its jobs of one day may cost."""

from __future__ import annotations

from computepool.core.errors import BadRequest, NotFound, RateLimited
from computepool.core.ids import make_id
from computepool.core.money.money import format_credits
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.identity import access
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.access import Principal
from computepool.hub.identity.sign_in import account_view
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.state import QuotaUse
from computepool.protocol.accounts import AccountView, QuotaRequest

QUOTAS_TOPIC = "quotas"
_DAY_MS = 24 * 3600 * 1000
_RETRY_S = 60


async def reserve(hub: Hub, account_id: str, *, jobs: int, cost: int) -> None:
    """Refuse what is too much, or count it in; `give_back` undoes that when nothing was submitted after all.

    Counts exactly only when the estimate, which never shrinks by itself, says no.
    """
    use = hub.jobs.quota_uses.get(account_id)
    if use is None or _excess(use, jobs, cost):
        use = await _count(hub, account_id)
    if cost > use.cost_max:
        raise BadRequest(
            f"This would hold {format_credits(cost)} credits; your account may spend {format_credits(use.cost_max)} "
            "a day.",
            field="max_price",
        )
    if problem := _excess(use, jobs, cost):
        raise RateLimited(problem, retry_after_s=_RETRY_S)
    use.jobs += jobs
    use.cost += cost


def give_back(hub: Hub, account_id: str, *, jobs: int, cost: int) -> None:
    use = hub.jobs.quota_uses.get(account_id)
    if use is not None:
        use.jobs -= jobs
        use.cost -= cost


def _excess(use: QuotaUse, jobs: int, cost: int) -> str:
    if use.jobs + jobs > use.jobs_max:
        return f"Your account may have {use.jobs_max} unfinished jobs at once; it has {use.jobs}."
    if cost and use.cost + cost > use.cost_max:
        return (
            f"Your account may spend {format_credits(use.cost_max)} credits a day; the jobs of the last 24 hours "
            f"cost or hold {format_credits(use.cost)} and these would hold {format_credits(cost)}."
        )
    return ""


async def _count(hub: Hub, account_id: str) -> QuotaUse:
    """What is being submitted at this moment by others of the account may be missing: the limit is for fair use."""
    use = hub.jobs.quota_uses[account_id] = await hub.store.read(
        lambda connection: _read(hub, connection, account_id)
    )
    return use


def _read(hub: Hub, connection: Connection, account_id: str) -> QuotaUse:
    row, settings = account_rows.get_account(connection, account_id), hub.settings
    since = make_id("job", max(0, hub.now_ms() - _DAY_MS), bytes(10))  # ids begin with their time
    return QuotaUse(
        jobs=job_rows.count_open(connection, account_id),
        cost=job_rows.cost_since(connection, account_id, since),
        jobs_max=_either(getattr(row, "jobs_open_max", None), settings.jobs_open_max),
        cost_max=_either(getattr(row, "spend_per_day_max", None), settings.spend_per_day_max),
    )


def _either(own: int | None, default: int) -> int:
    return default if own is None else own


async def change(hub: Hub, admin: Principal, account_id: str, *, request: QuotaRequest) -> AccountView:
    access.check_not_pools(account_id)

    def unit(tx: Tx) -> AccountView:
        if not account_rows.set_quotas(tx, account_id, **request.model_dump()):
            raise NotFound("There is no such account.")
        tx.emit(
            actor=admin.account_id,
            action="account.quotas",
            account_id=account_id,
            data=request.model_dump_json(),
        )
        tx.touch(QUOTAS_TOPIC)
        row = account_rows.get_account(tx.connection, account_id)
        assert row is not None
        return account_view(row)

    return await hub.store.write(unit)
