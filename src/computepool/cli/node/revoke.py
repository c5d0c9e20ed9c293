"""`pool node revoke`: for a machine that is lost, or whose key may be stolen."""

from __future__ import annotations

from computepool.cli import output
from computepool.cli.confirmation import Yes, confirm
from computepool.cli.options import Json, open_pool
from computepool.cli.references import NodeName


def revoke(
    node: NodeName,
    *,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Revoke a node's key permanently; its jobs run elsewhere (owner and admins only).

    For a machine that is lost, sold or stolen. It can return only as a new node, with a new code.

    \b
    Examples:
      pool node revoke studio-3
      pool node revoke studio-3 --yes --json
    """
    pool = open_pool()
    found = pool.nodes.find(node)
    if not yes:
        confirm(f"{found.name} ({found.id}) can return only as a new node. Revoke its key?")
    view = pool.nodes.revoke(found.id)
    output.show(
        view,
        f"{view.name} revoked",
        json=json,
        hint="To add the machine again, create a code with `pool node code`, and start the node with a new data folder.",
    )
