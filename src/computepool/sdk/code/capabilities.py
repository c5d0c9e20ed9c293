"""Detects whether code saves checkpoints or moves, by the names it uses, so that users need not declare it.

Inspects code without running it. Code that is not recognised fails at run time with a message that names the option.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypedDict, TypeGuard

from computepool.sdk.code.source_lines import cell_content, code_objects, names_in
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
    """By the code of the function, and of the functions of its module that it uses."""
    names, texts, ours = set[str](), set[str](), False
    for each in _with_helpers(function):
        own = names_in(each.__code__)
        texts |= {text for code in code_objects(each.__code__) for text in code.co_consts if isinstance(text, str)}
        found: list[Any] = [value for name in own if _is_ours(value := each.__globals__.get(name))]
        ours = ours or bool(found) or _PACKAGE in own
        names |= own | {value.__name__ for value in found}  # finds renamed imports, too
    return _declare(names if ours else set(), "\n".join(texts))


def of_script(source: str) -> Declared:
    """By markers in the text, in any language; for Python also by the names it uses."""
    names: set[str] = set()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(source, "script", "exec", dont_inherit=True)
        names = names_in(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass  # another language, or an error that the node will report
    return _declare(names if _PACKAGE in names else set(), source)


def of_class(job_class: type[ComputeJob[Any]]) -> Declared:
    """It moves if it defines `on_arrival`, and saves if one of its methods saves."""
    from computepool.sdk.classes.compute_job import ComputeJob

    own = job_class.__mro__[: job_class.__mro__.index(ComputeJob)]
    methods = [method for cls in own for method in vars(cls).values() if isinstance(method, FunctionType)]
    names = set[str]().union(*(names_in(method.__code__) for method in methods))
    found = _declare(names & {*_SAVING, _MOVING}, "")
    return {**found, "moves": True} if job_class.on_arrival is not ComputeJob.on_arrival else found


def is_job_class(thing: object) -> TypeGuard[type[ComputeJob[Any]]]:
    """Does not import the module of job classes: if it is not loaded, no job class exists."""
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
        others = (*map(cell_content, found.__closure__ or ()), *map(found.__globals__.get, names_in(found.__code__)))
        todo += [one for one in others if isinstance(one, FunctionType) and one.__module__ == found.__module__]


def _plain(function: Any) -> FunctionType | None:
    """The underlying function of a partial, decorated function, method or callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    with_wrapped = inspect.unwrap(function) if callable(function) else function
    found = getattr(with_wrapped, "__func__", with_wrapped)
    if not isinstance(found, FunctionType):
        found = inspect.getattr_static(type(found), "__call__", None)
    return found if isinstance(found, FunctionType) else None


def _is_ours(value: Any) -> bool:
    if isinstance(value, FunctionType):
        return value.__globals__ is vars(checkpointing)
    return inspect.ismodule(value) and value.__name__ == _PACKAGE
