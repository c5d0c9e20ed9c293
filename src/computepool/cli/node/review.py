"""`pool node review`: an owner asks people to look at a ban."""

from __future__ import annotations

from typing import Annotated

import typer

from computepool.cli import output
from computepool.cli.options import Json, open_pool


def review(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its name or id.")],
    *,
    note: Annotated[
        str, typer.Option(metavar="TEXT", help="What the administrator should know.", show_default=False)
    ] = "",
    json: Json = False,
) -> None:
    """Ask an administrator to look at your node's ban or probation.

    Why it is accused is in `pool node evidence NODE`. The administrator finds the request in `pool approvals`,
    and may take the ban back.

    \b
    Examples:
      pool node review studio-3 --note "its memory was broken, and is replaced"
    """
    pool = open_pool()
    found = pool.nodes.find(node)
    asked = pool.nodes.review(found.id, note=note)
    if json:
        output.print_json(asked)
    else:
        output.say(f"An administrator is asked to look at {found.name} ({asked.approval_id}).")
