"""`pool artifacts …`: files at the hub."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from computepool.cli import output
from computepool.cli.options import Json, Limit, open_pool
from computepool.cli.references import OfJob
from computepool.core.plaintext import printable

if TYPE_CHECKING:
    from computepool.protocol.artifacts import ArtifactRef, StorageView
    from computepool.sdk.files.artifacts import Seen

app = typer.Typer(no_args_is_help=True, help="Files at the hub: inputs, outputs, results.")
Digest = Annotated[str, typer.Argument(metavar="DIGEST", help="SHA-256, or the beginning of one of yours.")]
Timeout = Annotated[str, typer.Option(metavar="TIME", help="How long to wait while the hub is away: 5, 10m.")]
_DIGEST_CHARS = 64


@app.command("list")
def list_artifacts(
    *,
    job: OfJob = None,
    limit: Limit = 30,
    json: Json = False,
) -> None:
    """List files at the hub, the newest first, and how much of your quota all of yours take.

    \b
    Examples:
      pool artifacts list
      pool artifacts list --job job_01h…
    """
    pool = open_pool()
    artifacts = pool.artifacts.list(job_id=job, limit=limit)
    if json:
        output.print_json(
            {
                "artifacts": [a.model_dump() for a in artifacts],
                "storage": pool.artifacts.storage().model_dump(),
            }
        )
        return
    shown = 12 if sys.stdout.isatty() else _DIGEST_CHARS
    rows = [
        (a.digest[:shown], a.name, output.size(a.size), a.role, a.job_id, output.ago(a.created_at_ms))
        for a in artifacts
    ]
    output.print_table(("DIGEST", "NAME", "SIZE", "ROLE", "JOB", "CREATED"), rows, empty="No artifacts.")
    output.note(_storage(pool.artifacts.storage()))


def _storage(kept: StorageView) -> str:
    share = "" if not kept.bytes_max else f" ({kept.bytes / kept.bytes_max:.0%})"
    coming = f"; {output.size(kept.uploading_bytes)} not whole yet" if kept.uploading_bytes else ""
    return (
        f"You keep {kept.artifacts:,} files, {output.size(kept.bytes)} of {output.size(kept.bytes_max)}{share}{coming}. "
        f"They are kept for {output.span(kept.keep_s * 1000)} after their job has ended."
    )


@app.command()
def info(digest: Digest, *, json: Json = False) -> None:
    """Show a file: its size, whether its bytes are whole, what refers to it and until when it is kept.

    \b
    Examples:
      pool artifacts info 3f786850e387
    """
    found = open_pool().artifacts.info(_find(digest)[0])
    if json:
        output.print_json(found)
        return
    output.print_fields(
        (
            ("digest", found.digest),
            ("size", f"{output.size(found.size)} ({found.size:,} bytes)"),
            ("whole", "yes" if found.whole else "no: bytes are missing at the hub; upload it again"),
            ("created", output.moment(found.created_at_ms)),
            ("kept until", _until(found.kept_until_ms, found.refs)),
        )
    )
    rows = [(r.role, r.name, r.job_id, r.job_state, _until(r.kept_until_ms, [r])) for r in found.refs]
    output.print_table(("ROLE", "NAME", "JOB", "STATE", "KEPT UNTIL"), rows, empty="Nothing refers to it.")
    if found.more_refs:
        output.note("There are more.")


def _until(until_ms: int | None, refs: Sequence[ArtifactRef]) -> str:
    if until_ms is not None:
        return output.moment(until_ms)
    kept = any(ref.role == "kept" and ref.kept_until_ms is None for ref in refs)
    return "it is released" if kept else "some time after its job has ended"


@app.command()
def keep(
    digest: Digest,
    *,
    span: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="12h, 30d; default: until it is released.")
    ] = None,
    release: Annotated[bool, typer.Option("--release", help="Keep it no longer than its jobs do.")] = False,
    json: Json = False,
) -> None:
    """Keep a file whatever becomes of its jobs; it counts for your quota.

    \b
    Examples:
      pool artifacts keep 3f786850e387
      pool artifacts keep 3f786850e387 --for 365d
      pool artifacts keep 3f786850e387 --release
    """
    from computepool.sdk.client.sizes import seconds

    pool = open_pool()
    full = _find(digest)[0]
    if release:
        pool.artifacts.release(full)
        found = None
    else:
        found = pool.artifacts.keep(full, duration=None if span is None else seconds(span, what="--for"))
    if json:
        output.print_json({"released": full} if found is None else found)
    elif found is None:
        output.say(f"released {full[:12]}")
    else:
        output.say(f"{full[:12]} is kept until {_until(found.kept_until_ms, found.refs)}")


@app.command()
def get(
    digest: Digest,
    path: Annotated[
        Path | None, typer.Argument(metavar="[PATH]", help="Where to; default: its own name, here.")
    ] = None,
    *,
    out: Annotated[Path | None, typer.Option(metavar="PATH", help="The same as PATH.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Leave a sealed file sealed.")] = False,
    timeout: Timeout = "60",
    json: Json = False,
) -> None:
    """Download a file; a broken download continues where it stopped, and is checked by its SHA-256.

    What is sealed to a key of yours (`pool seal`) is opened.

    \b
    Examples:
      pool artifacts get 3f786850e387
      pool artifacts get 3f786850e387 --out model.bin
    """
    pool = open_pool(retry_for=_retry_for(timeout))
    path = out or path
    full, name = _find(digest)
    with _progress(name or full[:12]) as seen:
        target = pool.artifacts.get(full, path or Path(Path(name).name or full), progress=seen, raw=raw)
    if json:
        output.print_json({"digest": full, "path": str(target), "size": target.stat().st_size})
    else:
        output.say(str(target))


@app.command()
def put(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Files to send.")],
    *,
    timeout: Timeout = "60",
    json: Json = False,
) -> None:
    """Upload files; what the hub has already is not sent again, and a broken upload continues where it stopped.

    \b
    Examples:
      pool artifacts put data.csv model.bin
    """
    pool = open_pool(retry_for=_retry_for(timeout))
    sent = []
    for path in paths:
        with _progress(path.name) as seen:
            sent.append(pool.artifacts.put(path, progress=seen))
    if json:
        output.print_json(sent)
        return
    for artifact in sent:
        output.say(f"{artifact.digest}\t{artifact.name}\t{output.size(artifact.size)}")


def _retry_for(timeout: str) -> float:
    from computepool.sdk.client.sizes import seconds

    return seconds(timeout, what="--timeout")


@contextmanager
def _progress(label: str) -> Iterator[Seen]:
    """A bar with bytes and speed on the terminal; Ctrl-C leaves what came so far, and the next call goes on there."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    screen = output.console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(printable(label).replace("[", r"\["), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


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
