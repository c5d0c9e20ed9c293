"""`pool node evidence`: the outcomes behind a node's reputation."""

from __future__ import annotations

from computepool.cli import output
from computepool.cli.options import Json, Limit, open_pool
from computepool.cli.references import NodeName


def evidence(
    node: NodeName,
    *,
    limit: Limit = 30,
    json: Json = False,
) -> None:
    """List the outcomes behind a node's reputation, newest first, with their weight.

    For nodes of others, times are rounded to the hour and jobs are hidden.

    \b
    Examples:
      pool node evidence studio-3
    """
    pool = open_pool()
    found = pool.nodes.evidence(pool.nodes.find(node).id, limit=limit)
    rows = [
        (
            output.moment(row.at_ms),
            f"{row.weight if row.success is not False else -row.weight:+g}" if row.weight else "0",
            "strike" if row.strike else "verified" if row.verified else "",
            row.job_kind or "",
            row.job_id or "",
            row.sentence,
        )
        for row in found
    ]
    output.show_table(
        found, ("TIME", "WEIGHT", "", "KIND", "JOB", "OUTCOME"), rows, empty="No outcomes yet.", json=json
    )
