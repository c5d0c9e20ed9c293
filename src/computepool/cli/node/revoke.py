"""`pool node revoke`: for a machine that is lost, or whose key somebody else may have."""

from __future__ import annotations

from typing import Annotated

import typer

from computepool.cli import output
from computepool.cli.confirmation import Yes, confirm
from computepool.cli.options import Json, open_pool


def revoke(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its name or id.")],
    *,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Refuse a node's key from now on, for good; its jobs run elsewhere (its owner, and administrators).

    For a machine that is lost, sold or stolen. It can come back only as a new node, with a new code.

    \b
    Examples:
      pool node revoke studio-3
      pool node revoke studio-3 --yes --json
    """
    pool = open_pool()
    found = pool.nodes.find(node)
    if not yes:
        confirm(f"{found.name} ({found.id}) cannot come back but as a new node. Shall its key be refused?")
    view = pool.nodes.revoke(found.id)
    if json:
        output.print_json(view)
        return
    output.say(f"{view.name} revoked")
    output.note(
        "To lend the machine again: pool node code, and there pool node start with a new data folder."
    )
