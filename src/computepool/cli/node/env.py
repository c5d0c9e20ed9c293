"""`pool node env`: the environments that this machine offers to jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Typer

from computepool.cli import output
from computepool.cli.node.options import call_agent
from computepool.cli.options import Data
from computepool.core.errors import Unavailable
from computepool.core.words import pluralize
from computepool.sdk.client.config import node_folder

if TYPE_CHECKING:
    from computepool.agent.packages.offered import OfferedEnvironment

app = Typer(no_args_is_help=True)
Name = Annotated[str, Argument(metavar="NAME", help="Your name for it, such as torch.")]


@app.command()
def add(
    name: Name,
    path: Annotated[
        Path,
        Argument(
            metavar="PATH",
            help="Virtual environment, conda environment, folder of packages, or a lock file: uv.lock, requirements.",
        ),
    ],
    *,
    data: Data = None,
) -> None:
    """Offer an environment to jobs whose dependencies it satisfies. They read it where it is; nothing is copied.

    Examples:
      pool node env add torch /opt/torch/.venv
      pool node env add ml ./uv.lock           install it once, into the node's folder
    """
    from computepool.agent.config import prepare_data_dir
    from computepool.agent.owner import environment_list

    folder = node_folder(data)
    prepare_data_dir(folder)
    if path.is_file():
        _add_lock(name, path, data)
        return
    found = environment_list.add(folder, name, path)
    running = _reload(data)
    problem = running.get("problems", {}).get(name, "")
    places = [str(place) for place in found.mounts]
    shown = {**_facts(found), "reads": places, "offered": name in running.get("offered", ()), "problem": problem}
    what = f"{pluralize(len(found.packages), 'package')} for Python {found.minor}"
    cuda = f", CUDA {found.cuda}" if found.cuda else ""
    if problem:
        state = f"Saved, but not offered: {problem}."
    else:
        state = "Offered now." if shown["offered"] else "Offered from the next start: pool node start"
    output.show(shown, f"{name}: {what}{cuda}. Jobs can read {', '.join(places)}. {state}")


def _add_lock(name: str, path: Path, data: Path | None) -> None:
    from computepool.agent.owner import environment_list
    from computepool.agent.packages.locks import read_lock

    saved = environment_list.add_lock(node_folder(data), name, read_lock(path))
    running = bool(_reload(data))
    state = "The node installs it now" if running else "The node installs it when it starts: pool node start"
    output.show(
        {"name": name, "path": str(saved.path), "offered": False, "problem": ""},
        f"{name}: saved. {state}. See `pool node env list`.",
    )


@app.command("list")
def list_environments(*, data: Data = None) -> None:
    """List the environments that this machine offers.

    Examples:
      pool node env list
      pool node env list --json
    """
    from computepool.agent.owner import environment_list

    try:
        known: dict[str, str] = call_agent(data, "status")["environments"]
    except Unavailable:
        known = {}
    facts = [
        {
            "name": each.saved.name,
            "path": str(each.saved.path),
            "problem": each.problem or known.get(each.saved.name, ""),
        }
        | ({} if each.found is None else _facts(each.found))
        for each in environment_list.read_all(node_folder(data))
    ]
    rows = [
        (
            fact["name"], fact["path"], fact.get("python", ""), fact.get("cuda", ""),
            len(fact.get("packages", ())), fact["problem"],
        )
        for fact in facts
    ]  # fmt: skip
    columns = ("NAME", "FOLDER", "PYTHON", "CUDA", "PACKAGES", "PROBLEM")
    output.show_table(facts, columns, rows, empty="No environments. Add one: pool node env add torch /opt/torch/.venv")


@app.command()
def remove(name: Name, *, data: Data = None) -> None:
    """Stop offering an environment. Its folder stays as it is; running jobs keep it.

    Examples:
      pool node env remove torch
    """
    from computepool.agent.owner import environment_list

    environment_list.remove(node_folder(data), name)
    _reload(data)
    output.show({"removed": name}, f"{name} is no longer offered.")


def _reload(data: Path | None) -> dict[str, Any]:
    """Tell the agent; empty if none runs."""
    try:
        return call_agent(data, "environments")
    except Unavailable:
        return {}


def _facts(found: OfferedEnvironment) -> dict[str, Any]:
    return {
        "name": found.name,
        "path": str(found.path),
        "python": found.minor,
        "cuda": found.cuda,
        "packages": dict(found.packages),
    }
