"""Dependencies of code: local modules, which are sent with it, and packages, required in the installed versions.

A name is only requested from a package index if it is installed here from an index: a package with the name of a local
or unknown module could be somebody else's, and hostile.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from computepool.core.errors import BadRequest
from computepool.sdk.code import imports, own_modules

#: Limits on the modules sent with one job. COMPUTEPOOL_MODULES_MAX_FILES and COMPUTEPOOL_MODULES_MAX_BYTES change them.
MODULE_FILES_MAX = 500
MODULE_BYTES_MAX = 16 * 1024 * 1024
_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules"})
_PRESENT = own_modules.PRESENT | {""}

Finder = Callable[[str], Path | None]


@dataclass(frozen=True, slots=True)
class ModuleFile:
    name: str  #: path on the node
    path: Path
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Hashable; equal as long as no file changes."""

    files: tuple[ModuleFile, ...] = ()
    packages: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Tells the user what is sent and installed; empty if nothing is."""
        parts = []
        if self.files:
            size = sum(file.size for file in self.files)
            parts.append(f"Sends {_list_words([file.name for file in self.files])} ({size:,} bytes).")
        if self.packages:
            parts.append(f"Installs {_list_words(self.packages)}.")
        return " ".join(parts)


NOTHING = Dependencies()


def of_script(source: str, folder: Path) -> Dependencies:
    """Dependencies of a Python script in this folder."""
    return _collect(imports.of_source(source), lambda name: _beside(folder, name))


def of_code(imported: Iterable[str], modules: Iterable[str] = ()) -> Dependencies:
    """Dependencies of functions: `imported` when they are called, and `modules` that their pickles refer to by name."""
    names = {*imported, *modules}
    if not {name.partition(".")[0] for name in names} - sys.stdlib_module_names - _PRESENT:
        return NOTHING
    found = _collect(imported, own_modules.find)
    foreign = [name for name in modules if not own_modules.is_own(sys.modules.get(name, sys))]
    return Dependencies(found.files, tuple(sorted({*found.packages, *_packages(foreign)})))


def module_beside(name: str, folder: Path) -> Path | None:
    """The local module or package of this name that code in this folder would import."""
    return _beside(folder, name) or own_modules.find(name)


def distribution_of(name: str) -> str | None:
    """The requirement for the installed distribution with this module, if it came from an index."""
    return next(iter(_packages([name])), None)


def _collect(imported: Iterable[str], find: Finder) -> Dependencies:
    """Includes what the local modules import in turn."""
    todo, seen = {*imported}, set[str]()
    files: dict[str, ModuleFile] = {}
    packages: set[str] = set()
    while todo:
        name = todo.pop()
        top = name.partition(".")[0]
        place = None if top in seen else find(top)
        if place is None:
            packages |= set() if top in seen else set(_packages([name]))
            continue
        seen.add(top)
        for file in _files(place):
            files[file.name] = file
            _check_size(files)
            if file.name.endswith(".py"):
                todo |= imports.of_source(file.path.read_text(encoding="utf-8", errors="replace"))
    return Dependencies(tuple(files[name] for name in sorted(files)), tuple(sorted(packages)))


def _beside(folder: Path, name: str) -> Path | None:
    """In the order of Python's import system: a package, a module, or a namespace package unless one is installed."""
    if name in sys.builtin_module_names or name in _PRESENT:
        return None
    if (folder / name / "__init__.py").is_file():
        return folder / name
    if (folder / f"{name}.py").is_file():
        return folder / f"{name}.py"
    if name in sys.stdlib_module_names or _packages([name]):
        return None
    return folder / name if next((folder / name).rglob("*.py"), None) is not None else None


def _files(place: Path) -> Iterator[ModuleFile]:
    """Only source files: other files may be keys or databases, and are sent only as explicit inputs."""
    if place.is_file():
        yield _module_file(place, place.name)
        return
    for root, folders, names in os.walk(place):
        folders[:] = sorted(each for each in folders if not _is_skipped(Path(root, each)))
        for name in sorted(names):
            path = Path(root, name)
            if name.endswith(".py") and not name.startswith(".") and _is_within(path, place):
                yield _module_file(path, f"{place.name}/{path.relative_to(place).as_posix()}")


def _is_skipped(folder: Path) -> bool:
    hidden = folder.name in _SKIPPED_FOLDERS or folder.name.startswith(".")
    return hidden or (folder / "pyvenv.cfg").exists()


def _is_within(path: Path, place: Path) -> bool:
    """Excludes symbolic links that lead out of the package."""
    return path.is_file() and path.resolve().is_relative_to(place.resolve())


def _module_file(path: Path, name: str) -> ModuleFile:
    status = path.stat()
    return ModuleFile(name, path, status.st_size, status.st_mtime_ns)


def _check_size(files: dict[str, ModuleFile]) -> None:
    count_max = _setting("COMPUTEPOOL_MODULES_MAX_FILES", MODULE_FILES_MAX)
    bytes_max = _setting("COMPUTEPOOL_MODULES_MAX_BYTES", MODULE_BYTES_MAX)
    size = sum(file.size for file in files.values())
    if len(files) <= count_max and size <= bytes_max:
        return
    largest = max(files.values(), key=lambda file: file.size)
    raise BadRequest(
        f"The modules that this code imports exceed {count_max} files or {bytes_max:,} bytes; the largest file is"
        f" {largest.path} ({largest.size:,} bytes). Move data out of the package, or pass autodetect=False"
        " (--no-autodetect) and send what is needed with inputs=."
    )


def _setting(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else default


def _packages(modules: Iterable[str]) -> tuple[str, ...]:
    names = {name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names | _PRESENT}
    return _requirements(frozenset(names), tuple(sys.path)) if names else ()


@lru_cache(maxsize=256)
def _requirements(modules: frozenset[str], path: tuple[str, ...]) -> tuple[str, ...]:
    """`path` is sys.path, as part of the cache key."""
    by_module = _distributions(path)
    found = {
        requirement
        for module in modules
        for name in _providers(module, by_module.get(module.partition(".")[0], []))
        if (requirement := _requirement(name)) is not None
    }
    return tuple(sorted(found))


@lru_cache(maxsize=4)
def _distributions(path: tuple[str, ...]) -> dict[str, list[str]]:
    """Slow: reads the metadata of everything that is installed."""
    from importlib import metadata

    return {module: sorted(set(names)) for module, names in metadata.packages_distributions().items()}


def _providers(module: str, names: list[str]) -> list[str]:
    """Of several distributions that share a namespace package, those that installed this module."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if len(names) <= 1 or file is None:
        return names[:1]
    here = os.path.realpath(file)
    return [name for name in names if here in map(os.path.realpath, map(str, _locate(name)))]


def _locate(name: str) -> Iterator[object]:
    from importlib import metadata

    distribution = metadata.distribution(name)
    return (distribution.locate_file(file) for file in distribution.files or [])


def _requirement(name: str) -> str | None:
    """The installed version. None if it was installed from a URL or a folder, which an index cannot provide."""
    from importlib import metadata

    from packaging.version import InvalidVersion, Version

    found = metadata.distribution(name)
    if found.read_text("direct_url.json") is not None:
        return None
    try:
        return f"{name}=={Version(found.version).public}"  # without a local part such as +cu121, which an index does not have
    except InvalidVersion:
        return None


def _list_words(names: Iterable[str], most: int = 8) -> str:
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
