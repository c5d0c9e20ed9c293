"""`pool node pardon`: lift a ban for wrong results."""

from __future__ import annotations

from computepool.cli import output
from computepool.cli.options import Json, open_pool
from computepool.cli.references import NodeName


def pardon(node: NodeName, *, json: Json = False) -> None:
    """Lift a node's ban and clear its strikes for wrong results (admin only).

    For honest mistakes, such as faulty memory that was replaced. The node's streak restarts, so all its next results
    are verified.

    \b
    Examples:
      pool node pardon studio-3
    """
    pool = open_pool()
    view = pool.nodes.pardon(pool.nodes.find(node).id)
    output.show(
        view, f"{view.name} takes jobs of others again. All its next results are verified.", json=json
    )
