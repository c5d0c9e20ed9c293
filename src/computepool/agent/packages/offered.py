"""Environments that the owner offers: what is in each, and what a job must see to use it.

They belong to the owner and stay where they are: nothing is copied, nothing is hashed, no code of theirs runs here. Their
metadata may have been written by anybody, so what is read of it is bounded, and what is no plain version is left out.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from packaging.version import InvalidVersion, Version

from computepool.agent.packages.interpreters import PYTHON
from computepool.core.environment import Environment
from computepool.core.errors import BadRequest
from computepool.core.plaintext import is_plain
from computepool.protocol.jobs.requirements import canonicalize, satisfies
from computepool.protocol.nodes.software import PACKAGE_NAME_MAX, PACKAGE_VERSION_MAX, PACKAGES_MAX, EnvironmentModel

#: Where the sandbox has files of its own, so that an environment could not keep its path.
_TAKEN = ("/bin", "/dev", "/etc", "/job", "/lib", "/lib64", "/opt/packages", "/opt/python", "/proc", "/run", "/sbin",
          "/sys", "/opt/driver", "/opt/tools", "/usr")  # fmt: skip
#: The jobs' own root file system has these, and what the owner adds to it.
SYSTEM = Path("/usr")
_CONFIG, _CONFIG_BYTES = "pyvenv.cfg", 64 * 1024
#: Name and version are at the top of METADATA; a description may follow, of any length.
_METADATA_BYTES = 16 * 1024
_ENTRIES_MAX = 20_000  #: of a folder of packages
#: Links that are followed out of an environment, and files and folders looked at for them.
LINKS_MAX, _WALKED_MAX = 32, 400_000
_LIBRARY = re.compile(r"python(3\.[0-9]{1,2})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PLAIN = re.compile(r"[A-Za-z0-9.!+_-]+")
_CUDA_LOCAL = re.compile(r"cu([0-9]{2,3})")
_SUFFIXES = (".dist-info", ".egg-info")


@dataclass(frozen=True, kw_only=True)
class OfferedEnvironment:
    """`python`: None for a folder of packages, which the agent's own Python uses."""

    name: str
    path: Path
    minor: str
    python: Path | None
    site: tuple[Path, ...]
    base: Path | None = None  #: the installation that its Python belongs to, if it is not in the environment
    links: tuple[Path, ...] = ()  #: targets of its other links that leave it
    packages: Mapping[str, str] = field(default_factory=dict, repr=False)  #: versions by normalised name

    @cached_property
    def environment(self) -> Environment:
        return Environment.of(self.minor, self.packages)

    @property
    def cuda(self) -> str:
        return _cuda(self.packages)

    @property
    def mounts(self) -> dict[Path, str]:
        """Everything that a job must see besides its own root file system, at the same path."""
        base = () if self.base is None or self.base.is_relative_to(SYSTEM) else (self.base,)
        return {path: str(path) for path in (*base, *self.links, self.path)}

    def env(self, own: Mapping[str, str]) -> dict[str, str]:
        """Variables that its programs need. `own`: those of the agent's own Python."""
        if self.python is None:
            return {}
        found = {"PATH": f"{self.path}/bin:{own['PATH']}", "VIRTUAL_ENV": str(self.path)}
        if self.base is not None and not self.base.is_relative_to(SYSTEM):
            libraries = (f"{self.base}/lib", own.get("LD_LIBRARY_PATH"))
            found["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
        return found

    def model(self) -> EnvironmentModel:
        return EnvironmentModel(name=self.name, python=self.minor, cuda=self.cuda, packages=dict(self.packages))


@dataclass(frozen=True, slots=True)
class ReadyEnvironment:
    """An environment that works here. `site`: what the worker needs, for its Python."""

    environment: OfferedEnvironment
    site: Path
    programs: Path | None = None  #: shown in place of its `bin`

    @property
    def mounts(self) -> dict[Path, str]:
        found = self.environment.mounts
        if self.programs is not None:
            found[self.programs] = str(self.environment.path / "bin")
        return found


def read(name: str, path: Path) -> OfferedEnvironment:
    """The environment in this folder. Raises BadRequest if there is none that jobs could use."""
    check_name(name)
    folder = Path(os.path.abspath(path))
    if not folder.is_dir():
        raise BadRequest(f"{folder} is not a folder.")
    if ":" in str(folder) or not is_plain(str(folder)):
        raise BadRequest(f"{str(folder)!a} cannot be on PATH; rename it.")
    if any(folder == Path(taken) or folder.is_relative_to(taken) for taken in _TAKEN) or folder == Path("/"):
        raise BadRequest(
            f"{folder} cannot be shown to jobs: the sandbox has files of its own there. Move it, or copy it."
        )
    try:
        found = _read(name, folder)
    except OSError as error:
        raise BadRequest(f"{folder} cannot be read: {error.strerror}.") from error
    for needed in (*found.mounts, *found.site):
        _require_reachable(needed)
    return found


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise BadRequest(f"{name[:64]!a} is not a name for an environment: use letters, digits, dots and dashes.")


def _read(name: str, folder: Path) -> OfferedEnvironment:
    python = next((found for word in ("python3", "python") if (found := folder / "bin" / word).is_file()), None)
    if python is None:
        packages = _packages([folder])
        if not packages:
            raise BadRequest(
                f"{folder} has neither bin/python nor installed packages: it is no virtual environment, conda environment "
                "or folder of packages."
            )
        return OfferedEnvironment(
            name=name, path=folder, minor=PYTHON, python=None, site=(folder,), packages=packages, links=_links(folder)
        )
    libraries = [path for path in (folder / "lib").glob("python3.*") if _LIBRARY.fullmatch(path.name)]
    site = tuple(path / "site-packages" for path in sorted(libraries) if (path / "site-packages").is_dir())
    if len(site) != 1:
        raise BadRequest(f"{folder} has {len(site) or 'no'} folders lib/python3.*/site-packages; it needs exactly one.")
    matched = _LIBRARY.fullmatch(site[0].parent.name)
    assert matched is not None
    return OfferedEnvironment(
        name=name,
        path=folder,
        minor=matched[1],
        python=python,
        site=site,
        base=_base(folder, python, matched[1]),
        packages=_packages(site),
        links=_links(folder, beside=Path(os.path.realpath(python))),
    )


def _base(folder: Path, python: Path, minor: str) -> Path | None:
    """The installation behind a virtual environment, by its `home`; None if the environment is one itself."""
    real = Path(os.path.realpath(python))
    config = folder / _CONFIG
    if not config.is_file():
        if not real.is_relative_to(folder):
            raise BadRequest(f"{python} leads to {real}, and there is no {_CONFIG} that says so.")
        return None
    with config.open("rb") as file:
        text = file.read(_CONFIG_BYTES).decode(errors="replace")
    fields = dict(_config_fields(text))
    home = Path(fields.get("home", ""))
    if not home.is_absolute() or not (home / f"python{minor}").is_file():
        raise BadRequest(f"{config} names no Python {minor}: there is no {home / f'python{minor}'}.")
    # Links in `home` may lead to another installation, such as one of a version manager.
    base = Path(os.path.realpath(home / f"python{minor}")).parent.parent
    if base.is_relative_to(folder):
        return None
    if not (base / "lib" / f"python{minor}" / "os.py").is_file():
        raise BadRequest(f"{base}, which {config} names, is no installation of Python {minor}.")
    return base


def _config_fields(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, _, value = line.partition("=")
        yield name.strip().lower(), value.strip()


# ------------------------------------------------------------ packages


def _packages(site: Iterable[Path]) -> dict[str, str]:
    """Versions by normalised name, from the metadata of installed distributions; the first of each name."""
    found: dict[str, str] = {}
    for folder in site:
        for name, version in _distributions(folder):
            if len(found) < PACKAGES_MAX:
                found.setdefault(name, version)
    return found


def _distributions(folder: Path) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry, _ in zip(entries, range(_ENTRIES_MAX), strict=False))
    for entry in names:
        if entry.endswith(_SUFFIXES) and (found := _distribution(folder / entry)) is not None:
            yield found


def _distribution(folder: Path) -> tuple[str, str] | None:
    """Name and version as METADATA states them; None unless both are plain."""
    for file in ("METADATA", "PKG-INFO"):
        text = _read_start(folder / file)
        if text is None:
            continue
        fields: dict[str, str] = {}
        for line in text.splitlines():
            if not line.strip():
                break  # the description follows
            key, separator, value = line.partition(":")
            if separator and not key[:1].isspace():
                fields.setdefault(key.strip().lower(), value.strip())
        return _plain(fields.get("name", ""), fields.get("version", ""))
    return None


def _plain(name: str, version: str) -> tuple[str, str] | None:
    if not _PACKAGE.fullmatch(name) or len(name) > PACKAGE_NAME_MAX or not 0 < len(version) <= PACKAGE_VERSION_MAX:
        return None
    if not name[-1].isalnum() or not _PLAIN.fullmatch(version):
        return None
    try:
        Version(version)
    except (InvalidVersion, ValueError):
        return None
    return canonicalize(name), version


def _read_start(path: Path) -> str | None:
    """The beginning of a plain file; None if it is anything else, such as a pipe, which would never end."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return None
        return os.read(opened, _METADATA_BYTES).decode(errors="replace")
    except OSError:
        return None
    finally:
        os.close(opened)


def _cuda(packages: Mapping[str, str]) -> str:
    """The version of CUDA that torch, or else the runtime among the packages, was built for; empty if there is none."""
    local = packages.get("torch", "").partition("+")[2]
    if (found := _CUDA_LOCAL.fullmatch(local)) is not None:
        return f"{found[1][:-1]}.{found[1][-1]}"
    for name, version in sorted(packages.items(), reverse=True):
        if name.startswith("nvidia-cuda-runtime"):
            return ".".join(version.split(".")[:2]) if re.fullmatch(r"[0-9.]{1,16}", version) else ""
    return ""


# ------------------------------------------------------------ files


def _links(folder: Path, beside: Path | None = None) -> tuple[Path, ...]:
    """The targets of links that leave the folder, except into /usr and to its own Python (`beside`)."""
    found: dict[Path, None] = {}
    pending, walked = [folder], 0
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                walked += 1
                if walked > _WALKED_MAX:
                    raise BadRequest(f"{folder} has more than {_WALKED_MAX} files and folders.")
                if entry.is_symlink():
                    target = Path(os.path.realpath(entry.path))  # of a loop, the path itself
                    inside = target.is_relative_to(folder) or target.is_relative_to(SYSTEM)
                    if not inside and target != beside and target.exists():
                        found[target] = None
                elif entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))
                if len(found) > LINKS_MAX:
                    raise BadRequest(f"More than {LINKS_MAX} links in {folder} lead out of it; install without links.")
    return tuple(sorted(found))


def _require_reachable(path: Path) -> None:
    """Jobs of a root agent run as other users. Raises BadRequest if those could not read this."""
    if os.geteuid() != 0:
        return
    for part in (*reversed(path.parents), path):
        mode = os.stat(part).st_mode
        needed = 0o005 if stat.S_ISDIR(mode) and part == path else 0o001 if stat.S_ISDIR(mode) else 0o004
        if mode & needed != needed:
            raise BadRequest(
                f"Jobs cannot read {path}: they run as users of their own, and {part} is closed to them. Allow it with "
                f"chmod, or move the environment."
            )


def choose(
    offered: Iterable[OfferedEnvironment], dependencies: tuple[str, ...], pythons: frozenset[str]
) -> OfferedEnvironment | None:
    """The first that has all dependencies, with one of these minor versions of Python if any are named."""
    for found in offered:
        if (not pythons or found.minor in pythons) and satisfies(found.environment, dependencies):
            return found
    return None
