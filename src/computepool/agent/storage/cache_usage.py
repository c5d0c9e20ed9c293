"""The node's cache: the size of each part, each thing in it, and clearing it while no agent runs."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from computepool.agent.sandbox.scratch import remove_tree
from computepool.core.resources import ARTIFACT, PACKAGES
from computepool.protocol.jobs.jobs import WARM_INPUT_MIN
from computepool.protocol.nodes.software import CACHED_MAX, CachedItem

#: Folders that fill as jobs run, and are created again when a job needs them, by the word of `pool node cache clear --kind`.
CLEARED = {"inputs": "artifacts", "packages": "environments", "pythons": "pythons"}
_TITLES = {"inputs": "inputs of jobs", "packages": "packages of jobs", "pythons": "other Pythons"}
_REST = "jobs' Python and sandboxes"
#: In a cached folder: what it is, and how long it took to make.
FACTS = ".computepool.json"
_FACTS_BYTES = 4096
_DIGEST_CHARS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePart:
    kind: str
    name: str
    files: int
    size: int  #: bytes on the disk
    cleared: bool  #: by `clear`; every job needs the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """One thing that later jobs need not fetch."""

    kind: str
    name: str
    label: str
    size: int
    used_ms: int  #: when it was last used
    took_ms: int = 0  #: to fetch or install it, if known


def parts(cache_dir: Path) -> list[CachePart]:
    """The parts that `clear` removes, then the rest as one."""
    found = [_part(kind, _TITLES[kind], [cache_dir / folder]) for kind, folder in CLEARED.items()]
    rest = [path for path in _entries(cache_dir) if path.name not in CLEARED.values()]
    return [*found, _part("", _REST, rest)]


def entries(cache_dir: Path, kinds: Collection[str] = tuple(CLEARED), *, sizes: bool = True) -> list[CacheEntry]:
    """Everything in these parts, the most recently used first. `sizes`: measure folders, which takes a while."""
    found = []
    for kind in kinds:
        for path in _entries(cache_dir / CLEARED[kind]):
            with contextlib.suppress(OSError):
                if not path.name.startswith(".") and not path.suffix:
                    found.append(_entry(kind, path, sizes=sizes))
    return sorted(found, key=lambda entry: -entry.used_ms)


def warm_items(cache_dir: Path) -> list[CachedItem]:
    """What the hub should know of, the most recently used first."""
    found: dict[str, CachedItem] = {}
    for entry in entries(cache_dir, ("inputs", "packages"), sizes=False):
        key = ""
        if entry.kind == "packages" and "-" in entry.name:
            key = f"{PACKAGES}{entry.name.partition('-')[0]}"
        elif len(entry.name) == _DIGEST_CHARS and entry.size >= WARM_INPUT_MIN:
            key = f"{ARTIFACT}{entry.name}"
        if key and len(found) < CACHED_MAX:
            found.setdefault(key, CachedItem(key=key, took_ms=entry.took_ms))
    return list(found.values())


def clear(cache_dir: Path, kinds: Collection[str] = tuple(CLEARED)) -> None:
    """Call it only while no agent runs; a running agent clears its own cache."""
    for kind in kinds:
        for path in _entries(cache_dir / CLEARED[kind]):
            remove_tree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _entry(kind: str, path: Path, *, sizes: bool) -> CacheEntry:
    info = path.lstat()
    is_folder = stat.S_ISDIR(info.st_mode)
    facts = _facts(path) if is_folder else {}
    took_ms = facts.get("took_ms")
    return CacheEntry(
        kind=kind,
        name=path.name,
        label=str(facts.get("label", ""))[:200],
        size=(sum(file_sizes(path)) if sizes else 0) if is_folder else info.st_size,
        used_ms=info.st_mtime_ns // 1_000_000,
        took_ms=took_ms if isinstance(took_ms, int) and 0 <= took_ms <= 24 * 3600 * 1000 else 0,
    )


def _facts(folder: Path) -> dict[str, object]:
    try:
        with (folder / FACTS).open("rb") as file:
            found = json.loads(file.read(_FACTS_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _part(kind: str, name: str, folders: list[Path]) -> CachePart:
    sizes = [size for folder in folders for size in file_sizes(folder)]
    return CachePart(kind=kind, name=name, files=len(sizes), size=sum(sizes), cleared=bool(kind))


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
