"""`pool node cache`: show and clear the node's cache."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from typer import Context, Typer

from computepool.cli import output
from computepool.cli.node.options import call_agent
from computepool.cli.options import Data
from computepool.core.errors import Unavailable
from computepool.sdk.client.config import node_folder

app = Typer()


@app.callback(invoke_without_command=True)
def cache(context: Context, *, data: Data = None) -> None:
    """Show what the node on this machine has cached.

    Examples:
      pool node cache
      pool node cache clear
    """
    if context.invoked_subcommand is not None:
        return
    from computepool.agent.storage import cache_usage

    found = cache_usage.parts(node_folder(data) / "cache")
    rows = [(p.name, p.files, output.size(p.size), "yes" if p.cleared else "no") for p in found]
    output.show_table([asdict(part) for part in found], ("CONTENT", "FILES", "SIZE", "REMOVED BY `clear`"), rows)


@app.command()
def clear(*, data: Data = None) -> None:
    """Remove cached inputs and packages that no running job uses. Later jobs fetch them again.

    Examples:
      pool node cache clear
    """
    from computepool.agent import main
    from computepool.agent.storage import cache_usage

    folder = node_folder(data)
    before = _size(folder)
    try:
        call_agent(data, "clear_cache")
    except Unavailable:
        if folder.exists():
            with main.only_agent(folder):
                cache_usage.clear(folder / "cache")
    freed: dict[str, Any] = {"freed_bytes": max(0, before - _size(folder)), "left_bytes": _size(folder)}
    left = f"; {output.size(freed['left_bytes'])} in use were kept" if freed["left_bytes"] else ""
    output.show(freed, f"Freed {output.size(freed['freed_bytes'])}{left}.")


def _size(folder: Any) -> int:
    from computepool.agent.storage import cache_usage

    return sum(part.size for part in cache_usage.parts(folder / "cache") if part.cleared)
