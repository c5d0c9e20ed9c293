"""Finds out if code saves checkpoints or moves, by what it names: then nobody has to say so when it is submitted.

Looks at code and never runs it. What it misses says so itself when it runs, with the option to pass.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypedDict, TypeGuard

from computepool.sdk.code.source_lines import code_objects
from computepool.sdk.runtime import checkpointing

if TYPE_CHECKING:
    from computepool.sdk.classes.compute_job import ComputeJob

_SAVING = frozenset({"checkpoint", "restored", "stopping"})
_MOVING = "dispatch_to"
_PACKAGE = "computepool"
_FUNCTIONS_MAX = 500


class Declared(TypedDict, total=False):
    checkpoints: bool
    moves: bool


def of_function(function: Callable[..., Any]) -> Declared:
    """By its code, and that of the functions of its own module which it names."""
    names, texts, ours = set[str](), set[str](), False
    for each in _with_helpers(function):
        own = {name for code in code_objects(each.__code__) for name in code.co_names}
        texts |= {
            text for code in code_objects(each.__code__) for text in code.co_consts if isinstance(text, str)
        }
        found: list[Any] = [value for name in own if _is_ours(value := each.__globals__.get(name))]
        ours = ours or bool(found) or _PACKAGE in own
        names |= own | {value.__name__ for value in found}  # also under another name
    return _declare(names if ours else set(), "\n".join(texts))


def of_script(source: str) -> Declared:
    """Of any language; of Python also by what it imports and names."""
    names: set[str] = set()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(source, "script", "exec", dont_inherit=True)
        names = {name for each in code_objects(code) for name in each.co_names}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass  # another language, or a mistake that a node will show
    return _declare(names if _PACKAGE in names else set(), source)


def of_class(job_class: type[ComputeJob[Any]]) -> Declared:
    """It moves if it says what to do on arrival, and saves if a method of it asks for that."""
    from computepool.sdk.classes.compute_job import ComputeJob

    own = job_class.__mro__[: job_class.__mro__.index(ComputeJob)]
    methods = [method for cls in own for method in vars(cls).values() if isinstance(method, FunctionType)]
    names = {name for method in methods for code in code_objects(method.__code__) for name in code.co_names}
    found = _declare(names & {*_SAVING, _MOVING}, "")
    return {**found, "moves": True} if job_class.on_arrival is not ComputeJob.on_arrival else found


def is_job_class(thing: object) -> TypeGuard[type[ComputeJob[Any]]]:
    """Without loading what job classes need: where that is not loaded, there is none."""
    compute_job = sys.modules.get("computepool.sdk.classes.compute_job")
    return compute_job is not None and isinstance(thing, type) and issubclass(thing, compute_job.ComputeJob)


def _declare(names: set[str], text: str) -> Declared:
    found: Declared = {}
    if names & _SAVING or "::checkpoint " in text:
        found["checkpoints"] = True
    if _MOVING in names or "::move " in text:
        found["moves"] = True
    return found


def _with_helpers(function: Callable[..., Any]) -> Iterator[FunctionType]:
    todo: list[Any] = [function]
    seen: set[int] = set()
    while todo and len(seen) < _FUNCTIONS_MAX:
        found = _plain(todo.pop())
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        cells = [cell.cell_contents for cell in found.__closure__ or () if _is_filled(cell)]
        named = [
            found.__globals__.get(name) for code in code_objects(found.__code__) for name in code.co_names
        ]
        todo += [
            other
            for other in (*cells, *named)
            if isinstance(other, FunctionType) and other.__module__ == found.__module__
        ]


def _plain(function: Any) -> FunctionType | None:
    """What is called in the end, behind functools.partial, decorators, methods and objects that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    with_wrapped = inspect.unwrap(function) if callable(function) else function
    found = getattr(with_wrapped, "__func__", with_wrapped)
    if not isinstance(found, FunctionType):
        found = inspect.getattr_static(type(found), "__call__", None)
    return found if isinstance(found, FunctionType) else None


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # it is not set yet
        return False


def _is_ours(value: Any) -> bool:
    if isinstance(value, FunctionType):
        return value.__globals__ is vars(checkpointing)
    return inspect.ismodule(value) and value.__name__ == _PACKAGE


def saves(options: Mapping[str, Any]) -> bool:
    """What one item saves must not be found by another, so items of such a map travel alone."""
    return bool(options.get("checkpoints") or options.get("moves"))
