"""Pythons other than the agent's own, for jobs that need one: fetched by uv if the owner allows it, and cached.

uv or the owner's mirror decides which versions exist, and each is verified by its digest; a job only names minor versions.
So uv itself runs outside the sandbox, unlike for packages. What it fetched runs only inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Collection
from functools import partial
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from computepool.agent.config import AgentConfig
from computepool.agent.execution.attempt_result import StagingFailed, describe_exit
from computepool.agent.packages import python_copy
from computepool.agent.packages.builder import Build, Builder, TooMuch, take_tree
from computepool.agent.packages.cached_folders import CachedFolders, bytes_in, finish_anyway
from computepool.agent.packages.environments import Note, find_uv
from computepool.agent.packages.interpreters import PYTHON, Interpreter
from computepool.agent.sandbox.base import MIB, Limits, SandboxError, Status
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.runtime.tree import LEFT_OUT, SITE, open_to_all
from computepool.agent.sandbox.scratch import remove_tree
from computepool.core.pythons import any_version, newest_last
from computepool.protocol.jobs.requirements import minor_versions
from computepool.protocol.nodes.profile import PYTHONS_MAX

_log = logging.getLogger(__name__)

#: The oldest that is fetched: the part of the SDK that a job imports needs it.
LEAST = (3, 11)
_RELEASE = re.compile(r"3\.\d{1,2}\.\d{1,3}")
_HOME, _DOWNLOAD, _SCRIPT = "python", "download", "make_copy.py"
_ASK_S = 20.0
#: Between two checks of a download's size.
_CHECK_S = 0.5
_ERROR_CHARS = 500
#: The owner's variables that configure network access.
_NETWORK_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir")


class _Download(BaseModel):
    """An entry of `uv python list`."""

    version: str
    implementation: str
    variant: str


class Pythons:
    """`offered`: the versions that the hub knows of. `runtime` has what the worker needs besides Python."""

    def __init__(self, config: AgentConfig, builder: Builder, *, offered: Collection[str], runtime: Runtime) -> None:
        self._builder = builder
        self._uv = config.uv or find_uv()
        self._mirror = config.python_mirror
        self._limits = limits = config.limits
        self._offered = frozenset(offered)
        self._runtime = runtime
        self.folders = CachedFolders(
            config.cache_dir / "pythons", count_max=limits.pythons_max, bytes_max=limits.pythons_bytes_max
        )

    async def acquire(self, versions: str, *, note: Note | None = None) -> Interpreter | None:
        """The newest offered of these versions, kept until its folder is released; None for "", the agent's own Python."""
        if not versions:
            return None
        allowed = minor_versions(versions)
        found = newest_last(self._offered & allowed)
        if not found:
            raise StagingFailed(f"this node has Python {PYTHON} and does not fetch Python {any_version(allowed)}")
        minor = found[-1]
        # Includes the packages: another version of the agent may add other modules.
        key = f"{minor}-{self._runtime.packages[:16]}"
        if note is not None and not self.folders.has(key):
            note(f"Fetching Python {minor}")
        folder = await self.folders.acquire(key, partial(self._fetch, minor))
        return Interpreter(minor, folder / _HOME)

    async def _fetch(self, minor: str, building: Path) -> int:
        _log.info("fetching Python %s", minor)
        bytes_max = min(self._limits.python_bytes_max, shutil.disk_usage(self.folders.folder).free // 2)
        download = building / _DOWNLOAD
        download.mkdir(mode=0o755, parents=True)
        building.chmod(0o755)  # Whatever the umask: jobs of a root agent have other uids.
        try:
            await self._download(minor, download, bytes_max)
            size = await self._copy(Interpreter(minor, _find_installed(download, minor)), building / _HOME, bytes_max)
        except (TooMuch, OSError, SandboxError) as error:
            raise _failure(minor, str(error)) from error
        await finish_anyway(asyncio.to_thread(remove_tree, download))
        return size

    async def _download(self, minor: str, folder: Path, bytes_max: int) -> None:
        if self._uv is None:
            raise _failure(minor, "this node has no uv")
        process = await asyncio.create_subprocess_exec(
            *(self._uv, "python", "install", "--no-bin", "--no-progress", minor),
            env={
                **_environment(self._mirror),
                "UV_PYTHON_INSTALL_DIR": str(folder),
                "HOME": str(folder),
                "TMPDIR": str(folder),
            },
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        ended = asyncio.ensure_future(process.communicate())
        try:
            async with asyncio.timeout(self._limits.python_fetch_s):
                while not ended.done():
                    await asyncio.wait([ended], timeout=_CHECK_S)
                    if await asyncio.to_thread(bytes_in, folder) > bytes_max:
                        raise TooMuch(f"it is larger than {bytes_max // MIB} MB")
        except TimeoutError:
            raise _failure(minor, f"it took longer than {self._limits.python_fetch_s:g} s") from None
        finally:
            if not ended.done():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            await asyncio.wait([ended])
        if process.returncode != 0:
            raise _failure(minor, _sentence(ended.result()[1]))

    async def _copy(self, fetched: Interpreter, target: Path, bytes_max: int) -> int:
        """Let the fetched Python copy itself in the jobs' sandbox. Jobs get that copy, of plain files."""
        await asyncio.to_thread(open_to_all, fetched.home)
        build = Build(
            argv=(fetched.path, "-I", _SCRIPT, self._runtime.path / SITE, _HOME, *sorted(LEFT_OUT)),
            limits=Limits(
                memory_mb=self._limits.python_fit_memory_mb,
                wall_s=self._limits.python_fit_s,
                disk_mb=max(1, bytes_max // MIB),
            ),
            files={_SCRIPT: Path(python_copy.__file__).read_bytes()},
            interpreter=fetched,
            label=f"Python {fetched.minor}",
        )
        async with self._builder.run(build) as built:
            if not built.exit.ok:
                output = built.output.strip()[-_ERROR_CHARS:]
                why = output if built.exit.status is Status.EXIT else describe_exit(built.exit, output)
                raise _failure(fetched.minor, f"it does not run in this node's sandbox: {why}")
            made = built.folder / _HOME
            size = await finish_anyway(asyncio.to_thread(take_tree, made, target, bytes_max=bytes_max))
        for alias in ("python", "python3"):
            (target / "bin" / alias).symlink_to(fetched.path.name)
        return size


def fetchable(config: AgentConfig) -> list[str]:
    """The minor versions that uv can fetch besides the agent's own; empty if the owner does not allow it."""
    if not config.fetch_python:
        return []
    try:
        reply = subprocess.run(
            [config.uv or find_uv() or "uv", "python", "list", "--only-downloads", "--output-format", "json"],
            capture_output=True,
            timeout=_ASK_S,
            env={**_environment(config.python_mirror), "HOME": str(config.cache_dir)},
            check=True,
        )
        listed = TypeAdapter(list[_Download]).validate_json(reply.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        problem = _sentence(getattr(error, "stderr", None) or b"") or str(error)
        _log.warning("jobs get only Python %s: uv cannot list others: %s", PYTHON, problem)
        return []
    releases = {
        found.version.rpartition(".")[0]
        for found in listed
        if (found.implementation, found.variant) == ("cpython", "default") and _RELEASE.fullmatch(found.version)
    }
    newest = [minor for minor in sorted(releases, key=_numbers) if _numbers(minor) >= LEAST and minor != PYTHON]
    return newest[-PYTHONS_MAX:]


def _numbers(minor: str) -> tuple[int, ...]:
    return tuple(map(int, minor.split(".")))


def _environment(mirror: str) -> dict[str, str]:
    """uv's variables. Of the owner's environment only the settings of proxies and certificates are passed on."""
    network = {name: value for name, value in os.environ.items() if name.lower() in _NETWORK_VARIABLES}
    source = "UV_PYTHON_DOWNLOADS_JSON_URL" if mirror.endswith(".json") else "UV_PYTHON_INSTALL_MIRROR"
    return {
        **network,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "NO_COLOR": "1",
        "UV_NO_CONFIG": "1",
        "UV_NO_CACHE": "1",
        **({source: mirror} if mirror else {}),
    }


def _find_installed(folder: Path, minor: str) -> Path:
    """The folder of the Python that uv installed; links and other files of uv's lie beside it."""
    for path in sorted(folder.iterdir()):
        if not path.is_symlink() and (path / "bin" / f"python{minor}").is_file():
            return path
    raise _failure(minor, "uv did not install it")


def _failure(minor: str, why: str) -> StagingFailed:
    return StagingFailed(f"Python {minor} could not be fetched here: {why}")


def _sentence(stderr: bytes) -> str:
    """uv's error message, without the output before it."""
    text = stderr.decode(errors="replace")
    return " ".join(text[max(0, text.find("error:")) :].split())[:_ERROR_CHARS]
