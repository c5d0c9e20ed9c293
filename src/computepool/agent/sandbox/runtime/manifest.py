"""The manifest of a file tree, and its digest.

The manifest has kind, path, mode, size and SHA-256 of each entry, in the order of the paths; its SHA-256 is the tree's
digest. The stamp recognises an unchanged tree without reading its files.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from computepool.agent.sandbox.base import SandboxError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class RuntimeSummary:
    digest: str
    files: int
    size: int


def summarise(root: Path) -> RuntimeSummary:
    """Read the whole tree. Raises SandboxError if it holds anything but files, folders and links."""
    rows = []
    files = size = 0
    for path, info in _entries(root):
        kind = stat.S_IFMT(info.st_mode)
        mode = stat.S_IMODE(info.st_mode)
        if kind == stat.S_IFDIR:
            rows.append(["folder", path, mode])
        elif kind == stat.S_IFLNK:
            rows.append(["link", path, os.readlink(root / path)])
        elif kind == stat.S_IFREG:
            with os.fdopen(os.open(root / path, _READ), "rb") as opened:
                sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
            rows.append(["file", path, mode, info.st_size, sha256])
            files += 1
            size += info.st_size
        else:
            raise SandboxError(f"{path} is neither a file nor a folder nor a link")
    text = json.dumps(sorted(rows, key=lambda row: str(row[1])), separators=(",", ":"))
    return RuntimeSummary(hashlib.sha256(text.encode()).hexdigest(), files, size)


def stamp(root: Path) -> str:
    """Changes whenever the tree changes, because the kernel sets change times.

    It also changes with each boot, because a power failure can lose the content of a file and keep its times.
    """
    boot_id = _BOOT_ID.read_text() if _BOOT_ID.exists() else ""
    rows = [
        f"{path}\0{info.st_mode} {info.st_size} {info.st_ino} {info.st_mtime_ns} {info.st_ctime_ns}\n"
        for path, info in _entries(root)
    ]
    return hashlib.sha256((boot_id + "".join(sorted(rows))).encode()).hexdigest()


def _entries(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Relative path and status of everything below `root`; follows no link."""
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                yield path, entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
