"""Functions and arguments as bytes that any node can load: pickled by value, unless the node has the module.

A node has the standard library and the job's `dependencies`, so everything else (the submitter's own modules, including
editable installs) must be sent with the function.
"""

from __future__ import annotations

import pickle
import re
import sys
import threading
import types
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from computepool.core.errors import BadRequest
from computepool.sdk.code import own_modules
from computepool.sdk.code.source_lines import cell_content, names_in

FUNCTIONS_CACHED_MAX = 128
#: Pickles of code can only be loaded by the same Python version.
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})
_MISSING = object()
lock = threading.RLock()  #: held while pickling


def pickle_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Plain values use the C pickler, which is ten times as fast; they need no modules."""
    if all(type(value) in _PLAIN for value in args) and all(type(value) in _PLAIN for value in kwargs.values()):
        return pickle.dumps((args, kwargs), protocol=pickle.HIGHEST_PROTOCOL)
    from computepool.sdk.code.pickler import by_value

    return by_value((args, kwargs), what="the arguments", takes_futures=True)


def uses(arguments: bytes) -> tuple[str, ...]:
    """The jobs whose results are among these pickled arguments."""
    return arguments.uses if isinstance(arguments, Pickled) else ()


class FunctionCache:
    """Pickles of functions, reused as long as everything that the function captured is provably unchanged."""

    def __init__(self) -> None:
        self._entries: OrderedDict[int, _CachedPickle] = OrderedDict()

    def pickle(self, function: Callable[..., Any]) -> Pickled:
        with lock:
            entry = self._entries.get(id(function))
            if entry is not None and entry.function is function and entry.is_unchanged():
                return entry.data
            data = pickle_function(function)
            captured = _captured_values(function, seen=set())
            if captured is not None:
                self._entries[id(function)] = _CachedPickle(function=function, data=data, captured=captured)
                while len(self._entries) > FUNCTIONS_CACHED_MAX:
                    self._entries.popitem(last=False)
            return data


def pickle_function(function: Callable[..., Any]) -> Pickled:
    if not callable(function):
        raise BadRequest(f"{function!r} is not callable; pass a function and its arguments.")
    from computepool.sdk.code.pickler import by_value

    return by_value(function, what=f"the function {getattr(function, '__qualname__', function)}")


def pickle_job_class(run: Callable[..., Any], classes: Iterable[type], *, dependencies: Iterable[str]) -> bytes:
    """Pickle a job class by value with its whole package, even an installed one, unless `dependencies` provides it."""
    from importlib import metadata

    present = {_plain_name(re.split(r"[^A-Za-z0-9._-]", needed.strip(), maxsplit=1)[0]) for needed in dependencies}
    modules = {cls.__module__.partition(".")[0] for whole in classes for cls in whole.__mro__}
    own = sorted(modules - sys.stdlib_module_names - {"computepool", "__main__"})
    # Slow: it reads the metadata of everything that is installed.
    packages = metadata.packages_distributions() if own and present else {}
    absent = [
        module
        for name in own
        if (module := sys.modules.get(name)) is not None and not set(map(_plain_name, packages.get(name, []))) & present
    ]
    from computepool.sdk.code.pickler import by_value

    return by_value(run, what="the job class", modules=absent)


def _plain_name(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedPickle:
    function: Callable[..., Any]  #: kept alive, so that its id() is not reused
    data: Pickled
    captured: list[tuple[Callable[[], Any], Any]]  #: functions that read a captured value, and the value pickled

    def is_unchanged(self) -> bool:
        return all(read() is value for read, value in self.captured)


def _captured_values(function: Any, *, seen: set[int]) -> list[tuple[Callable[[], Any], Any]] | None:
    """The values that the function's pickle depends on; None if one of them could change undetected."""
    if not isinstance(function, types.FunctionType):
        known = isinstance(function, types.BuiltinFunctionType | type) and own_modules.is_installed(function)
        return [] if known else None
    if id(function) in seen or own_modules.is_installed(function):
        return []
    seen.add(id(function))
    reads: list[tuple[Callable[[], Any], Any]] = [
        (lambda: function.__code__, function.__code__),
        (lambda: function.__defaults__, function.__defaults__),
        (lambda: function.__kwdefaults__, function.__kwdefaults__),
    ]
    if function.__kwdefaults__ or function.__dict__ or not _stable(function.__defaults__ or ()):
        return None
    for read in _variables(function):
        value = read()
        if value is _MISSING or _stable(value):
            reads.append((read, value))
            continue
        inner = _captured_values(value, seen=seen)
        if inner is None:
            return None
        reads += [(read, value), *inner]
    return reads


def _variables(function: types.FunctionType) -> Iterator[Callable[[], Any]]:
    """A reader for each closure cell and each global that the code names."""
    for cell in function.__closure__ or ():
        yield lambda cell=cell: cell_content(cell, _MISSING)  # type: ignore[misc]
    for name in names_in(function.__code__):
        yield lambda name=name: function.__globals__.get(name, _MISSING)  # type: ignore[misc]


def _stable(value: Any) -> bool:
    """Whether the object is immutable."""
    if type(value) is tuple:
        return all(map(_stable, value))
    return type(value) in _PLAIN or (isinstance(value, types.ModuleType) and not own_modules.is_own(value))


class Pickled(bytes):
    """A pickle, and the modules needed to load it and to call its functions."""

    modules: frozenset[str] = frozenset()  #: referred to by name
    imports: frozenset[str] = frozenset()  #: imported by its functions when they are called
    uses: tuple[str, ...] = ()  #: jobs whose futures are in it
