"""`pool artifacts …`: files at the hub."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from computepool.cli import output
from computepool.cli.options import Json, Limit, open_pool

app = typer.Typer(no_args_is_help=True, help="Files at the hub: inputs, outputs, results.")
Digest = Annotated[str, typer.Argument(help="SHA-256, or the beginning of one of yours.")]
_DIGEST_CHARS = 64


@app.command("list")
def list_artifacts(
    *,
    job: Annotated[str | None, typer.Option(help="Of this job.")] = None,
    limit: Limit = 30,
    json: Json = False,
) -> None:
    """List files at the hub, the newest first.

    \b
    Examples:
      pool artifacts list
      pool artifacts list --job job_01h…
    """
    artifacts = open_pool().artifacts.list(job_id=job, limit=limit)
    if json:
        output.print_json(artifacts)
        return
    shown = 12 if sys.stdout.isatty() else _DIGEST_CHARS
    rows = [
        (a.digest[:shown], a.name, output.size(a.size), a.role, a.job_id, output.ago(a.created_at_ms))
        for a in artifacts
    ]
    output.print_table(("DIGEST", "NAME", "SIZE", "ROLE", "JOB", "CREATED"), rows, empty="No artifacts.")


@app.command()
def get(
    digest: Digest,
    path: Annotated[Path | None, typer.Argument(help="Where to; default: its own name, here.")] = None,
    *,
    json: Json = False,
) -> None:
    """Download a file; a broken download continues where it stopped, and is checked by its SHA-256.

    \b
    Examples:
      pool artifacts get 3f786850e387
      pool artifacts get 3f786850e387 model.bin
    """
    pool = open_pool(patience_s=60)
    full, name = _find(digest)
    target = pool.artifacts.get(full, path or Path(Path(name).name or full))
    if json:
        output.print_json({"digest": full, "path": str(target), "size": target.stat().st_size})
    else:
        output.say(str(target))


@app.command()
def put(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Files to send.")],
    *,
    json: Json = False,
) -> None:
    """Upload files; what the hub has already is not sent again.

    \b
    Examples:
      pool artifacts put data.csv model.bin
    """
    pool = open_pool(patience_s=60)
    sent = [pool.artifacts.put(path) for path in paths]
    if json:
        output.print_json(sent)
        return
    for artifact in sent:
        output.say(f"{artifact.digest}\t{artifact.name}\t{output.size(artifact.size)}")


@app.command()
def rm(digests: Annotated[list[str], typer.Argument(metavar="DIGEST…")], *, json: Json = False) -> None:
    """Give files up; the bytes go when nobody refers to them any more.

    \b
    Examples:
      pool artifacts rm 3f786850e387
    """
    pool = open_pool()
    removed = [_find(digest)[0] for digest in digests]
    for digest in removed:
        pool.artifacts.rm(digest)
    if json:
        output.print_json({"removed": removed})
    else:
        for digest in removed:
            output.say(f"removed {digest[:12]}")


def _find(digest: str) -> tuple[str, str]:
    """The whole digest and the file's name."""
    from computepool.core.errors import BadRequest, NotFound

    if len(digest) > _DIGEST_CHARS or not set(digest) <= set("0123456789abcdef"):
        raise BadRequest(
            f"{digest!r} is not a digest: 64 characters of 0-9 and a-f, or the beginning of one."
        )
    known = {
        a.digest: a.name or "" for a in open_pool().artifacts.list(limit=1000) if a.digest.startswith(digest)
    }
    if len(digest) == _DIGEST_CHARS:
        return digest, known.get(digest, "")
    if len(known) != 1:
        raise NotFound(
            f"{len(known) or 'No'} artifacts begin with {digest!r}; `pool artifacts list` shows them."
        )
    return next(iter(known.items()))
