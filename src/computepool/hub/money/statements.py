"""Statements: every transfer of an account's balances, as that account sees it; in pages, or all of them as CSV."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from computepool.core.ids import earlier_id
from computepool.core.money import ledger
from computepool.core.money.ledger import Kind
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.identity import access, cursors
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.rows import JobRow
from computepool.hub.money import ledger_rows
from computepool.hub.money.csv_files import Amount, csv_lines
from computepool.hub.money.holds import settle_key, take_back_key
from computepool.hub.money.ledger_rows import TransferRow
from computepool.protocol.jobs.filters import StatementFilter
from computepool.protocol.money.credits import Entry, StatementPage, Sum

_EXPORT_PAGE = 1_000
_CSV_HEADER = [
    "number",
    "time",
    "kind",
    "amount",
    "change",
    "available change",
    "from",
    "to",
    "job",
    "reference",
    "text",
]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BALANCES = {"user": "available", "escrow": "held", "earn": "maturing", "owner": "earned", "payout": "payout"}
_OTHERS = {ledger.FEES: "fees", ledger.PROMO: "promotion", ledger.BANK: "bank", ledger.LOSS: "losses"}


async def page(
    hub: Hub,
    principal: Principal,
    account_id: str | None,
    *,
    filters: StatementFilter,
    after: str | None,
    limit: int,
    with_sums: bool,
) -> StatementPage:
    owner, before = access.chosen_account(principal, account_id), _seq_from_cursor(after)

    def load(connection: Connection) -> tuple[list[TransferRow], list[Sum]]:
        if filters.job_id is not None:
            return _job_transfers(connection, owner, filters), []
        rows = ledger_rows.statement(connection, owner, filters, before=before, limit=limit)
        sums = ledger_rows.sums(connection, owner, filters) if with_sums else []
        return rows, [Sum(**total) for total in sums]

    rows, sums = await hub.store.read(load)
    full = len(rows) == limit and filters.job_id is None
    return StatementPage(
        entries=[_entry(row, owner) for row in rows], sums=sums, next=str(rows[-1].seq) if full else None
    )


def _seq_from_cursor(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isdecimal() or len(cursor) > 18:
        raise cursors.wrong()
    return int(cursor)


def _job_transfers(connection: Connection, owner: str, filters: StatementFilter) -> list[TransferRow]:
    """Newest first. One job has few transfers, which are found by their keys."""
    job = job_rows.get_job(connection, filters.job_id or "")
    if job is None:
        return []
    mine = set(ledger_rows.balance_names(owner))
    rows = ledger_rows.by_keys(connection, [*job_keys(job), take_back_key(job.id)])
    return [row for row in reversed(rows) if {row.debit, row.credit} & mine and _within(row, filters)]


def _within(row: TransferRow, filters: StatementFilter) -> bool:
    return (
        (not filters.kinds or row.kind in filters.kinds)
        and (filters.since_ms is None or row.at_ms >= filters.since_ms)
        and (filters.until_ms is None or row.at_ms < filters.until_ms)
    )


def job_keys(job: JobRow) -> tuple[str, str]:
    """Idempotency keys of a job's hold, which it shares with its submission, and of its settlement."""
    first = job.id if job.hub_job else earlier_id(job.id, job.item)
    return f"hold:{first}", settle_key(job.id)


def _entry(row: TransferRow, account_id: str) -> Entry:
    mine = ledger_rows.balance_names(account_id)
    spendable = (ledger.user(account_id), ledger.owner(account_id))
    return Entry.from_attributes(
        row,
        change=_change(row, mine),
        available_change=_change(row, spendable),
        source=_balance_label(row.debit, mine),
        target=_balance_label(row.credit, mine),
        text=_description(row, mine),
    )


def _change(row: TransferRow, balances: tuple[str, ...]) -> int:
    return int(row.amount) * ((row.credit in balances) - (row.debit in balances))


def _balance_label(name: str, mine: tuple[str, ...]) -> str:
    kind, _, _ = name.partition(":")
    if name in mine or kind == "payout":
        return _BALANCES[kind]
    return _OTHERS.get(name, "another account")


def _description(row: TransferRow, mine: tuple[str, ...]) -> str:
    job = f" job {row.job_id}" if row.job_id else ""
    note = f": {row.ref}" if row.ref else ""
    descriptions = {
        Kind.HOLD: f"Put on hold for{job}" + (f", the first of {row.ref}" if row.ref else ""),
        Kind.PAY: f"Earned by{job}" if row.credit in mine else f"Paid to the owner of the node that ran{job}",
        Kind.FEE: f"The platform's fee for{job}",
        Kind.REFUND: f"Unused hold of{job} refunded",
        Kind.TAKE_BACK: f"{'Came' if row.credit in mine else 'Taken'} back: the result of{job} was wrong",
        Kind.MATURE: "Matured earnings",
        Kind.GRANT: "Initial credits",
        Kind.TOP_UP: ("Paid in" if row.debit == ledger.BANK else "Given by the operator") + note,
        Kind.PAYOUT_RESERVE: "Reserved for a payout",
        Kind.PAYOUT_RETURN: "Failed payout, returned",
        Kind.PAYOUT_PAID: "Paid out",
    }
    return f"{descriptions[Kind(row.kind)]}."


def export(hub: Hub, principal: Principal, account_id: str | None, *, filters: StatementFilter) -> AsyncIterator[str]:
    """The whole statement as CSV, a page at a time. A refusal is raised here, before the response begins."""
    return _export(hub, principal, access.chosen_account(principal, account_id), filters=filters)


async def _export(hub: Hub, principal: Principal, owner: str, *, filters: StatementFilter) -> AsyncIterator[str]:
    yield csv_lines([_CSV_HEADER])
    after: str | None = None
    while True:
        part = await page(hub, principal, owner, filters=filters, after=after, limit=_EXPORT_PAGE, with_sums=False)
        yield csv_lines(map(_csv_cells, part.entries))
        after = part.next
        if after is None:
            return


def _csv_cells(entry: Entry) -> tuple[str | int | Amount, ...]:
    amounts = map(Amount, (entry.amount, entry.change, entry.available_change))
    texts = (entry.source, entry.target, entry.job_id or "", entry.ref or "", entry.text)
    return entry.seq, _time(entry.at_ms), entry.kind, *amounts, *texts


def _time(at_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
