"""`pool nodes`: list the nodes of the pool."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Option

from computepool.cli import output
from computepool.cli.options import Limit, open_pool
from computepool.sdk.client.paging import raw_rows


def list_nodes(
    *,
    mine: Annotated[bool, Option("--mine", help="Only your own nodes.")] = False,
    software: Annotated[
        list[str] | None,
        Option(
            "--software", metavar="PACKAGE", help="Only nodes that offer this package: torch, 'torch>=2.4'; repeatable."
        ),
    ] = None,
    limit: Limit = 100,
) -> None:
    """List the nodes of the pool.

    Examples:
      pool nodes
      pool nodes --mine --json
      pool nodes --software 'torch>=2.4'
    """
    params = {"mine": "true" if mine else None, "software": software or None}
    nodes = raw_rows(open_pool().transport, "/nodes", "nodes", limit=limit, params=params)
    columns = (
        "ID", "NAME", "STATE", "TIER", "CORES", "RAM", "GPUS", "REGION", "TAGS", "SOFTWARE", "RUNNING", "RELIABILITY", "SEEN",
    )  # fmt: skip
    output.show_table(nodes, columns, map(_row, nodes), empty="No nodes. Add this machine: pool node start")


def _row(node: dict[str, Any]) -> tuple[output.Cell, ...]:
    profile, reliability = node["profile"], node["reliability"]
    cards = ", ".join(f"{gpu['name']} {output.memory(gpu['vram_mb'])}" for gpu in profile["gpus"])
    return (
        node["id"], node["name"], node["status"].replace("_", " "), node["tier"], f"{profile['cores']:g}",
        output.memory(profile["ram_mb"]), cards, profile["region"], " ".join(profile["tags"]),
        " ".join(found["name"] for found in profile["environments"]), node["running"],
        "" if reliability is None else f"{reliability:.2f}", output.ago(node["last_seen_ms"]),
    )  # fmt: skip
