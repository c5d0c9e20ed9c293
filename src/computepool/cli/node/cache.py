"""`pool node cache`: show and clear the node's cache."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import BadParameter, Context, Option, Typer

from computepool.cli import output
from computepool.cli.node.options import call_agent
from computepool.cli.options import Data
from computepool.core.errors import Unavailable
from computepool.sdk.client.config import node_folder

app = Typer()
Kind = Annotated[
    list[str] | None,
    Option("--kind", metavar="KIND", help="Only inputs, packages or pythons; repeatable. Default: all."),
]
_NAME_CHARS = 16


@app.callback(invoke_without_command=True)
def cache(context: Context, *, data: Data = None) -> None:
    """Show what the node on this machine has cached.

    Examples:
      pool node cache
      pool node cache list
      pool node cache clear
    """
    if context.invoked_subcommand is not None:
        return
    from computepool.agent.storage import cache_usage

    found = cache_usage.parts(node_folder(data) / "cache")
    rows = [(p.name, p.files, output.size(p.size), f"--kind {p.kind}" if p.cleared else "no") for p in found]
    output.show_table([asdict(part) for part in found], ("CONTENT", "FILES", "SIZE", "REMOVED BY `clear`"), rows)


@app.command("list")
def list_entries(*, kind: Kind = None, data: Data = None) -> None:
    """List everything that is cached for later jobs, the most recently used first.

    Examples:
      pool node cache list
      pool node cache list --kind packages --json
    """
    from computepool.agent.storage import cache_usage

    found = cache_usage.entries(node_folder(data) / "cache", _kinds(kind))
    rows = [(e.kind, e.label or e.name[:_NAME_CHARS], output.size(e.size), output.ago(e.used_ms)) for e in found]
    output.show_table([asdict(entry) for entry in found], ("KIND", "CONTENT", "SIZE", "USED"), rows, empty="Nothing.")


@app.command()
def clear(*, kind: Kind = None, data: Data = None) -> None:
    """Remove cached inputs, packages and Pythons that no running job uses. Later jobs fetch them again.

    Examples:
      pool node cache clear
      pool node cache clear --kind packages
    """
    from computepool.agent import main
    from computepool.agent.owner.control import CLEAR
    from computepool.agent.storage import cache_usage

    folder, kinds = node_folder(data), _kinds(kind)
    before = _size(folder, kinds)
    try:
        for word in kinds:
            call_agent(data, f"{CLEAR}{word}")
    except Unavailable:
        if folder.exists():
            with main.only_agent(folder):
                cache_usage.clear(folder / "cache", kinds)
    left_bytes = _size(folder, kinds)
    freed: dict[str, Any] = {"freed_bytes": max(0, before - left_bytes), "left_bytes": left_bytes}
    left = f"; {output.size(left_bytes)} in use were kept" if left_bytes else ""
    output.show(freed, f"Freed {output.size(freed['freed_bytes'])}{left}.")


def _kinds(given: list[str] | None) -> tuple[str, ...]:
    from computepool.agent.storage.cache_usage import CLEARED

    for word in given or ():
        if word not in CLEARED:
            raise BadParameter(f"{word!a} is not one of {', '.join(CLEARED)}.", param_hint="--kind")
    return tuple(dict.fromkeys(given)) if given else tuple(CLEARED)


def _size(folder: Path, kinds: tuple[str, ...]) -> int:
    from computepool.agent.storage import cache_usage

    return sum(part.size for part in cache_usage.parts(folder / "cache") if part.kind in kinds)
