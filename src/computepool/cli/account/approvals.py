"""`pool approvals`: what waits for a second administrator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from computepool.cli import output
from computepool.cli.options import Json, open_pool

if TYPE_CHECKING:
    from computepool.protocol.accounts import ApprovalView

app = typer.Typer(no_args_is_help=True, help="What waits for a second administrator (for administrators).")
_ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="From `pool approvals list`.")]


@app.command("list")
def list_approvals(*, json: Json = False) -> None:
    """List what waits for an administrator's word: top-ups, roles, payouts.

    The operator chooses what needs two of them: COMPUTEPOOL_TWO_PERSON=payouts,top-ups,roles.

    \b
    Examples:
      pool approvals list
    """
    found = open_pool().approvals.list()
    if json:
        output.print_json(found)
        return
    rows = [
        (
            one.id,
            one.kind,
            one.summary,
            one.asked_by,
            output.ago(one.asked_at_ms),
            "yes" if one.can_approve else "no",
        )
        for one in found
    ]
    columns = ("ID", "KIND", "WHAT", "ASKED BY", "ASKED", "BY YOU")
    output.print_table(columns, rows, empty="Nothing waits for an approval.")


@app.command("approve")
def approve(approval_id: _ApprovalId, *, json: Json = False) -> None:
    """Agree to what another administrator asked for; it happens now.

    \b
    Examples:
      pool approvals approve approval_01h…
      pool approvals approve payout_01h…
    """
    pool = open_pool()
    if approval_id.startswith("payout_"):
        payout = pool.payouts.approve(approval_id)
        output.print_json(payout) if json else output.say(f"{payout.id}: {payout.status}")
        return
    _show(pool.approvals.approve(approval_id), json=json)


@app.command("reject")
def reject(
    approval_id: _ApprovalId,
    *,
    reason: Annotated[str, typer.Option(help="Why; kept in the events.")],
    json: Json = False,
) -> None:
    """Refuse it, or take back what you asked for yourself.

    \b
    Examples:
      pool approvals reject approval_01h… --reason "nobody paid this in"
    """
    _show(open_pool().approvals.reject(approval_id, reason=reason), json=json)


def _show(found: ApprovalView, *, json: bool) -> None:
    if json:
        output.print_json(found)
    else:
        output.say(f"{found.state}: {found.summary}")
