"""`pool node review`: request a review of a ban."""

from __future__ import annotations

from typing import Annotated

import typer

from computepool.cli import output
from computepool.cli.options import Json, open_pool
from computepool.cli.references import NodeName


def review(
    node: NodeName,
    *,
    note: Annotated[
        str, typer.Option(metavar="TEXT", help="Explanation for the administrator.", show_default=False)
    ] = "",
    json: Json = False,
) -> None:
    """Ask an administrator to review your node's ban or probation.

    The reasons are in `pool node evidence NODE`. The request appears in the administrator's `pool approvals list`.

    \b
    Examples:
      pool node review studio-3 --note "faulty memory has been replaced"
    """
    pool = open_pool()
    found = pool.nodes.find(node)
    asked = pool.nodes.review(found.id, note=note)
    output.show(asked, f"Requested a review of {found.name} ({asked.approval_id}).", json=json)
