"""`pool images …`: container images that you upload for your jobs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Typer

from computepool.cli import output
from computepool.cli.account.artifacts import Timeout, transfer_bar
from computepool.cli.options import open_pool
from computepool.core.errors import NotFound
from computepool.core.resources import UPLOADED
from computepool.sdk.client.sizes import seconds

app = Typer(no_args_is_help=True)


@app.command()
def push(
    path: Annotated[Path, Argument(metavar="FILE", help="An archive of one image, not compressed.")],
    *,
    timeout: Timeout = "60",
) -> None:
    """Upload an image that `docker save`, `podman save` or an OCI tool wrote. Prints the name that --image takes.

    Images in a registry need no upload: submit --image python:3.12.

    Examples:
      pool images push app.tar
      pool submit --image "$(pool images push app.tar)" --wait -- app --version
    """
    pool = open_pool(retry_for=seconds(timeout, what="--timeout"))
    with transfer_bar(path.name) as seen:
        image = pool.images.push(path, progress=seen)
    output.show({"image": image}, image)


@app.command("list")
def list_images() -> None:
    """List the images that you have uploaded, newest first.

    Examples:
      pool images list
    """
    found = open_pool().images.list()
    if output.print_json([asdict(image) for image in found]):
        return
    rows = [(image.image, image.name, output.size(image.size), output.ago(image.created_at_ms)) for image in found]
    output.print_table(("IMAGE", "FILE", "SIZE", "CREATED"), rows, empty="No images. Upload one: pool images push FILE")


@app.command()
def rm(images: Annotated[list[str], Argument(metavar="IMAGE…", help="Names, or unique beginnings of names.")]) -> None:
    """Delete uploaded images. Unfinished jobs keep the image that they use.

    Examples:
      pool images rm artifact:3f786850e387
    """
    pool = open_pool()
    known = [image.image for image in pool.images.list()]
    removed = [_find(known, image) for image in images]
    for image in removed:
        pool.images.rm(image)
    output.show({"removed": removed}, "\n".join(f"removed {image}" for image in removed))


def _find(known: list[str], word: str) -> str:
    start = word if word.startswith(f"{UPLOADED}:") else f"{UPLOADED}:{word}"
    found = [image for image in known if image.startswith(start)]
    if len(found) != 1:
        raise NotFound(f"{len(found) or 'No'} images start with {word!r}; see `pool images list`.")
    return found[0]
