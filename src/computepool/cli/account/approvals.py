"""`pool approvals`: requests that need a second administrator."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option, Typer

from computepool.cli import output
from computepool.cli.options import open_pool

app = Typer(no_args_is_help=True)
_ApprovalId = Annotated[str, Argument(metavar="ID", help="From `pool approvals list`.")]


@app.command("list")
def list_approvals() -> None:
    """List requests that wait for approval: top-ups, role changes, payouts and reviews.

    The operator chooses what requires two administrators: COMPUTEPOOL_TWO_PERSON=payouts,top-ups,roles.

    Examples:
      pool approvals list
    """
    found = open_pool().approvals.list()
    rows = [
        (
            one.id,
            one.kind,
            one.summary,
            one.requested_by,
            output.ago(one.requested_at_ms),
            "yes" if one.can_approve else "no",
        )
        for one in found
    ]
    columns = ("ID", "KIND", "REQUEST", "REQUESTED BY", "REQUESTED", "YOU CAN APPROVE")
    output.show_table(found, columns, rows, empty="No requests are waiting for approval.")


@app.command("approve")
def approve(approval_id: _ApprovalId) -> None:
    """Approve another administrator's request. It takes effect immediately.

    Examples:
      pool approvals approve approval_01h…
      pool approvals approve payout_01h…
    """
    pool = open_pool()
    if approval_id.startswith("payout_"):
        payout = pool.payouts.approve(approval_id)
        output.show(payout, f"{payout.id}: {payout.status}")
        return
    found = pool.approvals.approve(approval_id)
    output.show(found, f"{found.state}: {found.summary}")


@app.command("reject")
def reject(
    approval_id: _ApprovalId, *, reason: Annotated[str, Option(help="Reason, recorded in the event log.")]
) -> None:
    """Reject a request, or withdraw your own.

    Examples:
      pool approvals reject approval_01h… --reason "payment not received"
    """
    found = open_pool().approvals.reject(approval_id, reason=reason)
    output.show(found, f"{found.state}: {found.summary}")
