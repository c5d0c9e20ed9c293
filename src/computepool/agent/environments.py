"""Folders of installed Python packages, made by uv from wheels only, one per set of requirements.

No code of a package runs while it is installed: that is what "wheels only" buys. Unpacking a stranger's archive is still a
stranger's work: it is done in the sandbox of jobs (builder.py), and nothing is shared between two installations. Jobs get the
folder read-only.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import logging
import os
import platform
import re
import shutil
import ssl
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from computepool.agent.builder import Build, Builder, Built, TooMuch, take_tree
from computepool.agent.config import AgentLimits
from computepool.agent.endings import BadJob, StagingFailed, sentence_of
from computepool.agent.package_index import PackageIndex
from computepool.agent.sandbox.base import MIB, Limits, SandboxError, Status
from computepool.agent.sandbox.scratch import remove_tree
from computepool.agent.specs import check_requirements

_log = logging.getLogger(__name__)

#: uv exits with 1 for what the requirements, the index or a wheel say, and with 2 for what it did not expect, invalid wheels
#: among them. Either may have a cause in this machine or on the way to the index: then another node may fare better.
_REFUSED = 1
_INVALID_WHEEL = "The wheel is invalid"
_ON_THE_WAY = (
    "error sending request",
    "HTTP status server error",
    "429 Too Many Requests",
    "401 Unauthorized",
    "403 Forbidden",
    "operation timed out",
    "response body",
)
_OS_ERROR = "(os error "
#: What the names in a wheel can bring about on any machine.
_BY_NAMES = frozenset(
    {
        errno.ENAMETOOLONG,
        errno.EEXIST,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EINVAL,
        errno.ENOTEMPTY,
        errno.ELOOP,
    }
)
_GONE = ".gone-"
_PACKAGES, _CACHE, _WANTED, _CERTIFICATES = "packages", ".cache", "requirements.txt", "certificates.pem"
#: Where the installation finds uv, where the level has mounts.
_TOOLS = "/opt/tools"
#: What a folder of a size of its own says when it is full. Without one it is this machine's disk that says so.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


#: Names of packages that one sentence lists.
_NAMED_MAX = 5
_NAME = re.compile(r"[A-Za-z0-9._-]+")

Note = Callable[[str], object]


class Environments:
    def __init__(
        self, folder: Path, builder: Builder, index: PackageIndex, *, uv: str | None, limits: AgentLimits
    ) -> None:
        self._folder = folder
        self._builder = builder
        self._index = index
        self._uv = uv or find_uv()
        self._limits = limits
        self._locks: dict[str, asyncio.Lock] = {}
        self._installing = asyncio.Semaphore(limits.environment_installs_max)
        self._in_use: Counter[str] = Counter()
        self._sizes: dict[str, int] = {}
        self._evicting = asyncio.Lock()
        self._removing: set[str] = set()  #: by a thread, also after who began it was cancelled
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)

    async def acquire(self, requirements: tuple[str, ...], *, note: Note | None = None) -> Path | None:
        """The folder with these packages, kept until `release`; None where nothing is required.

        `note`: told in a sentence what takes its time.
        """
        wanted = check_requirements(requirements)
        if not wanted:
            return None
        key = _key(wanted)
        self._in_use[key] += 1
        try:
            if note is not None and not (self._folder / key).is_dir():
                note(_installing(wanted))
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
        building = self._folder / f".building-{uuid.uuid4().hex}"
        async with self._installing:
            with self._used(building.name):
                try:
                    await self._build(building, wanted)
                    # Another agent on this folder may have been quicker; its content is the same.
                    with contextlib.suppress(OSError):
                        building.rename(path)
                finally:
                    if building.exists():
                        await asyncio.to_thread(remove_tree, building)

    async def _build(self, target: Path, wanted: tuple[str, ...]) -> None:
        """Packages are a stranger's choice: uv unpacks them in the sandbox of jobs, and what it made is copied from there."""
        _log.info("installing %s", ", ".join(wanted))
        room = min(self._limits.environment_bytes_max, shutil.disk_usage(self._folder).free // 2)
        try:
            build = await self._plan(wanted, room)
            async with self._builder.run(build) as built:
                if not built.exit.ok:
                    raise self._failed(built, room)
                await _finish(asyncio.to_thread(self._take, built.folder / _PACKAGES, target, room))
        except TooMuch:
            raise self._too_large(room) from None
        except (OSError, SandboxError) as error:
            raise StagingFailed(f"the dependencies could not be installed here: {error}") from error

    def _take(self, made: Path, target: Path, room: int) -> None:
        made.mkdir(exist_ok=True)  # There may be nothing to install: all markers said no.
        self._sizes[target.name] = take_tree(made, target, bytes_max=room)

    async def _plan(self, wanted: tuple[str, ...], room: int) -> Build:
        tool = await asyncio.to_thread(self._tool)
        hosts = await self._index.hosts()
        limits = Limits(
            memory_mb=self._limits.environment_memory_mb,
            cpus=self._limits.environment_cpus,
            pids=self._limits.environment_pids,
            wall_s=self._limits.environment_install_s,
            disk_mb=max(1, room // MIB),
        )
        certificates = await asyncio.to_thread(_certificates)
        env = {
            # Nothing of the owner's: neither variables nor files decide what is installed.
            "UV_NO_CONFIG": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_KEYRING_PROVIDER": "disabled",
            "UV_DEFAULT_INDEX": await self._index.url(),
            "UV_CACHE_DIR": _CACHE,
            "NO_COLOR": "1",
            **dict.fromkeys(("UV_CONCURRENT_INSTALLS", "TOKIO_WORKER_THREADS", "RAYON_NUM_THREADS"), "4"),
            **({"SSL_CERT_FILE": _CERTIFICATES} if certificates else {}),
        }
        return Build(
            argv=(
                *(tool, "pip", "install", "--quiet", "--no-progress", "--target", _PACKAGES),
                *("--python", "python3", "--only-binary", ":all:", "--link-mode", "hardlink"),
                *("--compile-bytecode", "-r", _WANTED),
            ),
            limits=limits,
            env=env,
            mounts={tool.parent: _TOOLS},
            files={
                _WANTED: "\n".join(wanted).encode(),
                **({_CERTIFICATES: certificates} if certificates else {}),
            },
            hosts=hosts,
            label="packages",
        )

    def _tool(self) -> Path:
        """uv, at a place that every user can read: a job's user does not see the owner's folders."""
        if self._uv is None:
            raise StagingFailed("this node has no uv to install packages with")
        info = os.stat(self._uv)
        place = self._folder.parent / f"tools-{info.st_size:x}-{info.st_mtime_ns:x}" / "uv"
        if not place.exists():
            place.parent.mkdir(mode=0o755, exist_ok=True)
            copy = place.with_name(f".{uuid.uuid4().hex}")
            shutil.copyfile(self._uv, copy)
            copy.chmod(0o755)
            copy.rename(place)
        return place

    def _failed(self, built: Built, room: int) -> Exception:
        ended = built.exit
        full = os.path.ismount(built.folder) and not _FULL.isdisjoint(_os_errors(built.output))
        if full or ended.status is Status.DISK_LIMIT or errno.EFBIG in _os_errors(built.output):
            return self._too_large(room)
        if ended.status is Status.OOM:
            most = self._limits.environment_memory_mb
            return BadJob(f"installing the dependencies takes more than {most} MB of memory")
        if ended.status is Status.TIMEOUT:
            return StagingFailed("installing the packages took too long")
        if ended.status is Status.EXIT:
            return _failure(ended.code, built.output)
        return StagingFailed(
            f"the dependencies could not be installed here: {sentence_of(ended, built.output)}"
        )

    def _too_large(self, room: int) -> Exception:
        if room < self._limits.environment_bytes_max:
            return StagingFailed(f"this node has no room for the dependencies: {room // MIB} MB")
        most = self._limits.environment_bytes_max // MIB
        return BadJob(f"the dependencies take more than {most} MB, the most that a job may have installed")

    @contextlib.contextmanager
    def _used(self, name: str) -> Iterator[None]:
        self._in_use[name] += 1
        try:
            yield
        finally:
            self._in_use[name] -= 1

    async def clear(self) -> None:
        """Everything but what jobs and warm workers use now."""
        await self._make_room(everything=True)

    async def _make_room(self, *, everything: bool = False) -> None:
        """What goes is first given a name that nobody looks up, here where nobody can begin to use it meanwhile."""
        async with self._evicting:
            found = await asyncio.to_thread(self._listed)
            complete = [name for name in found if not name.startswith(".")]
            surplus = complete if everything else await asyncio.to_thread(self._surplus, complete)
            # Besides those, what an earlier start or an installation that failed left.
            left = [name for name in found if name.startswith(".")]
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

    def _surplus(self, names: list[str]) -> list[str]:
        """Of these, oldest first, what is beyond the number and the bytes that are kept."""
        sizes = {}
        for name in names:
            if name not in self._sizes:
                self._sizes[name] = _bytes_in(self._folder / name)
            sizes[name] = self._sizes[name]
        total, count, surplus = sum(sizes.values()), len(names), []
        for name in names[:-1]:  # the newest is what somebody waits for
            if count <= self._limits.environments_max and total <= self._limits.environments_bytes_max:
                break
            surplus.append(name)
            total, count = total - sizes[name], count - 1
        return surplus

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


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """To its end, also where nobody waits for it any more: a thread cannot be broken off."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _certificates() -> bytes:
    """Whom this machine trusts, as one file; empty where uv's own list has to do."""
    found = ssl.get_default_verify_paths().cafile
    try:
        return Path(found).read_bytes() if found else b""
    except OSError:
        return b""


def _installing(wanted: tuple[str, ...]) -> str:
    names = [found[0] for text in wanted if (found := _NAME.match(text))]
    listed = ", ".join(names[:_NAMED_MAX])
    more = len(names) - _NAMED_MAX
    return f"Installing packages ({listed}{f' and {more} more' if more > 0 else ''})"


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


def _failure(code: int | None, stderr: str) -> Exception:
    """Whose fault it is that uv failed. What cannot be told stays open: a second owner's node decides it (core/jobs.py)."""
    text = stderr.strip()[-1500:]
    expected = bool(text) and (code == _REFUSED or _INVALID_WHEEL in text)
    if expected and not any(sign in text for sign in _ON_THE_WAY) and _os_errors(text) <= _BY_NAMES:
        return BadJob(f"the dependencies cannot be installed from wheels: {text}")
    return StagingFailed(f"the dependencies could not be installed here: {text}")


def _os_errors(text: str) -> set[int]:
    """The numbers that uv's errors name; 0 for one that is no number."""
    found = (part.partition(")")[0] for part in text.split(_OS_ERROR)[1:])
    return {
        int(number) if number.isascii() and number.isdigit() and len(number) < 6 else 0 for number in found
    }
