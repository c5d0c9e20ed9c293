"""`pool payouts …`: take out what you have earned; for administrators, let payouts go and pay them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from computepool.cli import output
from computepool.cli.confirmation import Yes, confirm
from computepool.cli.options import Json, Limit, open_pool

if TYPE_CHECKING:
    from computepool.protocol.money.payouts import PayoutView

app = typer.Typer()
PayoutId = Annotated[str, typer.Argument(metavar="ID", help="The payout's id.")]
State = Annotated[
    str | None,
    typer.Option(metavar="STATE", help="requested, reserved, submitted, unknown, paid, failed or rejected."),
]


@app.callback(invoke_without_command=True)
def payouts(context: typer.Context, *, json: Json = False) -> None:
    """Take out what you have earned; approve and pay what others take out. Without a command: list yours.

    \b
    Examples:
      pool payouts
      pool payouts request 500 --upi asha@okaxis
    """
    if context.invoked_subcommand is None:
        list_payouts(json=json)


@app.command("list")
def list_payouts(
    *,
    everybody: Annotated[bool, typer.Option("--all", help="Of all accounts (administrators).")] = False,
    state: State = None,
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """List payouts, newest first.

    \b
    Examples:
      pool payouts list
      pool payouts list --all --state requested
    """
    found = open_pool().payouts.list(limit=limit, everybody=everybody, state=state)
    if json:
        output.print_json(found)
        return
    columns = ("ID", "AMOUNT", "STATE", "TO", "ACCOUNT", "ASKED", "STATUS")
    rows = [
        (
            one.id,
            _credits(one.amount),
            one.state,
            one.masked,
            one.account_name,
            output.ago(one.created_at_ms),
            one.status,
        )
        for one in found
    ]
    output.print_table(
        columns, rows, empty="No payouts. Take out what you earned: pool payouts request 500 --upi ID"
    )


@app.command("request")
def request_payout(
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="Credits: 500, or 1234.50.")],
    *,
    upi: Annotated[str | None, typer.Option(metavar="ID", help="To this UPI id: name@handle.")] = None,
    bank: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="To this bank account; with --ifsc and --name.")
    ] = None,
    ifsc: Annotated[str | None, typer.Option(metavar="CODE", help="The bank branch's IFSC.")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The account holder.")] = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Ask for a payout of matured credits. Shows what will happen, and asks.

    \b
    Examples:
      pool payouts request 500 --upi asha@okaxis
      pool payouts request 12000 --bank 50100123456789 --ifsc HDFC0000123 --name "Asha Rao"
    """
    from computepool.core.money.money import parse_credits

    target = _target(upi=upi, bank=bank, ifsc=ifsc, name=name)
    wanted = parse_credits(amount, field="amount")
    pool = open_pool()
    if not yes:
        to = upi or f"{name}, account {bank} at {ifsc}"
        _confirm_request(wanted, to=to, available=pool.payouts.available().available)
    _show(pool.payouts.request(amount.strip(), **target), json=json)


def _target(*, upi: str | None, bank: str | None, ifsc: str | None, name: str | None) -> dict[str, Any]:
    if (upi is None) == (bank is None):
        raise typer.BadParameter("Name one target: --upi ID, or --bank NUMBER --ifsc CODE --name NAME.")
    if upi is not None:
        if ifsc is not None or name is not None:
            raise typer.BadParameter("--ifsc and --name belong to --bank.")
        return {"upi": upi}
    if ifsc is None or name is None:
        raise typer.BadParameter("--bank needs --ifsc and --name too.")
    return {"bank": {"account_number": bank, "ifsc": ifsc, "name": name}}


def _confirm_request(amount: int, *, to: str, available: int) -> None:
    output.note(f"Pay out   {_credits(amount)} credits")
    output.note(f"To        {to}")
    left = available - amount
    remains = _credits(left) if left >= 0 else f"nothing; {_credits(-left)} are missing"
    output.note(f"Remains   {remains} of {_credits(available)} matured credits")
    confirm("Shall it be paid out?")


@app.command("show")
def show_payout(payout_id: PayoutId, *, json: Json = False) -> None:
    """One payout in full.

    \b
    Examples:
      pool payouts show payout_01k9x3p6h3t8c5v2w7z4q9r1n0
    """
    _show(open_pool().payouts.get(payout_id), json=json)


@app.command("cancel")
def cancel_payout(payout_id: PayoutId, *, json: Json = False) -> None:
    """Call a payout back, before the bank has it.

    \b
    Examples:
      pool payouts cancel payout_01k9x3p6h3t8c5v2w7z4q9r1n0
    """
    _show(open_pool().payouts.cancel(payout_id), json=json)


# ------------------------------------------------------------ administrators
@app.command("approve")
def approve_payout(payout_id: PayoutId, *, yes: Yes = False, json: Json = False) -> None:
    """Let a first or large payout go (administrators).

    \b
    Examples:
      pool payouts approve payout_01k9x3p6h3t8c5v2w7z4q9r1n0
    """
    pool = open_pool()
    if not yes:
        found = pool.payouts.get(payout_id)
        output.note(f"{_credits(found.amount)} credits of {found.account_name} to {_full_target(found)}")
        confirm("Approve it?")
    _show(pool.payouts.approve(payout_id), json=json)


@app.command("reject")
def reject_payout(
    payout_id: PayoutId,
    *,
    reason: Annotated[str, typer.Option(metavar="WORDS", help="Why; its owner reads it.")],
    json: Json = False,
) -> None:
    """Refuse a payout, before the bank has it; the money goes back (administrators).

    \b
    Examples:
      pool payouts reject payout_01k9x3p6h3t8c5v2w7z4q9r1n0 --reason "The holder is somebody else."
    """
    _show(open_pool().payouts.reject(payout_id, reason), json=json)


@app.command("export")
def export_payouts(
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Default: print it.")
    ] = None,
    json: Json = False,
) -> None:
    """What has to be paid by hand, as a CSV file for the bank (administrators).

    \b
    Examples:
      pool payouts export --out payouts.csv
    """
    text = open_pool().payouts.export()
    if json:
        output.print_json(_rows(text))
    elif out is None:
        sys.stdout.write(text)
    else:
        # For its owner's eyes alone: it is a list of bank accounts.
        out.touch(mode=0o600)
        out.write_text(text, newline="")
        output.note(
            f"{len(_rows(text))} payouts in {out}. Afterwards: pool payouts mark-paid ID --reference UTR"
        )


@app.command("mark-paid")
def mark_paid(
    payout_id: PayoutId,
    *,
    reference: Annotated[str, typer.Option(metavar="UTR", help="The bank's number for the transfer.")],
    json: Json = False,
) -> None:
    """The bank has paid it: seen on its statement (administrators).

    \b
    Examples:
      pool payouts mark-paid payout_01k9x3p6h3t8c5v2w7z4q9r1n0 --reference HDFCN52026111500000001
    """
    _show(open_pool().payouts.mark_paid(payout_id, reference), json=json)


@app.command("mark-failed")
def mark_failed(
    payout_id: PayoutId,
    *,
    reason: Annotated[str, typer.Option(metavar="WORDS", help="Why; its owner reads it.")],
    yes: Yes = False,
    json: Json = False,
) -> None:
    """The bank has not paid it and will not; the money goes back (administrators).

    \b
    Examples:
      pool payouts mark-failed payout_01k9x3p6h3t8c5v2w7z4q9r1n0 --reason "The account is closed."
    """
    if not yes:
        confirm("The money goes back to its owner. Is it certain that the bank has not paid it?")
    _show(open_pool().payouts.mark_failed(payout_id, reason), json=json)


# ------------------------------------------------------------ how it is shown
def _show(payout: PayoutView, *, json: bool) -> None:
    if json:
        output.print_json(payout)
        return
    output.print_fields(
        [
            ("payout", payout.id),
            ("amount", f"{_credits(payout.amount)} credits"),
            ("to", _full_target(payout)),
            ("account", payout.account_name),
            ("state", payout.state),
            ("status", payout.status),
            ("provider", payout.provider),
            ("bank's reference", payout.provider_ref),
            ("approved by", payout.approved_by),
            ("asked", output.moment(payout.created_at_ms)),
            ("changed", output.moment(payout.updated_at_ms)),
        ]
    )


def _full_target(payout: PayoutView) -> str:
    if payout.bank is not None:
        return f"{payout.bank.name}, account {payout.bank.account_number} at {payout.bank.ifsc}"
    return payout.upi or payout.masked


def _rows(text: str) -> list[dict[str, str]]:
    import csv
    import io

    return list(csv.DictReader(io.StringIO(text, newline="")))


def _credits(amount: int) -> str:
    from computepool.core.money.money import format_credits

    return format_credits(amount)
