"""Matured earnings for tests, written as a settled job leaves them, so that every rule of the ledger holds."""

from __future__ import annotations

from sqlalchemy import func, select, update

from computepool.core.money import ledger
from computepool.core.money.ledger import BANK
from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import HOUR_MS
from computepool.hub.context import Hub
from computepool.hub.db.money_tables import transfers
from computepool.hub.db.session import Store, Tx
from computepool.hub.db.tables import attempts, jobs
from computepool.hub.money import booking, price_rows
from computepool.testing.factories import add_account, add_attempt, add_jobs, add_node
from computepool.testing.hub import HubDouble

#: One payout of the least amount.
LEAST = 500 * CREDIT


async def earn(hub: HubDouble | Hub, account_id: str, amount: int) -> None:
    store = hub.hub.store if isinstance(hub, HubDouble) else hub.store
    await store.write(lambda tx: _be_paid(tx, account_id, amount))
    await store.write(lambda tx: _mature(tx, account_id))


def earn_now(store: Store, account_id: str, amount: int) -> None:
    store.write_now(lambda tx: _be_paid(tx, account_id, amount))
    store.write_now(lambda tx: _mature(tx, account_id))


def _be_paid(tx: Tx, owner: str, amount: int) -> None:
    table = price_rows.newest(tx.connection)
    assert table is not None
    charge = amount * 5 // 4
    assert table.net_of(charge) == amount, "choose an amount that the fee divides evenly"
    submitter = add_account(tx)
    booking.post(tx, f"topup:{submitter}", ledger.top_up(submitter, charge, source=BANK))
    [job_id] = add_jobs(tx, account_id=submitter, ceiling=charge, hold=charge)
    booking.post(tx, f"hold:{job_id}", ledger.hold(submitter, amount=charge, earned=0), job_id=job_id)
    node_id = add_node(tx, account_id=owner, state="paused")
    terms = {"price": charge, "price_version": table.version, "billed_ms": HOUR_MS, "charge": charge}
    attempt_id = add_attempt(tx, job_id, node_id=node_id, owner_id=owner, **terms)
    for table_, id_, values in (
        (attempts, attempt_id, {"report_digest": "x"}),
        (jobs, job_id, {"accepted_attempt": 1, "charge": charge}),
    ):
        ended = {"state": "succeeded", "reason": "completed", "finished_at_ms": tx.now_ms, **values}
        tx.connection.execute(update(table_).where(table_.c.id == id_).values(ended))
    parts = ledger.split(held=charge, charge=charge, table=table)
    legs = ledger.settle(submitter, owner_id=owner, parts=parts, earned=0)
    booking.post(tx, f"settle:{job_id}", legs, job_id=job_id, ref=attempt_id)
    before = None
    for after in ("queued", "leased", "succeeded"):
        final = after == "succeeded"
        tx.emit(
            actor="hub",
            action=f"job.{after}",
            job_id=job_id,
            account_id=submitter,
            before=before,
            after=after,
            final=final,
        )
        before = after


def _mature(tx: Tx, owner: str) -> None:
    """Mature everything so far, whoever paid it."""
    paid = select(func.max(transfers.c.seq)).where(transfers.c.credit == ledger.earn(owner))
    last = tx.connection.execute(paid).scalar_one()
    booking.post(
        tx, f"mature:{owner}:{last}", ledger.mature(owner, booking.balance(tx, ledger.earn(owner))), ref=str(last)
    )
