"""`pool node runtime …`: the root file system that jobs see on this machine, and carrying it to others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from computepool.cli import output
from computepool.cli.local.folders import data_folder, node_folder
from computepool.cli.options import Json

if TYPE_CHECKING:
    from computepool.agent.sandbox.runtime.runtime import Runtime

app = typer.Typer(
    no_args_is_help=True,
    help="What jobs see on this machine instead of your files: a root file system named by its content.",
)
Data = Annotated[Path | None, typer.Option(metavar="DIR", help="Base folder for data.")]
Add = Annotated[
    list[str] | None,
    typer.Option(
        "--runtime-add",
        metavar="PATH",
        help="A program of this machine, or a file or folder below /usr or /opt, that jobs see too.",
    ),
]
Index = Annotated[
    str | None,
    typer.Option(
        "--package-index",
        metavar="URL",
        help="Where jobs' packages come from; all of it can be read by jobs. Default: uv's own index.",
    ),
]
IndexHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--package-index-host",
        metavar="HOST:PORT",
        help="Where that index has its files; default: the hosts that it names.",
    ),
]
FetchPython = Annotated[
    bool | None,
    typer.Option(
        "--fetch-python/--no-fetch-python",
        help="Run functions of other Python versions, too: uv downloads CPython builds, some 30 MB each and 100 MB "
        "on the disk, into the node's folder when a job needs one. Default: no.",
        show_default=False,
    ),
]
PythonMirror = Annotated[
    str | None,
    typer.Option(
        "--python-mirror",
        metavar="URL",
        help="Where uv gets them: a mirror's address, or a list of downloads (.json). Default: uv's own source.",
    ),
]
File = Annotated[Path, typer.Argument(metavar="FILE.tar")]


@app.command()
def show(*, add: Add = None, data: Data = None, json: Json = False) -> None:
    """Show the runtime that jobs get here; make it if there is none yet.

    \b
    Examples:
      pool node runtime show
    """
    from computepool.agent.execution.job_environment import prepare_runtime

    _print(prepare_runtime(_cache(data), add=add or _saved_additions(data)), json=json)


@app.command()
def export(file: File, *, add: Add = None, data: Data = None, json: Json = False) -> None:
    """Write the runtime to a tar file, for `pool node runtime import` on other machines.

    \b
    Examples:
      pool node runtime export runtime.tar
    """
    from computepool.agent.execution.job_environment import prepare_runtime
    from computepool.agent.sandbox.runtime import archive

    made = prepare_runtime(_cache(data), add=add or _saved_additions(data))
    archive.write(made, file)
    _print(made, json=json)


@app.command("import")
def import_(file: File, *, data: Data = None, json: Json = False) -> None:
    """Use a runtime from a tar file, after reading it all: its name is the digest of its content.

    Jobs get it from the next start of the node on, until `pool node runtime reset`.

    \b
    Examples:
      pool node runtime import runtime.tar
    """
    from computepool.agent.execution.job_environment import runtime_wish
    from computepool.agent.sandbox.base import SandboxError
    from computepool.agent.sandbox.runtime import archive
    from computepool.core.errors import BadRequest

    cache = _cache(data)
    try:
        made = archive.read(cache, file, runtime_wish(cache))
    except SandboxError as error:
        raise BadRequest(f"{error}.") from error
    _print(made, json=json)


@app.command()
def reset(*, data: Data = None, json: Json = False) -> None:
    """Go back to the runtime that is made from this machine's own files.

    \b
    Examples:
      pool node runtime reset
    """
    from computepool.agent.execution.job_environment import prepare_runtime
    from computepool.agent.sandbox.runtime import runtime

    cache = _cache(data)
    (runtime.open_store(cache) / runtime.CHOSEN).unlink(missing_ok=True)
    _print(prepare_runtime(cache, add=_saved_additions(data)), json=json)


def _cache(data: Path | None) -> Path:
    from computepool.agent.config import prepare_data_dir

    folder = node_folder(data_folder(data))
    prepare_data_dir(folder)
    return folder / "cache"


def _saved_additions(data: Path | None) -> tuple[str, ...]:
    """What the node's last start added."""
    from computepool.agent.owner import saved_options

    added: tuple[str, ...] = saved_options.load(node_folder(data_folder(data))).get("runtime_add", ())
    return added


def _print(made: Runtime, *, json: bool) -> None:
    fields: dict[str, output.Cell] = {
        "digest": made.digest,
        "files": made.files,
        "size": made.size,
        "path": str(made.root),
    }
    if json:
        output.print_json(fields)
    else:
        output.print_fields(list(fields.items()))
