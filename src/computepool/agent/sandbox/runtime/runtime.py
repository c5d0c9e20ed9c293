"""The runtime of jobs: a root file system with Python, identified by its content, cached, and read-only for jobs.

Owns the folder `runtimes` of a cache: one tree per digest, which tree belongs to which recipe, what is checked before
use, and when a tree is removed. tree.py builds the content; manifest.py computes the digest.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from computepool.agent.sandbox.base import SandboxError
from computepool.agent.sandbox.runtime import manifest, tree
from computepool.agent.sandbox.scratch import open_lock, remove_tree

#: Where a job finds its Python.
INSIDE = tree.PYTHON
#: Part of every wish: change it when the layout changes.
_FORMAT = 2
_FOLDER = "runtimes"
#: In the tree, and so a part of its name: what it was made for.
_FACTS = Path("usr/share/computepool/runtime.json")
#: The digest of a tree that the owner imported and that is used instead of one made here.
CHOSEN = "chosen"
#: Trees that are kept though nobody uses them now: the one before an update.
_KEPT_UNUSED = 1
#: Runtimes that this process uses: nobody may remove them. The kernel drops the locks with the process.
_held: dict[Path, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    #: The tree, on the host.
    root: Path
    #: SHA-256 of its manifest.
    digest: str
    files: int
    size: int
    #: The interpreter was built against libraries of its own that came along.
    own_libraries: bool = False
    #: Digest of what is in site-packages.
    packages: str = ""

    @property
    def path(self) -> Path:
        """Python's home on the host; at INSIDE where the level has mounts."""
        return self.root / INSIDE.lstrip("/")

    @property
    def python(self) -> Path:
        """The interpreter's path on the host."""
        return self.path / "bin" / "python3"

    @property
    def short(self) -> str:
        return self.digest[:12]

    def env(self, home: str) -> dict[str, str]:
        """What a job needs in its environment; `home` is where it sees the jobs' Python."""
        found = {"PATH": f"{home}/bin:/usr/local/bin:/usr/bin:/bin"}
        if self.own_libraries:
            found["LD_LIBRARY_PATH"] = f"{home}/lib"
        return found

    def verify(self) -> None:
        """Read every file again. Raises SandboxError if the tree does not match its digest."""
        if manifest.summarise(self.root).digest != self.digest:
            raise SandboxError(f"the runtime {self.short} was changed on disk: {self.root}")

    @classmethod
    def prepare(cls, cache_dir: Path, extra: Mapping[str, Path], *, add: Sequence[str] = ()) -> Runtime:
        """The runtime with `extra` (name in site-packages -> file or folder) and what the owner adds.

        Built if missing or changed. Safe against a second caller (by a lock) and against being
        killed half way (made aside, then renamed).
        """
        for path in add:
            tree.path_to_add(path)
        store = open_store(cache_dir)
        wish = RuntimeRecipe.of(extra, add)
        with contextlib.suppress(FileNotFoundError):
            return load_chosen(store, wish, (store / CHOSEN).read_text().strip())
        found = _find_made(store, wish)
        if found is None:
            with lock(store):
                found = _find_made(store, wish) or _make(store, wish, extra=extra, add=add)
        return found


@dataclass(frozen=True, slots=True)
class RuntimeRecipe:
    """Identifies the inputs of a runtime without reading all of them."""

    key: str
    #: What it must have in common with this agent wherever it was made.
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, extra: Mapping[str, Path], add: Sequence[str]) -> RuntimeRecipe:
        packages = hashlib.sha256()
        for name, source in sorted(extra.items()):
            for path in tree.files_of(source):
                packages.update(f"\0{name}/{path.relative_to(source)}\0".encode())
                packages.update(hashlib.sha256(path.read_bytes()).digest())
        facts = {
            "format": _FORMAT,
            "machine": platform.machine(),
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "packages": packages.hexdigest(),
        }
        here = [facts, sys.version, sys.base_prefix, sorted(add), os.geteuid() == 0]
        return cls(hashlib.sha256(json.dumps([here, _python_files()]).encode()).hexdigest()[:32], facts)


def open_store(cache_dir: Path) -> Path:
    store = cache_dir / _FOLDER
    store.mkdir(mode=0o755, parents=True, exist_ok=True)
    return store


def load(store: Path, digest: str) -> Runtime | None:
    """The tree of this digest, locked from now on; None if it is missing or does not match.

    It is read again only if its stamp has changed.
    """
    hold(store, digest)
    found = _load(store, digest)
    if found is None:
        os.close(_held.pop(store / f"{digest}.lock"))
    return found


def _load(store: Path, digest: str) -> Runtime | None:
    root = store / digest
    try:
        known = json.loads((store / f"{digest}.json").read_bytes())
        if known["stamp"] == manifest.stamp(root):
            return _runtime(root, manifest.RuntimeSummary(digest, known["files"], known["size"]))
        summary = manifest.summarise(root)
        return _record(root, summary) if summary.digest == digest else None
    except (OSError, ValueError, KeyError):
        return None


def load_chosen(store: Path, wish: RuntimeRecipe, digest: str) -> Runtime:
    """The runtime that the owner imported. Raises SandboxError if it cannot be used."""
    remedy = "import one that was exported by this version of ComputePool, or `pool node runtime reset`"
    found = load(store, digest)
    if found is None:
        raise SandboxError(f"the imported runtime {digest[:12]} is gone or was changed: {remedy}")
    facts = _facts(found.root)
    if wrong := [name for name, value in wish.facts.items() if facts.get(name) != value]:
        raise SandboxError(f"the imported runtime {digest[:12]} has another {', '.join(wrong)}: {remedy}")
    return found


def adopt(store: Path, building: Path) -> Runtime:
    """Move a finished tree to its final name. Call it under the lock."""
    summary = manifest.summarise(building)
    hold(store, summary.digest)
    root = store / summary.digest
    remove_tree(root)  # Only ever there if it was damaged.
    building.rename(root)
    return _record(root, summary)


@contextlib.contextmanager
def building_folder(store: Path) -> Iterator[Path]:
    """A folder to build a tree in. Call it under the lock, so that leftovers belong to killed agents."""
    for stale in store.glob(".building-*"):
        remove_tree(stale)
    folder = store / f".building-{uuid.uuid4().hex}"
    folder.mkdir(mode=0o755)
    try:
        yield folder
    finally:
        remove_tree(folder)


@contextlib.contextmanager
def lock(store: Path) -> Iterator[None]:
    fd = open_lock(store / ".lock", fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(fd)


def hold(store: Path, digest: str) -> None:
    """Prevent the removal of this tree while this process lives."""
    path = store / f"{digest}.lock"
    if path not in _held:
        _held[path] = open_lock(path, fcntl.LOCK_SH)


def collect_garbage(store: Path) -> None:
    """Remove unused trees except the youngest. Call it under the lock."""
    for old in store.parent.glob("runtime-*"):  # Of the first format.
        remove_tree(old)
    kept = _KEPT_UNUSED
    roots = [path for path in store.iterdir() if len(path.name) == 64 and path.is_dir()]
    for root in sorted(roots, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        lock = store / f"{root.name}.lock"
        try:
            fd = open_lock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        if kept > 0:
            kept -= 1
        else:
            remove_tree(root)
            (store / f"{root.name}.json").unlink(missing_ok=True)
            for wish in store.glob("*.wish"):
                if root.name in wish.read_text():
                    wish.unlink()
            lock.unlink()
        os.close(fd)


def _find_made(store: Path, wish: RuntimeRecipe) -> Runtime | None:
    """The runtime built for this recipe, if its source files are unchanged."""
    try:
        noted = json.loads((store / f"{wish.key}.wish").read_bytes())
        for path, facts in noted["sources"].items():
            info = os.stat(path)
            if [info.st_size, info.st_mtime_ns] != facts:
                return None
    except (OSError, ValueError, KeyError):
        return None
    return load(store, noted["digest"])


def _make(store: Path, wish: RuntimeRecipe, *, extra: Mapping[str, Path], add: Sequence[str]) -> Runtime:
    with building_folder(store) as building:
        made = tree.Tree(building)
        made.fill(extra, add)
        _write(building / _FACTS, {**wish.facts, "own_libraries": made.own_libraries})
        tree.open_to_all(building)
        _check(building, own_libraries=made.own_libraries)
        runtime = adopt(store, building)
    _write(store / f"{wish.key}.wish", {"digest": runtime.digest, "sources": made.sources})
    collect_garbage(store)
    return runtime


def _facts(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / _FACTS).read_bytes())
    return found


def _record(root: Path, summary: manifest.RuntimeSummary) -> Runtime:
    """Write down the stamp by which the tree is recognised from now on."""
    note = {"stamp": manifest.stamp(root), "files": summary.files, "size": summary.size}
    _write(root.with_name(f"{summary.digest}.json"), note)
    return _runtime(root, summary)


def _runtime(root: Path, summary: manifest.RuntimeSummary) -> Runtime:
    facts = _facts(root)
    return Runtime(
        root=root,
        digest=summary.digest,
        files=summary.files,
        size=summary.size,
        own_libraries=bool(facts["own_libraries"]),
        packages=str(facts["packages"]),
    )


def _check(root: Path, *, own_libraries: bool) -> None:
    home = root / INSIDE.lstrip("/")
    env = {"LD_LIBRARY_PATH": str(home / "lib")} if own_libraries else {}
    # Without -B it would write byte code into the tree.
    command = [str(home / "bin" / "python3"), "-IB", "-c", "import ctypes, hashlib, json, socket, zlib"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    if ran.returncode != 0:
        raise SandboxError(f"the copy of {sys.base_prefix} does not run: {ran.stderr.strip()[-300:]}")


def _python_files() -> list[list[Any]]:
    """Identifies the interpreter by file times: reading it takes too long for every start."""
    library = Path(sysconfig.get_path("stdlib"))
    found = []
    for path in (Path(os.path.realpath(sys.executable)), library, library / "os.py", library / "lib-dynload"):
        with contextlib.suppress(FileNotFoundError):
            info = path.stat()
            found.append([str(path), info.st_size, info.st_mtime_ns])
    return found


def _write(path: Path, value: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.new")
    aside.write_text(json.dumps(value, sort_keys=True))
    aside.chmod(0o644)
    aside.rename(path)
