"""The roots of images: layers put together, the lowest first, with hard links to their files.

Everything here was made by the agent itself from what it took out of a sandbox, and nobody else writes to it. So a path is
safe once no part of it is a link.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import BaseModel, Field

from computepool.agent.sandbox.base import BadCommand
from computepool.agent.sandbox.scratch import remove_tree

FILES, FACTS = "files", "layer.json"


class LayerFacts(BaseModel):
    removed: list[str] = Field(default=[])  #: paths that it removes from the layers below
    opaque: list[str] = Field(default=[])  #: folders of which it hides the content in the layers below
    size: int = 0


def facts_of(layer: Path) -> LayerFacts:
    return LayerFacts.model_validate_json((layer / FACTS).read_bytes())


def merge(layers: Iterable[Path], root: Path) -> int:
    """Make `root` of these layers, the lowest first; returns the number of entries."""
    root.mkdir(mode=0o755)
    count = 0
    for layer in layers:
        removed = facts_of(layer)
        for path in removed.opaque:
            if (place := find(root, path)) is not None and _is_folder(place):
                remove_tree(place)
                place.mkdir(mode=0o755)
        for path in removed.removed:
            if (place := find(root, path)) is not None and place != root:
                _drop(place)
        count += _link_files(layer / FILES, root)
    return count


def find(root: Path, path: str) -> Path | None:
    """The place of `path` below `root`; None if it leads through a link or a file, or out of the root."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    here = root
    for number, part in enumerate(parts, start=1):
        here = here / part
        if part == ".." or "\0" in part or (number < len(parts) and not _is_folder(here)):
            return None
    return here


def make_folder(root: Path, path: str) -> Path:
    """A real folder at `path` below `root`: whatever else is there, or on the way, is replaced."""
    here = root
    for part in path.strip("/").split("/"):
        here = here / part
        if not _is_folder(here):
            _drop(here)
            here.mkdir(mode=0o755)
    return here


def add_folder(root: Path, path: str) -> None:
    """A folder at `path` below `root`, unless something else is there, or on the way."""
    here = root
    for part in path.strip("/").split("/"):
        here = here / part
        if part in ("", ".", "..") or "\0" in part or (os.path.lexists(here) and not _is_folder(here)):
            return
        here.mkdir(mode=0o755, exist_ok=True)


def _link_files(source: Path, root: Path) -> int:
    """A folder takes the place of a link or a file, and the other way round."""
    count = 0
    for path, folders, files in os.walk(source):
        target = root / Path(path).relative_to(source)
        for name in folders:
            if os.path.islink(f"{path}/{name}"):
                files.append(name)
            elif not _is_folder(target / name):
                _drop(target / name)
                (target / name).mkdir(mode=0o755)
        for name in files:
            try:
                os.link(f"{path}/{name}", target / name, follow_symlinks=False)
            except FileExistsError:
                _drop(target / name)
                os.link(f"{path}/{name}", target / name, follow_symlinks=False)
        count += len(files) + len(folders)
    return count


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _drop(path: Path) -> None:
    if _is_folder(path):
        remove_tree(path)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def make_mount_points(root: Path, mounts: Mapping[Path, str]) -> None:
    """Make the places below `root` on which these files and folders will be mounted. Raises BadCommand if the image has
    something else there.
    """
    for outside, inside in mounts.items():
        above, _, name = inside.rstrip("/").rpartition("/")
        here = root
        for part in filter(None, above.split("/")):
            here = here / part
            if not _is_folder(here):
                if os.path.lexists(here):
                    raise BadCommand(f"the image has something else than a folder at {inside.removesuffix(name)}")
                here.mkdir(mode=0o755)
        point = here / name
        if os.path.lexists(point):
            if point.is_symlink() or point.is_dir() != outside.is_dir():
                raise BadCommand(f"the image has something else at {inside}, where a file or folder of the job belongs")
            continue
        if outside.is_dir():
            point.mkdir(mode=0o755)
        else:
            point.touch(mode=0o644)
