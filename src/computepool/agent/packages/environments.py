"""Folders of installed Python packages, made by uv from wheels only, one per set of requirements.

With wheels only, no code of a package runs while it is installed. The archives are still untrusted, so they are unpacked in
the jobs' sandbox (builder.py), and two installations share nothing. Jobs see the folder read-only.
"""

from __future__ import annotations

import asyncio
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
from collections.abc import Callable
from functools import partial
from pathlib import Path

from computepool.agent.config import AgentLimits
from computepool.agent.execution.attempt_result import BadJob, StagingFailed, describe_exit
from computepool.agent.execution.specs import check_requirements
from computepool.agent.packages.builder import Build, Builder, Built, TooMuch, take_tree
from computepool.agent.packages.cached_folders import CachedFolders, finish_anyway
from computepool.agent.packages.interpreters import PYTHON, Interpreter
from computepool.agent.packages.package_index import PackageIndex
from computepool.agent.sandbox.base import MIB, Limits, SandboxError, Status
from computepool.agent.sandbox.interior import atomic_folder
from computepool.agent.sandbox.scratch import remove_tree
from computepool.core.resources import PACKAGES
from computepool.protocol.jobs.requirements import dependencies_key

_log = logging.getLogger(__name__)

#: uv exits with 1 if requirements, index or wheels do not fit together, and with 2 for what it did not expect, such as
#: invalid wheels. Either may be caused by this machine or by the way to the index: then another node may succeed.
_REFUSED = 1
_BAD_ON_ANY_MACHINE = ("The wheel is invalid", "Couldn't parse requirement")
_NETWORK_ERRORS = (
    "error sending request",
    "HTTP status server error",
    "429 Too Many Requests",
    "401 Unauthorized",
    "403 Forbidden",
    "operation timed out",
    "response body",
)
#: Errors that the names in a wheel can cause on any machine.
_NAME_ERRORS = {
    errno.ENAMETOOLONG,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EINVAL,
    errno.ENOTEMPTY,
    errno.ELOOP,
}
_PACKAGES, _CACHE, _REQUIREMENTS, _CERTIFICATES = "packages", ".cache", "requirements.txt", "certificates.pem"
#: Where the installation finds uv, if the level has mounts.
_TOOLS = "/opt/tools"
#: The errors of a full file system: the work folder's own if it has one, else this machine's.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

#: Packages to name in a progress message.
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
        self.folders = CachedFolders(folder, count_max=limits.environments_max, bytes_max=limits.environments_bytes_max)
        self._installing = asyncio.Semaphore(limits.environment_installs_max)

    async def acquire(
        self, requirements: tuple[str, ...], interpreter: Interpreter | None = None, *, note: Note | None = None
    ) -> Path | None:
        """The folder with these packages, kept until it is released; None if nothing is required.

        `interpreter`: the Python that they are for; None for the agent's own. `note` receives a progress message.
        """
        dependencies = check_requirements(requirements)
        if not dependencies:
            return None
        key = _key(dependencies, PYTHON if interpreter is None else interpreter.minor)
        if note is not None and not self.folders.has(key):
            note(_installing_note(dependencies))
        made = partial(self._install, dependencies, interpreter)
        return await self.folders.acquire(key, made, label=_shorten(dependencies))

    async def build(self, lock: str, target: Path) -> None:
        """Install exact requirements of the owner's, for the agent's own Python, into a folder that is never evicted.

        Raises BadJob or StagingFailed.
        """
        building = target.with_name(f".building-{target.name}")
        await asyncio.to_thread(remove_tree, building)
        await self._install((lock,), None, building)
        building.rename(target)

    async def _install(self, dependencies: tuple[str, ...], interpreter: Interpreter | None, target: Path) -> int:
        async with self._installing:
            _log.info("installing %s", _shorten(dependencies))
            bytes_max = min(self._limits.environment_bytes_max, shutil.disk_usage(self._folder).free // 2)
            try:
                build = await self._plan(dependencies, bytes_max, interpreter)
                async with self._builder.run(build) as built:
                    if not built.exit.ok:
                        raise self._failure(built, bytes_max)
                    return await finish_anyway(asyncio.to_thread(_take, built.folder / _PACKAGES, target, bytes_max))
            except TooMuch:
                raise self._too_large(bytes_max) from None
            except (OSError, SandboxError) as error:
                raise StagingFailed(f"the dependencies could not be installed here: {error}") from error

    async def _plan(self, dependencies: tuple[str, ...], bytes_max: int, interpreter: Interpreter | None) -> Build:
        tool = await asyncio.to_thread(self._tool)
        hosts = await self._index.hosts()
        limits = Limits(
            memory_mb=self._limits.environment_memory_mb,
            cpus=self._limits.environment_cpus,
            pids=self._limits.environment_pids,
            wall_s=self._limits.environment_install_s,
            disk_mb=max(1, bytes_max // MIB),
        )
        certificates = await asyncio.to_thread(_certificates)
        env = {
            # Neither variables nor files of the owner's decide what is installed.
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
                *("--python", "python3" if interpreter is None else interpreter.path),
                *("--only-binary", ":all:", "--link-mode", "hardlink"),
                *("--compile-bytecode", "-r", _REQUIREMENTS),
            ),
            limits=limits,
            env=env,
            mounts={tool.parent: _TOOLS},
            interpreter=interpreter,
            files={
                _REQUIREMENTS: "\n".join(dependencies).encode(),
                **({_CERTIFICATES: certificates} if certificates else {}),
            },
            hosts=hosts,
            label="packages",
        )

    def _tool(self) -> Path:
        """A copy of uv that every user can read: a job's user cannot enter the owner's folders."""
        if self._uv is None:
            raise StagingFailed("this node has no uv to install packages with")
        info = os.stat(self._uv)
        tools = self._folder.parent / f"tools-{info.st_size:x}-{info.st_mtime_ns:x}"
        with atomic_folder(tools) as folder:
            if folder is not None:
                shutil.copyfile(self._uv, folder / "uv")
                (folder / "uv").chmod(0o755)
        return tools / "uv"

    def _failure(self, built: Built, bytes_max: int) -> Exception:
        ended = built.exit
        full = os.path.ismount(built.folder) and not _FULL.isdisjoint(_os_errors(built.output))
        if full or ended.status is Status.DISK_LIMIT or errno.EFBIG in _os_errors(built.output):
            return self._too_large(bytes_max)
        if ended.status is Status.OOM:
            most = self._limits.environment_memory_mb
            return BadJob(f"installing the dependencies takes more than {most} MB of memory")
        if ended.status is Status.TIMEOUT:
            return StagingFailed("installing the packages took too long")
        if ended.status is Status.EXIT:
            return _classify_failure(ended.code, built.output)
        return StagingFailed(f"the dependencies could not be installed here: {describe_exit(ended, built.output)}")

    def _too_large(self, bytes_max: int) -> Exception:
        if bytes_max < self._limits.environment_bytes_max:
            return StagingFailed(f"this node has no room for the dependencies: {bytes_max // MIB} MB")
        most = self._limits.environment_bytes_max // MIB
        return BadJob(f"the dependencies take more than {most} MB, the limit for a job")


def _take(made: Path, target: Path, bytes_max: int) -> int:
    made.mkdir(exist_ok=True)  # If all markers are false, there is nothing to install.
    return take_tree(made, target, bytes_max=bytes_max)


def _certificates() -> bytes:
    """This machine's CA certificates; if empty, uv uses its own."""
    found = ssl.get_default_verify_paths().cafile
    try:
        return Path(found).read_bytes() if found else b""
    except OSError:
        return b""


def _installing_note(dependencies: tuple[str, ...]) -> str:
    return f"Installing packages ({_shorten(dependencies)})"


def _shorten(dependencies: tuple[str, ...]) -> str:
    names = [found[0] for text in dependencies if (found := _NAME.match(text))]
    listed = ", ".join(names[:_NAMED_MAX])
    more = len(names) - _NAMED_MAX
    return f"{listed}{f' and {more} more' if more > 0 else ''}"


def find_uv() -> str | None:
    """The uv next to the interpreter, which was installed with the agent, else the one on PATH."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.is_file() else shutil.which("uv")


def _key(dependencies: tuple[str, ...], python: str) -> str:
    where = [
        [int(number) for number in python.split(".")],
        f"{sys.implementation.name}-{python.replace('.', '')}",
        sys.platform,
        platform.machine(),
        platform.libc_ver(),
    ]
    machine = hashlib.sha256(json.dumps(where).encode()).hexdigest()[:16]
    return f"{dependencies_key(dependencies).removeprefix(PACKAGES)}-{machine}"


def _classify_failure(code: int | None, stderr: str) -> Exception:
    """BadJob or StagingFailed. In doubt StagingFailed: then another owner's node tries it (core/jobs/lifecycle.py)."""
    text = stderr.strip()[-1500:]
    expected = bool(text) and (code == _REFUSED or any(sign in text for sign in _BAD_ON_ANY_MACHINE))
    if expected and not any(sign in text for sign in _NETWORK_ERRORS) and _os_errors(text) <= _NAME_ERRORS:
        return BadJob(f"the dependencies cannot be installed from wheels: {text}")
    return StagingFailed(f"the dependencies could not be installed here: {text}")


def _os_errors(text: str) -> set[int]:
    """The errno values in uv's output; 0 for one that is not a number."""
    found = re.findall(r"\(os error ([^)]{0,20})", text)
    return {int(number) if number.isascii() and number.isdigit() else 0 for number in found}
