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
_KEPT_ENV = ("PATH", "HOME", "LANG", "TMPDIR")
_KEPT_PREFIXES = ("UV_", "SSL_", "HTTP", "http", "ALL_PROXY", "NO_PROXY", "no_proxy", "REQUESTS_CA", "PIP_")


class Environments:
    def __init__(self, folder: Path, *, uv: str | None, limits: AgentLimits) -> None:
        self._folder = folder
        self._uv = uv or find_uv()
        self._limits = limits
        self._locks: dict[str, asyncio.Lock] = {}
        self._in_use: Counter[str] = Counter()
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
            os.utime(path)
        await asyncio.to_thread(self._evict)
        return path

    async def _install(self, path: Path, wanted: tuple[str, ...]) -> None:
        if self._uv is None:
            raise StagingFailed("this node has no uv to install packages with")
        building = self._folder / f".building-{uuid.uuid4().hex}"
        try:
            await self._run_uv(building, wanted)
            building.chmod(0o755)
            with contextlib.suppress(
                OSError
            ):  # Another agent on this folder was quicker; its content is the same.
                building.rename(path)
        finally:
            if building.exists():
                await asyncio.to_thread(remove_tree, building)

    async def _run_uv(self, target: Path, wanted: tuple[str, ...]) -> None:
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
            env=self._env(),
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

    def _env(self) -> dict[str, str]:
        """The owner's proxy, index and certificates, and nothing that points at the agent's own packages."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT_ENV or name.startswith(_KEPT_PREFIXES)
        }
        return kept | {"UV_CACHE_DIR": str(self._folder / ".uv"), "UV_PYTHON_DOWNLOADS": "never"}

    def _evict(self) -> None:
        found = [path for path in self._folder.iterdir() if not path.name.startswith(".")]
        found.sort(key=lambda path: path.stat().st_mtime_ns)
        for path in found[: max(0, len(found) - self._limits.environments_max)]:
            if not self._in_use[path.name]:
                remove_tree(path)


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
