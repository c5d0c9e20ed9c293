"""The submitter's own modules, as opposed to those of Python, installed packages, and ComputePool.

A module is own if it is next to the script, in an editable project, or elsewhere on `sys.path`, unless an installer put it
there: into one of Python's folders, or into a folder with a `*.dist-info` that lists it (an installer's `--target`).
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from functools import lru_cache
from pathlib import Path

#: Never sent: a node has these, or they are the main program.
PRESENT = frozenset({"computepool", "cloudpickle", "__main__", "__mp_main__"})
_INSTALLERS_FOLDERS = ("site-packages", "dist-packages")
_scanned: tuple[tuple[int, str, int], list[types.ModuleType]] = ((0, "", 0), [])


def loaded_modules() -> list[types.ModuleType]:
    global _scanned  # noqa: PLW0603 - a cache: the scan takes a millisecond
    newest = next(reversed(sys.modules))
    state = len(sys.modules), newest, id(sys.modules.get(newest))
    if _scanned[0] != state:
        found = [
            module
            for name, module in list(sys.modules.items())
            if getattr(module, "__name__", None) == name and is_own(module)
        ]
        _scanned = (state, found)
    return [module for module in _scanned[1] if sys.modules.get(module.__name__) is module]


def is_own(module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and _is_own_file(module.__name__, file)


def is_installed(thing: object) -> bool:
    """Whether the module of a function or class is installed."""
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    return module is not None and module.__name__ != "__main__" and not is_own(module)


def find(name: str) -> Path | None:
    """The file of an own module, or the folder of an own package, with this name. Imports nothing."""
    if not name or name in PRESENT or name in sys.stdlib_module_names:
        return None
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):  # a module without a spec, or a broken finder
        return None
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ())
    file = spec.origin or (os.path.join(places[0], "__init__.py") if places else "")
    if not _is_own_file(name, file):
        return None
    return Path(file).parent if places else Path(file)


def _is_own_file(name: str, file: str) -> bool:
    parts = name.split(".")
    if parts[0] in PRESENT or not file.endswith(".py") or file.startswith(_installed_folders()):
        return False
    up = len(parts) + (os.path.basename(file) == "__init__.py")
    root = file
    for _ in range(up):
        root = os.path.dirname(root)
    return os.path.basename(root) not in _INSTALLERS_FOLDERS and parts[0] not in _installed_names(root)


@lru_cache(maxsize=1024)
def _installed_names(folder: str) -> frozenset[str]:
    """Modules and packages installed into this folder."""
    from importlib import metadata

    names: set[str] = set()
    for record in Path(folder or ".").glob("*.dist-info"):
        files = metadata.Distribution.at(record).files or []
        names |= {file.parts[0].removesuffix(".py") for file in files}
    return frozenset(names)


@lru_cache(maxsize=1)
def _installed_folders() -> tuple[str, ...]:
    import site
    import sysconfig

    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {site.getusersitepackages(), *site.getsitepackages()}
    return tuple(path.rstrip(os.sep) + os.sep for path in paths if path)
