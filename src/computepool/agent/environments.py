"""Folders of installed Python packages, made by uv from wheels only, one per set of requirements.

No code of a package runs while it is installed: that is what "wheels only" buys. Jobs get the folder read-only.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import platform
import shutil
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from computepool.agent.config import AgentLimits
from computepool.agent.endings import BadJob, StagingFailed
from computepool.agent.sandbox.scratch import remove_tree
from computepool.agent.specs import check_requirements

_log = logging.getLogger(__name__)

#: What uv says when nobody could install this, anywhere.
_HOPELESS = (
    "No solution found",
    "no matching distribution",
    "has no usable wheels",
    "was not found in the package registry",
    "Failed to parse",
    "not a valid",
)
_DOWNLOADS, _GONE = ".uv", ".gone-"
_KEPT_ENV = ("PATH", "HOME", "LANG", "TMPDIR")
_KEPT_PREFIXES = ("UV_", "SSL_", "HTTP", "http", "ALL_PROXY", "NO_PROXY", "no_proxy", "REQUESTS_CA", "PIP_")


class Environments:
    def __init__(self, folder: Path, *, uv: str | None, limits: AgentLimits) -> None:
        self._folder = folder
        self._uv = uv or find_uv()
        self._limits = limits
        self._locks: dict[str, asyncio.Lock] = {}
        self._in_use: Counter[str] = Counter()
        self._evicting = asyncio.Lock()
        self._removing: set[str] = set()  #: by a thread, also after who began it was cancelled
        self._downloads = (
            _DOWNLOADS  #: the folder of uv's own cache; another one once it has become too large
        )
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)

    async def acquire(self, requirements: tuple[str, ...]) -> Path | None:
        """The folder with these packages, kept until `release`; None where nothing is required."""
        wanted = check_requirements(requirements)
        if not wanted:
            return None
        key = _key(wanted)
        self._in_use[key] += 1
        try:
            return await self._get(key, wanted)
        except BaseException:
            self._in_use[key] -= 1
            raise

    def release(self, path: Path | None) -> None:
        if path is not None:
            self._in_use[path.name] -= 1

    async def _get(self, key: str, wanted: tuple[str, ...]) -> Path:
        path = self._folder / key
        async with self._locks.setdefault(key, asyncio.Lock()):
            if not path.is_dir():
                await self._install(path, wanted)
            with contextlib.suppress(OSError):
                os.utime(path)
        await self._make_room()
        return path

    async def _install(self, path: Path, wanted: tuple[str, ...]) -> None:
        if self._uv is None:
            raise StagingFailed("this node has no uv to install packages with")
        downloads = await self._downloads_with_room()
        building = self._folder / f".building-{uuid.uuid4().hex}"
        with self._used(building.name), self._used(downloads.name):
            try:
                await self._run_uv(building, wanted, downloads)
                building.chmod(0o755)
                # Another agent on this folder may have been quicker; its content is the same.
                with contextlib.suppress(OSError):
                    building.rename(path)
            finally:
                if building.exists():
                    await asyncio.to_thread(remove_tree, building)

    async def _downloads_with_room(self) -> Path:
        """Where uv keeps what it fetches. A full one is left to the installations that read it, and goes with the last."""
        name = self._downloads
        size = await asyncio.to_thread(_bytes_in, self._folder / name)
        if size > self._limits.environment_downloads_bytes and name == self._downloads:
            self._downloads = f"{_DOWNLOADS}-{uuid.uuid4().hex}"
            await self._make_room()
        return self._folder / self._downloads

    @contextlib.contextmanager
    def _used(self, name: str) -> Iterator[None]:
        self._in_use[name] += 1
        try:
            yield
        finally:
            self._in_use[name] -= 1

    async def _run_uv(self, target: Path, wanted: tuple[str, ...], downloads: Path) -> None:
        _log.info("installing %s", ", ".join(wanted))
        process = await asyncio.create_subprocess_exec(
            *(str(self._uv), "pip", "install", "--quiet", "--no-progress", "--target", str(target)),
            *(
                "--python",
                sys.executable,
                "--only-binary",
                ":all:",
                "--link-mode",
                "copy",
                "--compile-bytecode",
            ),
            *("-r", "-"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=self._env(downloads),
            cwd=self._folder,
        )
        try:
            async with asyncio.timeout(self._limits.environment_install_s):
                _, stderr = await process.communicate("\n".join(wanted).encode())
        except TimeoutError as error:
            raise StagingFailed("installing the packages took too long") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise _failure(stderr.decode(errors="replace"))

    def _env(self, downloads: Path) -> dict[str, str]:
        """The owner's proxy, index and certificates, and nothing that points at the agent's own packages."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT_ENV or name.startswith(_KEPT_PREFIXES)
        }
        return kept | {"UV_CACHE_DIR": str(downloads), "UV_PYTHON_DOWNLOADS": "never"}

    async def _make_room(self) -> None:
        """What goes is first given a name that nobody looks up, here where nobody can begin to use it meanwhile."""
        async with self._evicting:
            found = await asyncio.to_thread(self._listed)
            complete = [name for name in found if not name.startswith(".")]
            surplus = complete[: max(0, len(complete) - self._limits.environments_max)]
            # Besides those, what an earlier start or an installation that failed left, and old downloads.
            left = [name for name in found if name.startswith(".") and name != self._downloads]
            gone = []
            for name in (*surplus, *left):
                if not self._in_use[name] and name not in self._removing:
                    hidden = f"{_GONE}{uuid.uuid4().hex}"
                    with contextlib.suppress(OSError):
                        (self._folder / name).rename(self._folder / hidden)
                        gone.append(hidden)
            self._removing.update(gone)
        if gone:
            await asyncio.to_thread(self._remove, gone)

    def _remove(self, names: list[str]) -> None:
        for name in names:
            try:
                remove_tree(self._folder / name)
            except OSError as error:
                _log.warning("cannot remove %s: %s", self._folder / name, error)
            finally:
                self._removing.discard(name)

    def _listed(self) -> list[str]:
        """The folders, those first that were not used for the longest time."""
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_dir(follow_symlinks=False):
                        found.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
        return [name for _, name in sorted(found)]


def _bytes_in(folder: Path) -> int:
    """On the disk, while others write there; 0 where there is none."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(where, name)).st_blocks * 512
    return total


def find_uv() -> str | None:
    """Next to the interpreter first: the version that was installed with the agent."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.is_file() else shutil.which("uv")


def _key(wanted: tuple[str, ...]) -> str:
    where = [
        sys.version_info[:2],
        sys.implementation.cache_tag,
        sys.platform,
        platform.machine(),
        platform.libc_ver(),
    ]
    return hashlib.sha256(json.dumps([wanted, where]).encode()).hexdigest()[:32]


def _failure(stderr: str) -> Exception:
    text = stderr.strip()[-1500:]
    if any(sign in text for sign in _HOPELESS):
        return BadJob(f"the dependencies cannot be installed from wheels: {text}")
    return StagingFailed(f"the dependencies could not be installed here: {text}")
