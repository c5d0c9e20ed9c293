"""The Python that jobs see: a world-readable copy of the agent's interpreter and a few chosen packages.

Owns one folder per content under a cache folder. The agent's own interpreter often lives in a home that a
job's user cannot enter, and its virtual environment is none of the job's business.
"""

from __future__ import annotations

import compileall
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from computepool.agent.sandbox.base import SandboxError
from computepool.agent.sandbox.scratch import remove_tree

#: Where the runtime is mounted in a sandbox.
INSIDE = "/opt/python"
#: Part of the name: change it when the layout changes.
_FORMAT = 1
_MARKER = "runtime.json"
#: Not needed to run anything, and more than half of the size.
_LEFT_OUT = frozenset(
    {
        "__phello__",
        "ensurepip",
        "idlelib",
        "lib2to3",
        "site-packages",
        "test",
        "tests",
        "tkinter",
        "turtledemo",
    }
)
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    #: On the host; mounted read-only at INSIDE where the level has mounts.
    path: Path
    #: SHA-256 over every file's name and content.
    digest: str
    #: The interpreter was built against libraries of its own that came along.
    own_libraries: bool = False

    @property
    def python(self) -> Path:
        """The interpreter's path on the host."""
        return self.path / "bin" / "python3"

    @property
    def python_inside(self) -> str:
        return f"{INSIDE}/bin/python3"

    def env(self, root: str) -> dict[str, str]:
        """What a job needs in its environment; `root` is where it sees the runtime."""
        found = {"PATH": f"{root}/bin:/usr/local/bin:/usr/bin:/bin"}
        if self.own_libraries:
            found["LD_LIBRARY_PATH"] = f"{root}/lib"
        return found

    @classmethod
    def prepare(cls, cache_dir: Path, extra: Mapping[str, Path]) -> Runtime:
        """The runtime with `extra` (name in site-packages -> file or folder), built if it is not there yet.

        Safe against a second caller (a lock) and against being killed half way (built aside, then renamed).
        """
        cache_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        final = cache_dir / f"runtime-{_key(extra)[:32]}"
        found = cls._load(final)
        if found is None:
            with _locked(cache_dir / ".runtime.lock"):
                found = cls._load(final) or cls._build(final, extra)
        return found

    @classmethod
    def _load(cls, path: Path) -> Runtime | None:
        try:
            facts = json.loads((path / _MARKER).read_bytes())
        except FileNotFoundError:
            return None
        return cls(path=path, digest=facts["digest"], own_libraries=facts["own_libraries"])

    @classmethod
    def _build(cls, final: Path, extra: Mapping[str, Path]) -> Runtime:
        for stale in final.parent.glob(
            ".building-*"
        ):  # Under the lock nobody else builds: their maker was killed.
            remove_tree(stale)
        building = final.parent / f".building-{uuid.uuid4().hex}"
        building.mkdir(mode=0o755)
        own_libraries = _lay_out(building)
        site = building / "lib" / _VERSION / "site-packages"
        for name, source in extra.items():
            _copy(source, site / name)
        compileall.compile_dir(building / "lib", quiet=2, workers=1)
        _open_to_all(building)
        _check(building, own_libraries=own_libraries)
        digest = _content_digest(building)
        (building / _MARKER).write_text(json.dumps({"digest": digest, "own_libraries": own_libraries}))
        (building / _MARKER).chmod(0o644)
        os.sync()  # A crash must not leave a renamed folder with empty files.
        building.rename(final)
        return cls(path=final, digest=digest, own_libraries=own_libraries)


def _lay_out(target: Path) -> bool:
    """Make bin/python3 and its library; whether shared libraries had to be copied too."""
    executable = Path(os.path.realpath(sys.executable))
    (target / "bin").mkdir()
    (target / "lib" / _VERSION / "site-packages").mkdir(parents=True)
    for alias in ("python", "python3"):
        (target / "bin" / alias).symlink_to(_VERSION)
    if Path(sys.base_prefix).is_relative_to("/usr"):
        # Jobs see /usr anyway: a virtual environment on top of it is enough.
        (target / "bin" / _VERSION).symlink_to(executable)
        (target / "pyvenv.cfg").write_text(
            f"home = {executable.parent}\ninclude-system-site-packages = false\n"
        )
        return False
    _copy(executable, target / "bin" / _VERSION)
    library = Path(sysconfig.get_path("stdlib"))
    for entry in sorted(library.iterdir()):
        if entry.name not in _LEFT_OUT and not entry.name.startswith("config-"):
            _copy(entry, target / "lib" / _VERSION / entry.name)
    libraries = _own_libraries([executable, *(library / "lib-dynload").glob("*.so")])
    for found in libraries:
        _copy(found, target / "lib" / found.name)
    return bool(libraries)


def _own_libraries(binaries: Iterable[Path]) -> list[Path]:
    """Shared libraries from the interpreter's own prefix: libpython, or all of them under conda."""
    ldd = shutil.which("ldd")
    if ldd is None:
        return sorted((Path(sys.base_prefix) / "lib").glob("libpython*.so*"))
    listing = subprocess.run(
        [ldd, *map(str, binaries)], capture_output=True, text=True, check=False, timeout=60
    )
    found: dict[str, Path] = {}
    for line in listing.stdout.splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        path = rest.split(" (")[0]
        if arrow and path.startswith(f"{sys.base_prefix}/"):
            found[name] = Path(path)
    return [found[name] for name in sorted(found)]


def _copy(source: Path, target: Path) -> None:
    """Copy with times, so that byte code stays valid; links are followed, tests left out."""
    if source.is_dir():
        target.mkdir(exist_ok=True)
        for entry in sorted(source.iterdir()):
            if entry.name not in _LEFT_OUT and ".opt-" not in entry.name:
                _copy(entry, target / entry.name)
    elif source.is_file():
        shutil.copyfile(source, target)
        shutil.copystat(source, target)


def _open_to_all(root: Path) -> None:
    for _, folders, files, fd in os.fwalk(root):
        os.fchmod(fd, 0o755)
        for name in (*folders, *files):
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if info.st_mode & 0o170000 == 0o100000:
                os.chmod(name, 0o755 if info.st_mode & 0o100 else 0o644, dir_fd=fd)


def _check(root: Path, *, own_libraries: bool) -> None:
    env = {"LD_LIBRARY_PATH": str(root / "lib")} if own_libraries else {}
    command = [str(root / "bin" / "python3"), "-I", "-c", "import ctypes, hashlib, json, socket, zlib"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    if ran.returncode != 0:
        raise SandboxError(f"the copy of {sys.base_prefix} does not run: {ran.stderr.strip()[-300:]}")


def _key(extra: Mapping[str, Path]) -> str:
    """Names the content without reading it all: the interpreter by times, the extras by content."""
    digest = hashlib.sha256(f"{_FORMAT} {sys.version} {sys.base_prefix}".encode())
    library = Path(sysconfig.get_path("stdlib"))
    for path in (Path(os.path.realpath(sys.executable)), library, library / "os.py", library / "lib-dynload"):
        with contextlib.suppress(FileNotFoundError):
            info = path.stat()
            digest.update(f"{path} {info.st_size} {info.st_mtime_ns}".encode())
    for name, source in sorted(extra.items()):
        for path in _files(source):
            digest.update(f"\0{name}/{path.relative_to(source)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _files(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
        return
    if not source.is_dir():
        raise SandboxError(f"no such package for the jobs' Python: {source}")
    for folder, folders, files in os.walk(source):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and name != "__pycache__")
        yield from (Path(folder) / name for name in sorted(files))


def _content_digest(root: Path) -> str:
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            path = Path(folder) / name
            digest.update(f"\0{path.relative_to(root)}\0".encode())
            content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
            digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
