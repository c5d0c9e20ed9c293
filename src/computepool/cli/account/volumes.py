"""`pool volume …`: named folders that outlive jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option, Typer

from computepool.cli import output
from computepool.cli.options import Limit, confirm, open_pool
from computepool.core.plaintext import printable

if TYPE_CHECKING:
    from computepool.protocol.volumes.folders import LeftOut
    from computepool.protocol.volumes.volumes import VolumeVersion, VolumeView

app = Typer(no_args_is_help=True)
Name = Annotated[str, Argument(metavar="NAME", help="Name of the volume: small letters, digits and -.")]
Folder = Annotated[Path, Argument(metavar="FOLDER")]


@app.command()
def create(name: Name) -> None:
    """Create an empty volume. Jobs mount it with --volume NAME:/path.

    Examples:
      pool volume create data
      pool submit train.py --volume data:/data --volume models:/models:ro
    """
    made = open_pool().volumes.create(name)
    output.show(made, f"{made.name}: created", hint=f"Mount it: pool submit … --volume {made.name}:/{made.name}")


@app.command("list")
def list_volumes() -> None:
    """List your volumes.

    Examples:
      pool volume list
    """
    found = open_pool().volumes.list()
    rows = [
        (
            v.name,
            v.head or "empty",
            output.size(v.size),
            f"{v.files:,}",
            v.versions,
            v.jobs,
            output.ago(v.created_at_ms),
        )
        for v in found
    ]
    titles = ("NAME", "HEAD", "SIZE", "FILES", "VERSIONS", "JOBS", "CREATED")
    output.show_table(found, titles, rows, empty="You have no volumes.")


@app.command()
def show(name: Name) -> None:
    """Show a volume: its head, its size, and how many unfinished jobs mount it.

    Examples:
      pool volume show data
    """
    found = open_pool().volumes.show(name)
    if output.print_json(found):
        return
    output.print_fields(
        (
            ("name", found.name),
            ("head", f"version {found.head}" if found.head else "empty"),
            ("size", f"{output.size(found.size)} in {found.files:,} files"),
            ("versions", str(found.versions)),
            ("jobs", f"{found.jobs} unfinished jobs mount it"),
            ("created", output.moment(found.created_at_ms)),
        )
    )


@app.command()
def versions(name: Name, *, limit: Limit = 30) -> None:
    """List the versions of a volume, newest first, with conflicts.

    A conflict is a version whose start was no longer the head when it was published. It is kept beside the head: fetch it
    with `get`, or make it the head with `rollback`.

    Examples:
      pool volume versions data
    """
    found = list(open_pool().volumes.versions(name, limit=limit))
    rows = [
        (
            v.number,
            "head" if v.is_head else "conflict" if v.conflict else "",
            v.parent or "empty",
            output.size(v.size),
            f"{v.files:,}",
            v.job_id or "you",
            output.ago(v.created_at_ms),
        )
        for v in found
    ]
    titles = ("VERSION", "STATE", "FROM", "SIZE", "FILES", "MADE BY", "CREATED")
    output.show_table(found, titles, rows, empty=f"{name} is empty.")
    for one in found if not output.as_json() else ():
        if one.conflict:
            output.note(f"Conflict: {one.conflict}. Make it the head: pool volume rollback {name} {one.number}")


@app.command()
def put(name: Name, folder: Folder) -> None:
    """Make the content of a folder the new version of a volume. Sends only what the volume does not have.

    The folder replaces the content as a whole. If the head moves meanwhile, the version is kept as a conflict, and the
    command fails.

    Examples:
      pool volume put data ./folder
    """

    def notify(one: LeftOut) -> None:
        output.note(f"Not kept: {printable(one.path)}: {one.reason}")

    reply = open_pool().volumes.put(name, folder, left_out=notify)
    output.show(reply, f"{name}: {_outcome(reply.outcome, reply.version)}")
    if reply.outcome == "conflict":
        raise Exit(1)


def _outcome(outcome: str, version: VolumeVersion) -> str:
    size = f"{output.size(version.size)} in {version.files:,} files"
    if outcome == "unchanged":
        return f"version {version.number} has this content already ({size})"
    if outcome == "conflict":
        return f"conflict: {version.conflict}; kept as version {version.number} ({size})"
    return f"version {version.number} is the head ({size})"


@app.command()
def get(
    name: Name,
    folder: Folder,
    *,
    version: Annotated[int | None, Option("--version", metavar="N", min=1, help="Default: the head.")] = None,
) -> None:
    """Download a version into a new or empty folder.

    Examples:
      pool volume get data ./out
      pool volume get data ./earlier --version 3
    """
    found = open_pool().volumes.get(name, folder, version=version)
    text = f"{name}: version {found.number}, {output.size(found.size)} in {found.files:,} files, is in {folder}"
    output.show(found, text)


@app.command()
def rollback(
    name: Name, version: Annotated[int, Argument(metavar="VERSION", min=1, help="From `pool volume versions`.")]
) -> None:
    """Make an earlier version, or a conflict, the head. No version is deleted.

    Examples:
      pool volume rollback data 3
    """
    found = open_pool().volumes.rollback(name, version)
    output.show(found, f"{found.name}: {_head(found)}")


def _head(found: VolumeView) -> str:
    return f"version {found.head} is the head ({output.size(found.size)} in {found.files:,} files)"


@app.command("remove")
def remove(name: Name, *, yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False) -> None:
    """Remove a volume with all its versions. Refused while unfinished jobs mount it.

    Examples:
      pool volume remove data
      pool volume remove data --yes
    """
    pool = open_pool()
    if not yes:
        found = pool.volumes.show(name)
        confirm(f"Remove {name} with {found.versions} versions, {output.size(found.size)} in the head?")
    pool.volumes.remove(name)
    output.show({"name": name, "removed": True}, f"{name}: removed")
