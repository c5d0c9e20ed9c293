"""The environments that this node offers now: those of the owner's list that work in the jobs' sandbox.

Each is tried once at the start and after a change: its Python starts in the sandbox and loads what the worker needs. The
packages themselves are not imported.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from computepool.agent.execution.attempt_result import CannotStart
from computepool.agent.owner import environment_list
from computepool.agent.owner.environment_list import SavedEnvironment
from computepool.agent.packages import offered_copy
from computepool.agent.packages.builder import Build, Builder, TooMuch, take_tree
from computepool.agent.packages.cached_folders import finish_anyway
from computepool.agent.packages.interpreters import PYTHON
from computepool.agent.packages.offered import SYSTEM, OfferedEnvironment, ReadyEnvironment, choose
from computepool.agent.sandbox.base import Limits, SandboxError
from computepool.agent.sandbox.interior import atomic_folder
from computepool.agent.sandbox.runtime.runtime import INSIDE, Runtime
from computepool.agent.sandbox.runtime.tree import SITE
from computepool.agent.sandbox.scratch import remove_tree
from computepool.core.errors import ComputePoolError
from computepool.core.isolation import Level
from computepool.protocol.nodes.software import EnvironmentModel

_log = logging.getLogger(__name__)

#: Installs exact requirements into a folder.
Install = Callable[[str, Path], Awaitable[None]]

_SITE, _SCRIPT = "site", "make_site.py"
_SITE_BYTES = 64 * 1024 * 1024
_OUTPUT_CHARS = 300
#: Programs of an environment that are copied where its links to Python would mean another one inside.
_PROGRAM_BYTES, _PROGRAMS_MAX = 1024 * 1024, 2_000
#: Names in /usr/bin that lead to the agent's own Python inside the sandbox, whatever they are on this machine.
_OWN_NAMES = (SYSTEM / "bin/python", SYSTEM / "bin/python3")


class Offers:
    def __init__(self, data_dir: Path, cache_dir: Path, builder: Builder, *, runtime: Runtime, level: Level) -> None:
        self._data_dir = data_dir
        self._cache_dir = cache_dir
        self._builder = builder
        self._runtime = runtime
        self._level = level
        self._offers: tuple[ReadyEnvironment, ...] = ()
        self._refreshing = asyncio.Lock()
        self._unbuilt = asyncio.Event()
        self._unbuildable: dict[str, str] = {}  #: why lock files could not be installed, by name
        self.problems: dict[str, str] = {}  #: why environments of the owner's list are not offered, by name

    @property
    def models(self) -> list[EnvironmentModel]:
        return [offer.environment.model() for offer in self._offers]

    def find(self, dependencies: tuple[str, ...], pythons: frozenset[str]) -> ReadyEnvironment | None:
        """The first that has all of these packages, for one of these minor versions of Python if any are named."""
        found = choose((offer.environment for offer in self._offers), dependencies, pythons)
        return next((offer for offer in self._offers if offer.environment is found), None)

    async def run(self, install: Install, on_change: Callable[[], Awaitable[None]]) -> None:
        """Install the owner's lock files as they are added. A failure stays until the list is read again by the owner."""
        await asyncio.to_thread(self._sweep)
        while True:
            await self._unbuilt.wait()
            self._unbuilt.clear()
            for saved in self._load_list():
                if saved.lock and not saved.path.is_dir() and saved.name not in self._unbuildable:
                    try:
                        saved.path.parent.mkdir(mode=0o755, exist_ok=True)
                        await install(saved.lock, saved.path)
                    except (CannotStart, OSError) as error:
                        self._unbuildable[saved.name] = str(error)
                    await on_change()

    def _sweep(self) -> None:
        """Remove what was installed from lock files that the owner has removed."""
        kept = {saved.path.name for saved in self._load_list() if saved.lock}
        for path in (self._data_dir / environment_list.BUILT).glob("*"):
            if path.name not in kept:
                remove_tree(path)

    def _load_list(self) -> list[SavedEnvironment]:
        try:
            return environment_list.load(self._data_dir)
        except ComputePoolError as error:
            _log.warning("%s", error.detail)
            return []

    def retry(self) -> None:
        self._unbuildable.clear()

    async def refresh(self) -> bool:
        """Read the owner's list again; true if other environments are offered now."""
        async with self._refreshing:
            before, offers = self.models, []
            self.problems = {}
            try:
                readings = await asyncio.to_thread(environment_list.read_all, self._data_dir)
            except ComputePoolError as error:
                _log.warning("no environments are offered: %s", error.detail)
                readings = []
            for reading in readings:
                try:
                    if reading.found is None:
                        raise SandboxError(reading.problem)
                    offers.append(await self._prepare(reading.found))
                except (OSError, SandboxError, TooMuch) as error:
                    why = self._unbuildable.get(reading.saved.name) or str(error)
                    self.problems[reading.saved.name] = why
                    if reading.saved.lock and not reading.saved.path.is_dir():
                        self._unbuilt.set()
                    _log.warning("not offering the environment %s: %s", reading.saved.name, why)
            self._offers = tuple(offers)
            return self.models != before

    async def _prepare(self, found: OfferedEnvironment) -> ReadyEnvironment:
        own = self._runtime.path / SITE
        if found.python is None:
            return ReadyEnvironment(found, own)
        if self._level is not Level.PROCESS and found.base is not None and found.base.is_relative_to(SYSTEM):
            real = os.path.realpath(found.python)
            if not (self._runtime.root / real.lstrip("/")).is_file():
                raise SandboxError(f"the jobs' root file system does not have {real}; restart the node to add it")
        programs = None if self._level is Level.PROCESS else await asyncio.to_thread(self._programs, found)
        site = self._cache_dir / f"site-{found.minor}-{self._runtime.packages[:16]}"
        offer = ReadyEnvironment(found, own if found.minor == PYTHON else site, programs)
        await self._try(offer, site)
        return offer

    async def _try(self, offer: ReadyEnvironment, site: Path) -> None:
        """Let its Python compile what the worker needs, and load it. Raises SandboxError if that fails."""
        assert offer.environment.python is not None
        build = Build(
            argv=(offer.environment.python, "-I", _SCRIPT, self._runtime.path / SITE, _SITE, offer.environment.minor),
            limits=Limits(memory_mb=512, wall_s=60.0, disk_mb=_SITE_BYTES // (1024 * 1024)),
            env=offer.environment.env(self._runtime.env(INSIDE)),
            mounts=offer.mounts,
            files={_SCRIPT: Path(offered_copy.__file__).read_bytes()},
            label=f"environment {offer.environment.name}",
        )
        async with self._builder.run(build) as built:
            if not built.exit.ok:
                why = built.output.strip()[-_OUTPUT_CHARS:] or built.exit.detail
                raise SandboxError(f"its Python does not run in this node's sandbox: {why}")
            if offer.site == site and not site.is_dir():
                with atomic_folder(site) as target:
                    if target is not None:
                        taken = target / "taken"
                        take = asyncio.to_thread(take_tree, built.folder / _SITE, taken, bytes_max=_SITE_BYTES)
                        await finish_anyway(take)
                        for entry in list(taken.iterdir()):
                            entry.rename(target / entry.name)
                        taken.rmdir()

    def _programs(self, found: OfferedEnvironment) -> Path | None:
        """A copy of its programs with links to the right Python, if its own would lead to the agent's; else None."""
        assert found.python is not None
        if not _leads_to_own(found.python):
            return None
        folder = found.path / "bin"
        real = os.path.realpath(found.python)
        known = hashlib.sha256(f"{folder} {real} {os.stat(folder).st_mtime_ns}".encode()).hexdigest()[:16]
        final = self._cache_dir / f"programs-{known}"
        with atomic_folder(final) as target:
            if target is not None:
                copy_programs(folder, target, python=real)
        return final


def _leads_to_own(python: Path) -> bool:
    """Whether one of the links behind this name is a name that means the agent's own Python inside the sandbox."""
    for _ in range(40):  # as many as the kernel follows
        if python in _OWN_NAMES:
            return True
        if not python.is_symlink():
            return False
        python = Path(os.path.normpath(python.parent / os.readlink(python)))
    return False


def copy_programs(folder: Path, target: Path, *, python: str) -> None:
    with os.scandir(folder) as entries:
        for entry, _ in zip(entries, range(_PROGRAMS_MAX), strict=False):
            place = target / entry.name
            if os.path.realpath(entry.path) == python:
                place.symlink_to(python)
            elif entry.is_file() and entry.stat().st_size <= _PROGRAM_BYTES:
                shutil.copyfile(entry.path, place)
                place.chmod(0o755 if entry.stat().st_mode & 0o100 else 0o644)


def runtime_parts(data_dir: Path) -> list[str]:
    """What offered environments need of this machine's /usr, for the jobs' root file system."""
    parts: list[str] = []
    try:
        saved = environment_list.load(data_dir)
    except ComputePoolError:
        return []
    for known in saved:
        if known.base is not None and known.base.is_relative_to(SYSTEM):
            parts += _system_python(known.path, known.base)
    return sorted(set(parts))


def _system_python(folder: Path, base: Path) -> Sequence[str]:
    real = Path(os.path.realpath(folder / "bin" / "python3"))
    if not real.is_file() or not real.is_relative_to(SYSTEM):
        return ()
    library = base / "lib" / real.name
    return [str(real), *([str(library)] if library.is_dir() else [])]
