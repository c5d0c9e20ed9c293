"""The size of each part of the node's cache, and clearing it while no agent runs."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from computepool.agent.sandbox.scratch import remove_tree

#: Folders that fill as jobs run, and are created again when a job needs them.
CLEARED = {
    "artifacts": "inputs of jobs",
    "environments": "packages of jobs",
    "pythons": "other Pythons",
    "images": "images of jobs",
}
_REST = "jobs' Python and sandboxes"


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePart:
    name: str
    files: int
    size: int  #: bytes on the disk
    cleared: bool  #: by `clear`; every job needs the rest


def parts(cache_dir: Path) -> list[CachePart]:
    """The parts that `clear` removes, then the rest as one."""
    found = [_part(what, [cache_dir / folder], cleared=True) for folder, what in CLEARED.items()]
    rest = [path for path in _entries(cache_dir) if path.name not in CLEARED]
    return [*found, _part(_REST, rest, cleared=False)]


def clear(cache_dir: Path) -> None:
    """Call it only while no agent runs; a running agent clears its own cache."""
    for folder in CLEARED:
        for path in _entries(cache_dir / folder):
            remove_tree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _part(name: str, folders: list[Path], *, cleared: bool) -> CachePart:
    sizes = [size for folder in folders for size in file_sizes(folder)]
    return CachePart(name=name, files=len(sizes), size=sum(sizes), cleared=cleared)


def least_recent(folder: Path, *, folders: bool = False) -> list[tuple[str, int]]:
    """Name and size of each file (or folder) in this folder, the least recently used first."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # It was renamed when it was complete, or evicted.
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode) is folders:
                    found.append((info.st_mtime_ns, entry.name, info.st_size))
    return [(name, size) for _, name, size in sorted(found)]


def file_sizes(folder: Path) -> Iterator[int]:
    """Disk usage of every file, while others may write and remove files."""
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(where, name)).st_blocks * 512
            except OSError:
                continue
