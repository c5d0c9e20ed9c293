"""`pool credits …`: balance, statement, the cost of a job, and the leaderboard."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Context, Option, Typer

from computepool.cli import output
from computepool.cli.options import JobId, Limit, OfAccount, OfJob, accepts, collects, open_pool, option
from computepool.core.errors import BadRequest
from computepool.core.money.money import format_credits
from computepool.sdk.client.sizes import seconds
from computepool.sdk.clock import now_ms

if TYPE_CHECKING:
    from computepool.protocol.money.credits import CreditsView, Entry

app = Typer()
_KINDS = (
    "hold", "pay", "fee", "refund", "take_back", "mature", "grant", "top_up", "payout_reserve", "payout_paid",
    "payout_return",
)  # fmt: skip


@app.callback(invoke_without_command=True)
def balance(ctx: Context) -> None:
    """Show your balance and your transfers.

    The balance is what is available, held for unfinished jobs, and earned but not matured.

    Examples:
      pool credits
      pool credits statement --since 7d
      pool credits why job_01h…
    """
    if ctx.invoked_subcommand is not None:
        return
    have = open_pool().credits()
    output.show_fields(have, _fields(have))


def _fields(have: CreditsView) -> list[tuple[str, output.Cell]]:
    if have.economy == "none":
        return [("credits", "jobs are free in this pool")]
    upcoming = unconfirmed = ""
    if have.matures_at_ms is not None:
        when = output.span(have.matures_at_ms - now_ms())
        upcoming = f"{format_credits(have.matures_next)} of it in {when}"
    if have.unconfirmed:
        amount = format_credits(have.unconfirmed)
        unconfirmed = f"{amount} of the maturing credits are held until another owner's node confirms the results"
    return [
        ("available", format_credits(have.available)),
        ("withdrawable", format_credits(have.withdrawable) if have.economy == "market" else None),
        ("held", format_credits(have.held)),
        ("maturing", format_credits(have.maturing)),
        ("next", upcoming),
        ("unconfirmed", unconfirmed),
    ]


@collects(
    {
        "kind": option(str, "KIND", f"One of {', '.join(_KINDS)}."),
        "job_id": OfJob,
        "since_ms": option(str, "TIME", "Start: 2h or 7d ago, or a date such as 2026-05-01.", "--since"),
        "until_ms": option(str, "TIME", "End, in the same format.", "--until"),
        "account_id": OfAccount,
    }
)
def _filters(given: dict[str, Any]) -> dict[str, Any]:
    if given.get("kind", _KINDS[0]) not in _KINDS:
        raise BadParameter(f"one of {', '.join(_KINDS)}.", param_hint="--kind")
    moments = {name: _moment(given[name], what=f"--{name[:5]}") for name in ("since_ms", "until_ms") if name in given}
    return given | moments


@app.command()
@accepts(filters=_filters)
def statement(
    *,
    filters: dict[str, Any],
    sums: Annotated[bool, Option("--sums", help="Show only the totals by kind.")] = False,
    csv: Annotated[
        Path | None, Option(metavar="FILE", help="Write the whole statement as CSV; - for standard output.")
    ] = None,
    limit: Limit = 50,
) -> None:
    """List your transfers, newest first.

    Examples:
      pool credits statement --kind pay --since 30d
      pool credits statement --job job_01h…
      pool credits statement --since 2026-04-01 --until 2027-04-01 --csv year.csv
    """
    if csv is not None:
        _export(csv, filters)
    elif sums:
        _sums(filters)
    else:
        entries = open_pool().credits.statement(limit=limit, **filters)
        columns = ("NUMBER", "TIME", "KIND", "AMOUNT", "AVAILABLE", "FROM", "TO", "DESCRIPTION")
        output.show_table(entries, columns, map(_entry, entries), empty="No transfers.")


def _entry(entry: Entry) -> tuple[output.Cell, ...]:
    change = entry.available_change
    return (
        entry.seq,
        output.moment(entry.at_ms),
        entry.kind,
        format_credits(entry.amount),
        f"{'+' if change > 0 else ''}{format_credits(change)}" if change else "",
        entry.source,
        entry.target,
        entry.text,
    )


def _sums(filters: dict[str, Any]) -> None:
    found = open_pool().credits.sums(**filters)
    rows = [
        (one.kind, one.transfers, format_credits(one.moved), format_credits(one.gained), format_credits(one.lost))
        for one in found
    ]
    output.show_table(found, ("KIND", "TRANSFERS", "MOVED", "IN", "OUT"), rows, empty="No transfers.")


def _export(file: Path, filters: dict[str, Any]) -> None:
    parts = open_pool().credits.export(**filters)
    if str(file) == "-":
        for part in parts:
            sys.stdout.buffer.write(part)
        sys.stdout.flush()
        return
    with file.open("wb") as opened:
        size = sum(opened.write(part) for part in parts)
    output.show({"file": str(file), "bytes": size}, f"Wrote {file}, {output.size(size)}.")


def _moment(text: str, *, what: str) -> int:
    """The time in ms of a duration ago, or of a local date or time."""
    try:
        return max(0, now_ms() - round(seconds(text.removesuffix("ago"), what=what) * 1000))
    except BadRequest:
        pass
    try:
        return max(0, round(datetime.fromisoformat(text).astimezone().timestamp() * 1000))
    except (ValueError, OverflowError):
        raise BadParameter(f"{text!r} is not a time; use 2h, 7d or 2026-05-01.", param_hint=what) from None


@app.command()
def why(job_id: JobId) -> None:
    """Explain what a job cost, or what you were paid for it: every factor and every transfer.

    Examples:
      pool credits why job_01h…
    """
    cost = open_pool().credits.why(job_id)
    if output.print_json(cost):
        return
    output.write_line(cost.sentence)
    output.print_table(("", ""), [(line.label, line.text) for line in cost.lines])


@app.command()
def leaderboard(
    *,
    by: Annotated[str, Option(metavar="WHAT", help="Rank by credits or hours.")] = "credits",
    limit: Annotated[
        int, Option("--limit", "-n", metavar="N", min=1, max=100, help="Number of entries per list.")
    ] = 10,
) -> None:
    """Show who lent and borrowed the most in the last 30 days.

    Examples:
      pool credits leaderboard
      pool credits leaderboard --by hours -n 3
    """
    if by not in ("credits", "hours"):
        raise BadParameter("credits or hours.", param_hint="--by")
    board = open_pool().credits.leaderboard(by="hours" if by == "hours" else "credits", limit=limit)
    columns = ("", "RANK", "NAME", "TIME", "JOBS", "CREDITS")
    rows = [
        (what, one.rank, one.name, output.span(one.ran_ms), one.jobs, format_credits(one.credits))
        for what, leaders in (("lends", board.lenders), ("borrows", board.borrowers))
        for one in leaders
    ]
    output.show_table(board, columns, rows, empty="No activity in the last 30 days.")


@app.command()
def give(
    account: Annotated[str, Argument(metavar="ACCOUNT", help="Account name or ID.")],
    amount: Annotated[str, Argument(metavar="AMOUNT", help="Credits, such as 500 or 12.5.")],
    *,
    note: Annotated[str | None, Option(metavar="TEXT", help="Note for the account's statement.")] = None,
    paid_in: Annotated[
        bool, Option("--paid-in", help="Record a payment by the account holder instead of a gift.")
    ] = False,
) -> None:
    """Give an account credits, or record a payment (admin only).

    Examples:
      pool credits give ada 100 --note "thank you"
      pool credits give ada 500 --paid-in --note "UTR 4312"
    """
    given = open_pool().credits.give(account, amount, note=note, paid_in=paid_in)
    amount, left = format_credits(given.amount), format_credits(given.available)
    done = f"{given.name} received {amount} credits and now has {left} available."
    output.show(given, output.needs_approval(given.approval_id) if given.approval_id else done)
