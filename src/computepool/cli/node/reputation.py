"""`pool node evidence`, `review` and `pardon`: the outcomes behind a node's reputation, and reviews of bans."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from computepool.cli import output
from computepool.cli.options import Limit, NodeName, open_pool


def evidence(node: NodeName, *, limit: Limit = 30) -> None:
    """List the outcomes behind a node's reputation, newest first, with their weight.

    For nodes of others, times are rounded to the hour and jobs are hidden.

    Examples:
      pool node evidence studio-3
    """
    pool = open_pool()
    found = pool.nodes.evidence(pool.nodes.find(node).id, limit=limit)
    rows = [
        (
            output.moment(row.at_ms),
            f"{row.weight if row.success is not False else -row.weight:+g}" if row.weight else "0",
            "violation" if row.violation else "verified" if row.verified else "",
            row.job_kind or "",
            row.job_id or "",
            row.sentence,
        )
        for row in found
    ]
    output.show_table(found, ("TIME", "WEIGHT", "", "KIND", "JOB", "OUTCOME"), rows, empty="No outcomes yet.")


def review(
    node: NodeName,
    *,
    note: Annotated[str, Option(metavar="TEXT", help="Explanation for the administrator.", show_default=False)] = "",
) -> None:
    """Ask an administrator to review your node's ban or probation.

    The reasons are in `pool node evidence NODE`. The request appears in the administrator's `pool approvals list`.

    Examples:
      pool node review studio-3 --note "faulty memory has been replaced"
    """
    pool = open_pool()
    found = pool.nodes.find(node)
    reply = pool.nodes.review(found.id, note=note)
    output.show(reply, f"Requested a review of {found.name} ({reply.approval_id}).")


def pardon(node: NodeName) -> None:
    """Lift a node's ban and clear its violations for wrong results (admin only).

    For honest mistakes, such as faulty memory that was replaced. The node's streak restarts, so its next results are
    all verified.

    Examples:
      pool node pardon studio-3
    """
    pool = open_pool()
    view = pool.nodes.pardon(pool.nodes.find(node).id)
    output.show(view, f"{view.name} takes other people's jobs again. Its next results are all verified.")
