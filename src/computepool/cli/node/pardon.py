"""`pool node pardon`: the operator's way to take back a ban for wrong results."""

from __future__ import annotations

from typing import Annotated

import typer

from computepool.cli import output
from computepool.cli.options import Json, open_pool


def pardon(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its name or id.")], *, json: Json = False
) -> None:
    """Take back a node's ban and its strikes for wrong results (administrators).

    For accidents: broken memory that was replaced, a program that cannot be compared. Its streak begins
    anew, so its next results are all checked.

    \b
    Examples:
      pool node pardon studio-3
    """
    pool = open_pool()
    view = pool.nodes.pardon(pool.nodes.find(node).id)
    if json:
        output.print_json(view)
    else:
        output.say(f"{view.name} works for others again; its next results are all checked.")
