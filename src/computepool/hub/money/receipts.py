"""Receipts for paid jobs: what was agreed, done and moved, signed by the hub."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from computepool.core.errors import Conflict
from computepool.core.jobs.lifecycle import JobState
from computepool.core.money.bills import Bill
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import rows as job_rows
from computepool.hub.money import costs, ledger_rows
from computepool.hub.money.costs import JobMoney, PaidAttempt
from computepool.hub.money.holds import settle_key
from computepool.hub.money.ledger_rows import TransferRow
from computepool.hub.money.statements import job_keys
from computepool.protocol.money import receipts
from computepool.protocol.money.receipts import (
    FORMAT,
    Receipt,
    ReceiptPrices,
    ReceiptRun,
    ReceiptTransfer,
    SignedReceipt,
)
from computepool.protocol.tokens import public_text

_OF_BILL = ("spot", "units", "price", "billed_ms", "charge", "pay", "fee")


async def issue(hub: Hub, principal: Principal, job_id: str) -> SignedReceipt:
    """The receipt is the same every time, as long as the hub signs with the same key."""

    def load(connection: Connection) -> tuple[JobMoney | None, Sequence[TransferRow], dict[int, str], str | None]:
        money = costs.load(connection, job_id)
        rows = [] if money is None else ledger_rows.by_keys(connection, job_keys(money.job))
        hashes = ledger_rows.hashes(connection, [row.seq - 1 for row in rows])
        return money, rows, hashes, _result_digest(connection, job_id)

    found, rows, hashes, result = await hub.store.read(load)
    money = costs.visible(principal, found)
    if not money.paid or money.job.state != JobState.SUCCEEDED:
        raise Conflict(f"Only a job that succeeded has a receipt; this one is {money.job.state}.")
    if not any(row.tx_key == settle_key(job_id) for row in rows):
        raise Conflict("Nothing was put on hold or paid for this job, so there is no receipt.")
    transfers = [ReceiptTransfer(**row._asdict(), previous=hashes[row.seq - 1]) for row in rows]
    receipt = _receipt(hub, money, transfers=transfers, result=result)
    return receipts.sign(receipt, hub.identity.secrets.signing_key)


def _result_digest(connection: Connection, job_id: str) -> str | None:
    """A large result is an artifact, named by its digest; a small one is hashed here."""
    row = job_rows.get_job_full(connection, job_id)
    if row is None or row.result is None:
        return None if row is None else row.result_artifact
    return hashlib.sha256(row.result.encode()).hexdigest()


def _receipt(hub: Hub, money: JobMoney, *, transfers: list[ReceiptTransfer], result: str | None) -> Receipt:
    job, (first, *others) = money.job, money.runs
    return Receipt(
        **_run(first),
        format=FORMAT,
        pool=hub.settings.name,
        kid=hub.identity.secrets.kid,
        key=public_text(hub.identity.secrets.signing_key),
        job_id=job.id,
        jobs=job.item_count,
        spec_digest=job.spec_digest,
        result_digest=result,
        submitter=job.account_id,
        accepted_at_ms=transfers[-1].at_ms,
        longest_ms=job.longest_ms,
        max_price=job.ceiling,
        hold=job.hold,
        refund=job.hold - (job.charge or 0),
        confirmed_by=[ReceiptRun(**_run(other)) for other in others],
        continued_from=[ReceiptRun(**_run(part) | _part_times(part)) for part in money.parts],
        transfers=transfers,
    )


def _run(paid: PaidAttempt) -> dict[str, Any]:
    attempt, bill = paid.attempt, paid.bill
    return {
        "attempt_id": attempt.id,
        "report_digest": attempt.report_digest or "",
        "owner": attempt.owner_id,
        "node": attempt.node_id,
        "tier": bill.zone.tier,
        "region": bill.zone.region,
        "prices": _prices(bill),
        **{name: getattr(attempt, name) for name in ("leased_at_ms", "started_at_ms", "finished_at_ms")},
        **{name: getattr(bill, name) for name in _OF_BILL},
    }


def _part_times(paid: PaidAttempt) -> dict[str, int]:
    """Times of the part that was used: the attempt itself may have run on in vain until its late report."""
    start_ms = paid.attempt.leased_at_ms
    return {"started_at_ms": start_ms, "finished_at_ms": start_ms + paid.bill.billed_ms}


def _prices(bill: Bill) -> ReceiptPrices:
    table = bill.table
    return ReceiptPrices(
        version=table.version,
        digest=table.digest,
        economy=table.economy.value,
        base=table.base,
        tier_rate=table.tier_rate(bill.zone.tier),
        region_rate=table.region_rate(bill.zone.region),
        fee_ppm=table.fee_ppm,
        spot_range=table.spot_range,
    )
