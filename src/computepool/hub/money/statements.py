"""An account's statement: every transfer of its balances, as it sees them; by pages, and whole as CSV."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from computepool.core.ids import make_id
from computepool.core.money import ledger
from computepool.core.money.ledger import Kind
from computepool.core.money.money import CREDIT
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.identity import access, cursors
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import rows as job_rows
from computepool.hub.jobs.rows import JobRow
from computepool.hub.money import ledger_rows
from computepool.hub.money.banks.manual import safe_cell
from computepool.hub.money.holds import settle_key, take_back_key
from computepool.hub.money.ledger_rows import Filter, KindSum, TransferRow
from computepool.protocol.money.credits import Entry, StatementPage, Sum

_EXPORT_PAGE = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BALANCES = {"user": "available", "escrow": "held", "earn": "maturing", "owner": "earned", "payout": "payout"}
_OTHERS = {ledger.FEES: "fees", ledger.PROMO: "promotion", ledger.BANK: "bank", ledger.LOSS: "losses"}


def whose(principal: Principal, account_id: str | None) -> str:
    """Everybody their own; an admin anybody's."""
    owner = account_id or principal.account_id
    access.check_owner(principal, owner, what="account")
    return owner


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementFilter(Filter):
    """What a caller asks of a statement."""

    job_id: str | None = None


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
    owner, before = whose(principal, account_id), _number(after)

    def load(connection: Connection) -> tuple[list[TransferRow], list[KindSum]]:
        if filters.job_id is not None:
            return _of_job(connection, owner, filters), []
        rows = ledger_rows.statement(connection, owner, filters, before=before, limit=limit)
        return rows, ledger_rows.sums(connection, owner, filters) if with_sums else []

    rows, sums = await hub.store.read(load)
    full = len(rows) == limit and filters.job_id is None
    return StatementPage(
        entries=[entry(row, owner) for row in rows],
        sums=[Sum.model_validate(asdict(row)) for row in sums],
        next=str(rows[-1].seq) if full else None,
    )


def _number(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isdecimal() or len(cursor) > 18:
        raise cursors.wrong()
    return int(cursor)


def _of_job(connection: Connection, owner: str, filters: StatementFilter) -> list[TransferRow]:
    """The few transfers of one job are found by their keys, newest first."""
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
    """Of what was set aside for it (with the other jobs of its submission), and of what became of that."""
    first = job.id if job.hub_job else earlier_id(job.id, job.item)
    return f"hold:{first}", settle_key(job.id)


def earlier_id(job_id: str, steps: int) -> str:
    """The id so many places before: the ids of one submission are consecutive numbers (see new_ids)."""
    prefix, _, text = job_id.rpartition("_")
    number = 0
    for character in text:
        number = number * len(_DIGITS) + _DIGITS.index(character)
    number -= steps
    return make_id(prefix, number >> 80, (number & (1 << 80) - 1).to_bytes(10, "big"))


_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


def entry(row: TransferRow, account_id: str) -> Entry:
    mine = ledger_rows.balance_names(account_id)
    spendable = (ledger.user(account_id), ledger.owner(account_id))
    return Entry.from_attributes(
        row,
        change=_change(row, mine),
        available_change=_change(row, spendable),
        source=_balance_label(row.debit, mine),
        target=_balance_label(row.credit, mine),
        text=_words(row, mine),
    )


def _change(row: TransferRow, balances: tuple[str, ...]) -> int:
    return int(row.amount) * ((row.credit in balances) - (row.debit in balances))


def _balance_label(name: str, mine: tuple[str, ...]) -> str:
    kind, _, _ = name.partition(":")
    if name in mine or kind == "payout":
        return _BALANCES[kind]
    return _OTHERS.get(name, "another account")


def _words(row: TransferRow, mine: tuple[str, ...]) -> str:
    job = f" job {row.job_id}" if row.job_id else ""
    note = f": {row.ref}" if row.ref else ""
    words = {
        Kind.HOLD: f"Put on hold for{job}" + (f", the first of {row.ref}" if row.ref else ""),
        Kind.PAY: f"Earned by{job}" if row.credit in mine else f"Paid to the owner of the node that did{job}",
        Kind.FEE: f"The platform's fee for{job}",
        Kind.REFUND: f"Unused part of the hold for{job} returned",
        Kind.TAKE_BACK: f"{'Came' if row.credit in mine else 'Taken'} back: the result of{job} was wrong",
        Kind.MATURE: "Earnings that matured: yours to spend",
        Kind.GRANT: "Credits to begin with",
        Kind.TOP_UP: ("Paid in" if row.debit == ledger.BANK else "Given by the operator") + note,
        Kind.PAYOUT_RESERVE: "On its way to your bank",
        Kind.PAYOUT_RETURN: "A payout that did not succeed came back",
        Kind.PAYOUT_PAID: "Paid out",
    }
    return f"{words[Kind(row.kind)]}."


# export

_CSV_HEADER = "number,time,kind,amount,change,available change,from,to,job,reference,text"


def export(
    hub: Hub, principal: Principal, account_id: str | None, *, filters: StatementFilter
) -> AsyncIterator[str]:
    """The whole statement as CSV, a page at a time. Refused here, before the answer begins, or not at all."""
    return _export(hub, principal, whose(principal, account_id), filters=filters)


async def _export(
    hub: Hub, principal: Principal, owner: str, *, filters: StatementFilter
) -> AsyncIterator[str]:
    yield f"{_CSV_HEADER}\r\n"
    after: str | None = None
    while True:
        part = await page(
            hub, principal, owner, filters=filters, after=after, limit=_EXPORT_PAGE, with_sums=False
        )
        if part.entries:
            yield "".join(_csv_line(found) for found in part.entries)
        after = part.next
        if after is None:
            return


def _csv_line(found: Entry) -> str:
    numbers = (found.amount, found.change, found.available_change)
    cells = (
        str(found.seq),
        _time(found.at_ms),
        found.kind,
        *map(_plain, numbers),
        *map(_cell, (found.source, found.target, found.job_id or "", found.ref or "", found.text)),
    )
    return ",".join(cells) + "\r\n"


def _plain(amount: int) -> str:
    """Credits as every program reads them: no thousands separator, always six decimals."""
    whole, fraction = divmod(abs(amount), CREDIT)
    return f"{'-' if amount < 0 else ''}{whole}.{fraction:06d}"


def _cell(text: str) -> str:
    """Quoted, and never a formula: words of others end up here."""
    return '"' + safe_cell(text).replace('"', '""') + '"'


def _time(at_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
