"""Builds: programs of the agent that prepare something for a job, such as its packages, in the jobs' sandbox.

Their input is untrusted, so they see nothing of the owner's but what is mounted. A build has a work folder, network access
and limits of its own; the caller takes the result while the folder exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import stat
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from computepool.agent.execution.job_environment import JobEnvironment
from computepool.agent.execution.staging import place_bytes
from computepool.agent.network.egress import Egress, EgressProxy
from computepool.agent.packages.interpreters import Interpreter
from computepool.agent.sandbox.base import Exit, Limits, SandboxPolicy
from computepool.agent.storage.folders import WorkFolders
from computepool.core.isolation import Level
from computepool.core.network import Target

_OUTPUT_MAX = 64 * 1024
_COPY_CHUNK = 16 * 1024 * 1024
_ENTRY_BYTES = 4096  #: the least that a file or a folder counts: an empty one takes space on the disk, too
_DEPTH_MAX = 100  #: of folders in the result; the walk holds one descriptor for each


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    argv: Sequence[str | Path]  #: a Path is on the host, at or below one of the mounts
    limits: Limits
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[Path, str] = field(default_factory=dict)  #: read-only, as in SandboxPolicy
    files: Mapping[str, bytes] = field(default_factory=dict)  #: in the work folder from the start
    hosts: Sequence[Target] = ()  #: that it may reach; the owner trusts them, whatever their addresses
    interpreter: Interpreter | None = None  #: the Python that it runs or uses; None: the agent's own
    label: str = "a build"


@dataclass(frozen=True, slots=True)
class Built:
    exit: Exit
    folder: Path
    output: str  #: the end of its output


class Builder:
    def __init__(self, job_environment: JobEnvironment, folders: WorkFolders, egress: Egress) -> None:
        self._job_environment = job_environment
        self._folders = folders
        self._egress = egress

    @contextlib.asynccontextmanager
    async def run(self, build: Build) -> AsyncIterator[Built]:
        """Run a build; its work folder exists inside the block. Raises SandboxError if it cannot start."""
        folder = self._folders.make("build", build.limits.disk_mb)
        proxy: EgressProxy | None = None
        try:
            for name, content in build.files.items():
                place_bytes(content, folder, name=name)
            # At level `process` it has the host's own network, as jobs do there.
            if build.hosts and self._job_environment.sandbox.level is not Level.PROCESS:
                proxy = await self._egress.open(build.hosts, label=build.label, trusted=True)
            ended, output = await self._run_in(folder, build, proxy)
            yield Built(ended, folder, output)
        finally:
            if proxy is not None:
                proxy.close()
            self._folders.remove(folder)

    async def _run_in(self, folder: Path, build: Build, proxy: EgressProxy | None) -> tuple[Exit, str]:
        policy = self._policy(folder, build, proxy)
        command = self._job_environment.command(build.argv, workdir=folder, policy=policy, proxy=proxy)
        with _Tail() as tail:
            process = self._job_environment.sandbox.spawn(
                command, workdir=folder, limits=build.limits, policy=policy, stdout=tail.fd, stderr=tail.fd
            )
            tail.follow()
            try:
                return await process.finish(), tail.text()
            finally:
                process.close()

    def _policy(self, folder: Path, build: Build, proxy: EgressProxy | None) -> SandboxPolicy:
        # Even loopback goes through the proxy: the owner may have named this machine.
        direct = {} if proxy is None else {"no_proxy": "", "NO_PROXY": ""}
        env = {**direct, **build.env}
        plain = self._job_environment.policy(
            folder, limits=build.limits, env=env, interpreter=build.interpreter, proxy=proxy, saves=False
        )
        return dataclasses.replace(plain, mounts={**plain.mounts, **build.mounts})


class _Tail:
    """Keeps the end of a program's output, but reads all of it: otherwise the program would block."""

    def __init__(self) -> None:
        self._reader, self.fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reader, False)
        os.fchmod(self.fd, 0o622)  # Otherwise another user could not open /dev/stderr.
        self._read = b""
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> _Tail:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_writer()
        self._loop.remove_reader(self._reader)
        os.close(self._reader)

    def follow(self) -> None:
        self._close_writer()
        self._loop.add_reader(self._reader, self._take)

    def text(self) -> str:
        while self._take():
            pass
        return self._read.decode(errors="replace")

    def _take(self) -> bool:
        try:
            data = os.read(self._reader, _OUTPUT_MAX)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._reader)
        self._read = (self._read + data)[-_OUTPUT_MAX:]
        return bool(data)

    def _close_writer(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class TooMuch(Exception):
    """The result of a build exceeds its limits."""


def take_tree(source: Path, target: Path, *, bytes_max: int, links: bool = False) -> int:
    """Copy a build's result to where jobs read it; returns its size. `target` must not exist.

    Copies only plain files and folders, with the agent's owner and modes, and follows no links. Keeps times, which Python
    compares with those in compiled files. `links`: also copies symbolic links, as they are, and keeps hard links together.
    """
    taken = 0
    copied: dict[int, Path] = {}  #: by inode: files that have several names
    for path, folders, files, folder in os.fwalk(source, follow_symlinks=False):
        below = Path(path).relative_to(source)
        if len(below.parts) > _DEPTH_MAX:
            raise TooMuch(f"folders are deeper than {_DEPTH_MAX}")
        taken = _add_size(taken, 0, bytes_max)
        place = target / below
        place.mkdir(mode=0o755)
        for name in (*folders, *files) if links else ():
            try:
                aim = os.readlink(name, dir_fd=folder)
            except OSError:
                continue  # Not a link.
            taken = _add_size(taken, 0, bytes_max)
            (place / name).symlink_to(aim)
        for name in files:
            try:
                opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            except OSError:
                continue  # A link.
            try:
                info = os.fstat(opened)
                if links and info.st_nlink > 1 and info.st_ino in copied:
                    os.link(copied[info.st_ino], place / name)
                elif stat.S_ISREG(info.st_mode):
                    taken = _add_size(taken, info.st_size, bytes_max)
                    _copy(opened, place / name, info)
                    if links and info.st_nlink > 1:
                        copied[info.st_ino] = place / name
            finally:
                os.close(opened)
    return taken


def _add_size(taken: int, size: int, bytes_max: int) -> int:
    taken += max(size, _ENTRY_BYTES)
    if taken > bytes_max:
        raise TooMuch(f"more than {bytes_max} bytes")
    return taken


def _copy(opened: int, path: Path, info: os.stat_result) -> None:
    with path.open("xb") as target:
        left = info.st_size
        while left > 0 and (copied := os.sendfile(target.fileno(), opened, None, min(left, _COPY_CHUNK))):
            left -= copied
        os.fchmod(target.fileno(), 0o755 if info.st_mode & 0o100 else 0o644)
        os.utime(target.fileno(), ns=(info.st_mtime_ns, info.st_mtime_ns))
