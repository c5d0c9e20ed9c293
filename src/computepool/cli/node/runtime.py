"""`pool node runtime …`: show, export, import and reset the root file system of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer

from computepool.cli import output
from computepool.cli.options import Data
from computepool.core.errors import BadRequest
from computepool.sdk.client.config import node_folder

if TYPE_CHECKING:
    from computepool.agent.sandbox.runtime.runtime import Runtime

app = Typer(no_args_is_help=True)
Add = Annotated[
    list[str] | None,
    Option(
        "--runtime-add",
        metavar="PATH",
        help="Program, or file or folder below /usr or /opt, to make visible to jobs; repeatable.",
    ),
]
File = Annotated[Path, Argument(metavar="FILE.tar", help="Tar file of a runtime.")]


@app.command()
def show(*, add: Add = None, data: Data = None) -> None:
    """Show the runtime of this machine; build it if needed.

    Examples:
      pool node runtime show
    """
    _print(_prepare(data, add))


@app.command()
def export(file: File, *, add: Add = None, data: Data = None) -> None:
    """Write the runtime to a tar file, for `pool node runtime import` on other machines.

    Examples:
      pool node runtime export runtime.tar
    """
    from computepool.agent.sandbox.runtime import archive

    made = _prepare(data, add)
    archive.write(made, file)
    _print(made)


@app.command("import")
def import_(file: File, *, data: Data = None) -> None:
    """Import a runtime from a tar file. Its name is the digest of its content.

    Jobs use it from the next start of the node, until `pool node runtime reset`.

    Examples:
      pool node runtime import runtime.tar
    """
    from computepool.agent.execution.job_environment import runtime_recipe
    from computepool.agent.sandbox.base import SandboxError
    from computepool.agent.sandbox.runtime import archive

    cache = _cache(data)
    try:
        made = archive.read(cache, file, runtime_recipe(cache))
    except SandboxError as error:
        raise BadRequest(f"{error}.") from error
    _print(made)


@app.command()
def reset(*, data: Data = None) -> None:
    """Return to the runtime that is built from this machine's own files.

    Examples:
      pool node runtime reset
    """
    from computepool.agent.sandbox.runtime import runtime

    (runtime.open_store(_cache(data)) / runtime.CHOSEN).unlink(missing_ok=True)
    _print(_prepare(data))


def _cache(data: Path | None) -> Path:
    from computepool.agent.config import prepare_data_dir

    folder = node_folder(data)
    prepare_data_dir(folder)
    return folder / "cache"


def _prepare(data: Path | None, add: Sequence[str] | None = None) -> Runtime:
    """Build the runtime if needed, by default with the additions of the node's last start."""
    from computepool.agent.execution.job_environment import prepare_runtime
    from computepool.agent.owner import saved_options

    return prepare_runtime(_cache(data), add=add or saved_options.load(node_folder(data)).get("runtime_add", ()))


def _print(made: Runtime) -> None:
    summary = made.verify()
    fields: dict[str, output.Cell] = {
        "digest": made.digest,
        "files": summary.files,
        "size": summary.size,
        "path": str(made.root),
    }
    output.show_fields(fields, list(fields.items()))
