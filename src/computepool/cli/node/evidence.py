"""`pool node evidence`: the outcomes behind a node's reputation."""

from __future__ import annotations

from typing import Annotated

import typer

from computepool.cli import output
from computepool.cli.options import Json, Limit, open_pool


def evidence(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its name or id.")],
    *,
    limit: Limit = 30,
    json: Json = False,
) -> None:
    """List the outcomes behind a node's reputation, the newest first, and what each counts.

    Of nodes of others: to the hour, and without the jobs.

    \b
    Examples:
      pool node evidence studio-3
    """
    pool = open_pool()
    found = pool.nodes.evidence(pool.nodes.find(node).id, limit=limit)
    if json:
        output.print_json(found)
        return
    rows = [
        (
            output.moment(row.at_ms),
            f"{row.weight if row.success is not False else -row.weight:+g}" if row.weight else "0",
            "strike" if row.strike else "checked" if row.verified else "",
            row.job_kind or "",
            row.job_id or "",
            row.sentence,
        )
        for row in found
    ]
    output.print_table(
        ("WHEN", "COUNTS", "", "KIND", "JOB", "WHAT"), rows, empty="Nothing is known of this node yet."
    )
