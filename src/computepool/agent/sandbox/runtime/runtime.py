"""The runtime of jobs: a root file system with Python, identified by its content, cached, and read-only for jobs.

Owns the folder `runtimes` of a cache: one tree per digest, which tree belongs to which recipe, the checks before use, and
when a tree is removed. tree.py builds the content; manifest.py computes the digest.
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
#: Part of every recipe: change it when the layout changes.
_FORMAT = 2
#: In the tree, and so part of its digest: what the tree was made for.
_FACTS = Path("usr/share/computepool/runtime.json")
#: Holds the digest of a tree that the owner imported, to be used instead of one made here.
CHOSEN = "chosen"
#: The number of trees that are kept though nobody uses them: the one before an update.
_KEPT_UNUSED = 1
#: Locks of the trees that this process uses: nobody may remove those. The kernel drops the locks with the process.
_held: dict[Path, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    root: Path  #: the tree, on the host
    digest: str  #: SHA-256 of its manifest
    own_libraries: bool  #: the interpreter was built against libraries of its own, which are in the tree
    packages: str  #: digest of site-packages

    @property
    def path(self) -> Path:
        """Python's home on the host. A sandbox with mounts shows it at INSIDE."""
        return self.root / INSIDE.lstrip("/")

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python3"

    @property
    def short(self) -> str:
        return self.digest[:12]

    def env(self, home: str) -> dict[str, str]:
        """The variables that a job needs; `home` is where it sees the jobs' Python."""
        libraries = {"LD_LIBRARY_PATH": f"{home}/lib"} if self.own_libraries else {}
        return {"PATH": f"{home}/bin:/usr/local/bin:/usr/bin:/bin", **libraries}

    def verify(self) -> manifest.RuntimeSummary:
        """Read every file again. Raises SandboxError if the tree does not match its digest."""
        summary = manifest.summarise(self.root)
        if summary.digest != self.digest:
            raise SandboxError(f"the runtime {self.short} was changed on disk: {self.root}")
        return summary

    @classmethod
    def prepare(cls, cache_dir: Path, extra: Mapping[str, Path], *, add: Sequence[str] = ()) -> Runtime:
        """The runtime with `extra` (name in site-packages -> file or folder) and what the owner adds.

        Builds it if it is missing or its sources have changed. A lock protects against a second caller, and a rename at the
        end against being killed half-way.
        """
        for path in add:
            tree.path_to_add(path)
        store = open_store(cache_dir)
        recipe = RuntimeRecipe.of(extra, add)
        with contextlib.suppress(FileNotFoundError):
            return load_chosen(store, recipe, (store / CHOSEN).read_text().strip())
        found = _find_made(store, recipe)
        if found is None:
            with locked_store(store):
                found = _find_made(store, recipe) or _make(store, recipe, extra=extra, add=add)
        return found


@dataclass(frozen=True, slots=True)
class RuntimeRecipe:
    """Identifies the inputs of a runtime without reading all of them."""

    key: str
    facts: Mapping[str, Any]  #: what a runtime that was made elsewhere must have in common with this agent

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
    store = cache_dir / "runtimes"
    store.mkdir(mode=0o755, parents=True, exist_ok=True)
    return store


def load(store: Path, digest: str) -> Runtime | None:
    """The tree of this digest, locked from now on; None if it is missing or does not match its digest.

    Reads it again only if its stamp has changed.
    """
    hold(store, digest)
    root = store / digest
    with contextlib.suppress(OSError, ValueError, KeyError):
        known = json.loads((store / f"{digest}.json").read_bytes())
        if known["stamp"] == manifest.stamp(root):
            return _runtime(root)
        if manifest.summarise(root).digest == digest:
            return _record(root)
    os.close(_held.pop(store / f"{digest}.lock"))
    return None


def load_chosen(store: Path, recipe: RuntimeRecipe, digest: str) -> Runtime:
    """The runtime that the owner imported. Raises SandboxError if it is not usable."""
    remedy = "import one that was exported by this version of ComputePool, or `pool node runtime reset`"
    found = load(store, digest)
    if found is None:
        raise SandboxError(f"the imported runtime {digest[:12]} is gone or was changed: {remedy}")
    facts = _facts(found.root)
    if wrong := [name for name, value in recipe.facts.items() if facts.get(name) != value]:
        raise SandboxError(
            f"the imported runtime {digest[:12]} does not match this node in {', '.join(wrong)}: {remedy}"
        )
    return found


def adopt(store: Path, building: Path) -> Runtime:
    """Move a finished tree to its final name. Call it under the lock."""
    root = store / manifest.summarise(building).digest
    hold(store, root.name)
    remove_tree(root)  # It exists only if it was damaged.
    building.rename(root)
    return _record(root)


@contextlib.contextmanager
def building_folder(store: Path) -> Iterator[Path]:
    """A folder to build a tree in. Call it under the lock: then what is left of others belongs to killed agents."""
    for stale in store.glob(".building-*"):
        remove_tree(stale)
    folder = store / f".building-{uuid.uuid4().hex}"
    folder.mkdir(mode=0o755)
    try:
        yield folder
    finally:
        remove_tree(folder)


@contextlib.contextmanager
def locked_store(store: Path) -> Iterator[None]:
    with os.fdopen(open_lock(store / ".lock", fcntl.LOCK_EX)):
        yield


def hold(store: Path, digest: str) -> None:
    """Prevent the removal of this tree while this process runs."""
    path = store / f"{digest}.lock"
    if path not in _held:
        _held[path] = open_lock(path, fcntl.LOCK_SH)


def collect_garbage(store: Path) -> None:
    """Remove unused trees except the newest. Call it under the lock."""
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
            for made in store.glob("*.made"):
                if root.name in made.read_text():
                    made.unlink()
            lock.unlink()
        os.close(fd)


def _find_made(store: Path, recipe: RuntimeRecipe) -> Runtime | None:
    """The runtime built from this recipe, if its source files are unchanged."""
    try:
        made = json.loads((store / f"{recipe.key}.made").read_bytes())
        for path, facts in made["sources"].items():
            info = os.stat(path)
            if [info.st_size, info.st_mtime_ns] != facts:
                return None
    except (OSError, ValueError, KeyError):
        return None
    return load(store, made["digest"])


def _make(store: Path, recipe: RuntimeRecipe, *, extra: Mapping[str, Path], add: Sequence[str]) -> Runtime:
    with building_folder(store) as building:
        made = tree.Tree(building)
        made.fill(extra, add)
        _write(building / _FACTS, {**recipe.facts, "own_libraries": made.own_libraries})
        tree.open_to_all(building)
        _check(building, own_libraries=made.own_libraries)
        runtime = adopt(store, building)
    _write(store / f"{recipe.key}.made", {"digest": runtime.digest, "sources": made.sources})
    collect_garbage(store)
    return runtime


def _facts(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / _FACTS).read_bytes())
    return found


def _record(root: Path) -> Runtime:
    """Write down the stamp by which the tree is recognised from now on."""
    _write(root.with_name(f"{root.name}.json"), {"stamp": manifest.stamp(root)})
    return _runtime(root)


def _runtime(root: Path) -> Runtime:
    facts = _facts(root)
    return Runtime(root=root, digest=root.name, own_libraries=facts["own_libraries"], packages=facts["packages"])


def _check(root: Path, *, own_libraries: bool) -> None:
    home = root / INSIDE.lstrip("/")
    env = {"LD_LIBRARY_PATH": str(home / "lib")} if own_libraries else {}
    # Without -B it would write byte code into the tree.
    command = [str(home / "bin" / "python3"), "-IB", "-c", "import ctypes, hashlib, json, socket, zlib"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    if ran.returncode != 0:
        raise SandboxError(f"the copy of {sys.base_prefix} does not run: {ran.stderr.strip()[-300:]}")


def _python_files() -> list[list[Any]]:
    """Identifies the interpreter by the times of some files: reading it at each start would take too long."""
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
