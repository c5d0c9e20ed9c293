"""`pool artifacts …`: files at the hub."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer

from computepool.cli import output
from computepool.cli.options import Limit, OfJob, open_pool
from computepool.core.errors import BadRequest, NotFound
from computepool.core.plaintext import printable
from computepool.sdk.client.sizes import seconds

if TYPE_CHECKING:
    from computepool.protocol.artifacts import ArtifactRef, StorageView
    from computepool.sdk.files.artifacts import Progress as ProgressCallback

app = Typer(no_args_is_help=True)
Digest = Annotated[str, Argument(metavar="DIGEST", help="SHA-256 digest, or a unique prefix of one of yours.")]
Timeout = Annotated[
    str, Option(metavar="TIME", help="How long to retry while the hub is unreachable, such as 5 or 10m.")
]
_DIGEST_CHARS = 64


@app.command("list")
def list_artifacts(*, job: OfJob = None, limit: Limit = 30) -> None:
    """List files at the hub, newest first, and how much of your quota is used.

    Examples:
      pool artifacts list
      pool artifacts list --job job_01h…
    """
    pool = open_pool()
    artifacts = pool.artifacts.list(job_id=job, limit=limit)
    storage = pool.artifacts.storage()
    if output.print_json({"artifacts": [a.model_dump() for a in artifacts], "storage": storage.model_dump()}):
        return
    shown = 12 if sys.stdout.isatty() else _DIGEST_CHARS
    rows = [
        (a.digest[:shown], a.name, output.size(a.size), a.role, a.job_id, output.ago(a.created_at_ms))
        for a in artifacts
    ]
    output.print_table(("DIGEST", "NAME", "SIZE", "ROLE", "JOB", "CREATED"), rows, empty="No artifacts.")
    output.note(_storage(storage))


def _storage(kept: StorageView) -> str:
    share = "" if not kept.bytes_max else f" ({kept.bytes / kept.bytes_max:.0%})"
    coming = f"; {output.size(kept.uploading_bytes)} in unfinished uploads" if kept.uploading_bytes else ""
    return (
        f"You store {kept.artifacts:,} files, {output.size(kept.bytes)} of {output.size(kept.bytes_max)}{share}{coming}. "
        f"Files are kept for {output.span(kept.keep_s * 1000)} after their job ends."
    )


@app.command()
def info(digest: Digest) -> None:
    """Show a file: size, integrity, what refers to it, and how long it is kept.

    Examples:
      pool artifacts info 3f786850e387
    """
    found = open_pool().artifacts.info(_find(digest)[0])
    if output.print_json(found):
        return
    output.print_fields(
        (
            ("digest", found.digest),
            ("size", f"{output.size(found.size)} ({found.size:,} bytes)"),
            ("complete", "yes" if found.whole else "no: data is missing at the hub; upload it again"),
            ("created", output.moment(found.created_at_ms)),
            ("kept until", _until(found.kept_until_ms, found.refs)),
        )
    )
    rows = [(r.role, r.name, r.job_id, r.job_state, _until(r.kept_until_ms, [r])) for r in found.refs]
    output.print_table(("ROLE", "NAME", "JOB", "STATE", "KEPT UNTIL"), rows, empty="No references.")
    if found.more_refs:
        output.note("There are more references.")


def _until(until_ms: int | None, refs: Sequence[ArtifactRef]) -> str:
    if until_ms is not None:
        return output.moment(until_ms)
    kept = any(ref.role == "kept" and ref.kept_until_ms is None for ref in refs)
    return "released" if kept else "some time after its job ends"


@app.command()
def keep(
    digest: Digest,
    *,
    span: Annotated[
        str | None, Option("--for", metavar="TIME", help="Such as 12h or 30d. Default: until released.")
    ] = None,
    release: Annotated[bool, Option("--release", help="Undo this: keep it only as long as its jobs need it.")] = False,
) -> None:
    """Keep a file independently of its jobs. It counts towards your quota.

    Examples:
      pool artifacts keep 3f786850e387
      pool artifacts keep 3f786850e387 --for 365d
      pool artifacts keep 3f786850e387 --release
    """
    pool = open_pool()
    full = _find(digest)[0]
    if release:
        pool.artifacts.release(full)
        output.show({"released": full}, f"released {full[:12]}")
    else:
        found = pool.artifacts.keep(full, duration=None if span is None else seconds(span, what="--for"))
        output.show(found, f"{full[:12]} is kept until {_until(found.kept_until_ms, found.refs)}")


@app.command()
def get(
    digest: Digest,
    path: Annotated[
        Path | None, Argument(metavar="PATH", help="Destination. Default: the file's own name, in the current folder.")
    ] = None,
    *,
    out: Annotated[Path | None, Option(metavar="PATH", help="Same as PATH.")] = None,
    raw: Annotated[bool, Option("--raw", help="Do not decrypt a sealed file.")] = False,
    timeout: Timeout = "60",
) -> None:
    """Download a file and verify its SHA-256. An interrupted download resumes.

    Files sealed to one of your keys (`pool seal`) are decrypted.

    Examples:
      pool artifacts get 3f786850e387
      pool artifacts get 3f786850e387 --out model.bin
    """
    pool = open_pool(retry_for=seconds(timeout, what="--timeout"))
    path = out or path
    full, name = _find(digest)
    with transfer_bar(name or full[:12]) as seen:
        target = pool.artifacts.get(full, path or Path(Path(name).name or full), progress=seen, raw=raw)
    output.show({"digest": full, "path": str(target), "size": target.stat().st_size}, str(target))


@app.command()
def put(
    paths: Annotated[list[Path], Argument(metavar="PATH…", help="Files to upload.")], *, timeout: Timeout = "60"
) -> None:
    """Upload files. Data that the hub already has is not sent again, and an interrupted upload resumes.

    Examples:
      pool artifacts put data.csv model.bin
    """
    pool = open_pool(retry_for=seconds(timeout, what="--timeout"))
    sent = []
    for path in paths:
        with transfer_bar(path.name) as seen:
            sent.append(pool.artifacts.put(path, progress=seen))
    output.show(
        sent, "\n".join(f"{artifact.digest}\t{artifact.name}\t{output.size(artifact.size)}" for artifact in sent)
    )


@contextmanager
def transfer_bar(label: str) -> Iterator[ProgressCallback]:
    """A progress bar with bytes and speed, on a terminal only."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    screen = output.console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(printable(label).replace("[", r"\["), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@app.command()
def rm(
    digests: Annotated[list[str], Argument(metavar="DIGEST…", help="SHA-256 digests, or unique prefixes of yours.")],
) -> None:
    """Delete your references to files. The data is deleted once nothing refers to it.

    Examples:
      pool artifacts rm 3f786850e387
    """
    pool = open_pool()
    removed = [_find(digest)[0] for digest in digests]
    for digest in removed:
        pool.artifacts.rm(digest)
    output.show({"removed": removed}, "\n".join(f"removed {digest[:12]}" for digest in removed))


def _find(digest: str) -> tuple[str, str]:
    """The complete digest and the file's name."""
    if len(digest) > _DIGEST_CHARS or not set(digest) <= set("0123456789abcdef"):
        raise BadRequest(f"{digest!r} is not a SHA-256 digest or a prefix of one (64 characters, 0-9 and a-f).")
    known = {a.digest: a.name or "" for a in open_pool().artifacts.list(limit=1000) if a.digest.startswith(digest)}
    if len(digest) == _DIGEST_CHARS:
        return digest, known.get(digest, "")
    if len(known) != 1:
        raise NotFound(f"{len(known) or 'No'} artifacts start with {digest!r}; see `pool artifacts list`.")
    return next(iter(known.items()))
