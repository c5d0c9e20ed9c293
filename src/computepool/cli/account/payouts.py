"""`pool payouts …`: request payouts of earned credits; for administrators, approve and record them."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Context, Option, Typer

from computepool.cli import output
from computepool.cli.options import Limit, Yes, confirm, open_pool
from computepool.core.money.money import format_credits, parse_credits
from computepool.sdk.client.config import write_private

if TYPE_CHECKING:
    from computepool.protocol.money.payouts import PayoutView

app = Typer()
Reason = Annotated[str, Option(metavar="WORDS", help="Reason, shown to the account holder.")]
PayoutId = Annotated[str, Argument(metavar="ID", help="Payout ID.")]


@app.callback(invoke_without_command=True)
def payouts(context: Context) -> None:
    """Request payouts of earned credits, and manage them. Without a command, lists your payouts.

    Examples:
      pool payouts
      pool payouts request 500 --upi asha@okaxis
    """
    if context.invoked_subcommand is None:
        list_payouts()


@app.command("list")
def list_payouts(
    *,
    everybody: Annotated[bool, Option("--all", help="Include all accounts (admin only).")] = False,
    state: Annotated[
        str | None,
        Option(
            metavar="STATE", help="Filter by state: requested, reserved, submitted, unknown, paid, failed or rejected."
        ),
    ] = None,
    limit: Limit = 100,
) -> None:
    """List payouts, newest first.

    Examples:
      pool payouts list
      pool payouts list --all --state requested
    """
    found = open_pool().payouts.list(limit=limit, everybody=everybody, state=state)
    columns = ("ID", "AMOUNT", "STATE", "TO", "ACCOUNT", "REQUESTED", "STATUS")
    rows = [
        (
            one.id,
            format_credits(one.amount),
            one.state,
            one.masked,
            one.account_name,
            output.ago(one.created_at_ms),
            one.status,
        )
        for one in found
    ]
    output.show_table(found, columns, rows, empty="No payouts. Request one: pool payouts request 500 --upi ID")


@app.command("request")
def request_payout(
    amount: Annotated[str, Argument(metavar="AMOUNT", help="Credits, such as 500 or 1234.50.")],
    *,
    upi: Annotated[str | None, Option(metavar="ID", help="Pay to this UPI ID: name@handle.")] = None,
    bank: Annotated[
        str | None, Option(metavar="NUMBER", help="Pay to this bank account; requires --ifsc and --name.")
    ] = None,
    ifsc: Annotated[str | None, Option(metavar="CODE", help="IFSC of the bank branch.")] = None,
    name: Annotated[str | None, Option(metavar="NAME", help="Name of the account holder.")] = None,
    yes: Yes = False,
) -> None:
    """Request a payout of matured credits. Shows a summary and asks for confirmation.

    Examples:
      pool payouts request 500 --upi asha@okaxis
      pool payouts request 12000 --bank 50100123456789 --ifsc HDFC0000123 --name "Asha Rao"
    """
    target = _target(upi=upi, bank=bank, ifsc=ifsc, name=name)
    requested = parse_credits(amount, field="amount")
    pool = open_pool()
    if not yes:
        to = upi or f"{name}, account {bank} at {ifsc}"
        _confirm_request(requested, to=to, available=pool.payouts.available().available)
    _show(pool.payouts.request(amount.strip(), **target))


def _target(*, upi: str | None, bank: str | None, ifsc: str | None, name: str | None) -> dict[str, Any]:
    if (upi is None) == (bank is None):
        raise BadParameter("Specify one target: --upi ID, or --bank NUMBER --ifsc CODE --name NAME.")
    if upi is not None:
        if ifsc is not None or name is not None:
            raise BadParameter("--ifsc and --name require --bank.")
        return {"upi": upi}
    if ifsc is None or name is None:
        raise BadParameter("--bank requires --ifsc and --name.")
    return {"bank": {"account_number": bank, "ifsc": ifsc, "name": name}}


def _confirm_request(amount: int, *, to: str, available: int) -> None:
    output.note(f"Pay out   {format_credits(amount)} credits")
    output.note(f"To        {to}")
    left = available - amount
    remains = format_credits(left) if left >= 0 else f"nothing; {format_credits(-left)} credits short"
    output.note(f"Remains   {remains} of {format_credits(available)} matured credits")
    confirm("Request this payout?")


@app.command("show")
def show_payout(payout_id: PayoutId) -> None:
    """Show one payout.

    Examples:
      pool payouts show payout_01k9x3p6h3t8c5v2w7z4q9r1n0
    """
    _show(open_pool().payouts.get(payout_id))


@app.command("cancel")
def cancel_payout(payout_id: PayoutId) -> None:
    """Cancel a payout that was not sent to the bank yet.

    Examples:
      pool payouts cancel payout_01k9x3p6h3t8c5v2w7z4q9r1n0
    """
    _show(open_pool().payouts.cancel(payout_id))


# ------------------------------------------------------------ administrators
@app.command("approve")
def approve_payout(payout_id: PayoutId, *, yes: Yes = False) -> None:
    """Approve a first or large payout (admin only).

    Examples:
      pool payouts approve payout_01k9x3p6h3t8c5v2w7z4q9r1n0
    """
    pool = open_pool()
    if not yes:
        found = pool.payouts.get(payout_id)
        output.note(f"{format_credits(found.amount)} credits of {found.account_name} to {_full_target(found)}")
        confirm("Approve this payout?")
    _show(pool.payouts.approve(payout_id))


@app.command("reject")
def reject_payout(payout_id: PayoutId, *, reason: Reason) -> None:
    """Reject a payout that was not sent to the bank yet, and return the credits (admin only).

    Examples:
      pool payouts reject payout_01k9x3p6h3t8c5v2w7z4q9r1n0 --reason "The account holder is a different person."
    """
    _show(open_pool().payouts.reject(payout_id, reason))


@app.command("export")
def export_payouts(
    *,
    out: Annotated[
        Path | None, Option("--out", "-o", metavar="FILE", help="Write to this file. Default: standard output.")
    ] = None,
) -> None:
    """Export payouts to be paid manually, as CSV for the bank (admin only).

    Examples:
      pool payouts export --out payouts.csv
    """
    text = open_pool().payouts.export()
    if output.print_json(_rows(text)):
        return
    if out is None:
        sys.stdout.write(text)
    else:
        write_private(out, text)  # it is a list of bank accounts
        output.note(
            f"Wrote {len(_rows(text))} payouts to {out}. After paying: pool payouts mark-paid ID --reference UTR"
        )


@app.command("mark-paid")
def mark_paid(
    payout_id: PayoutId,
    *,
    reference: Annotated[str, Option(metavar="UTR", help="The bank's reference for the transfer.")],
) -> None:
    """Record that the bank paid a payout, as seen on its statement (admin only).

    Examples:
      pool payouts mark-paid payout_01k9x3p6h3t8c5v2w7z4q9r1n0 --reference HDFCN52026111500000001
    """
    _show(open_pool().payouts.mark_paid(payout_id, reference))


@app.command("mark-failed")
def mark_failed(payout_id: PayoutId, *, reason: Reason, yes: Yes = False) -> None:
    """Record that the bank did not and will not pay a payout, and return the credits (admin only).

    Examples:
      pool payouts mark-failed payout_01k9x3p6h3t8c5v2w7z4q9r1n0 --reason "The account is closed."
    """
    if not yes:
        confirm("This returns the credits to the account. Are you certain that the bank did not pay?")
    _show(open_pool().payouts.mark_failed(payout_id, reason))


def _show(payout: PayoutView) -> None:
    output.show_fields(
        payout,
        [
            ("payout", payout.id),
            ("amount", f"{format_credits(payout.amount)} credits"),
            ("to", _full_target(payout)),
            ("account", payout.account_name),
            ("state", payout.state),
            ("status", payout.status),
            ("provider", payout.provider),
            ("bank reference", payout.provider_ref),
            ("approved by", payout.approved_by),
            ("requested", output.moment(payout.created_at_ms)),
            ("updated", output.moment(payout.updated_at_ms)),
        ],
    )


def _full_target(payout: PayoutView) -> str:
    if payout.bank is not None:
        return f"{payout.bank.name}, account {payout.bank.account_number} at {payout.bank.ifsc}"
    return payout.upi or payout.masked


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))
