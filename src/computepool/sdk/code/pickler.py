"""A pickler by value that also records which modules are needed to load the pickle.

The only module of the SDK that imports cloudpickle, which scripts and commands do not need.
"""

from __future__ import annotations

import io
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import cloudpickle

from computepool.core.errors import BadRequest
from computepool.protocol.values import results
from computepool.sdk.code import imports, own_modules
from computepool.sdk.code.functions import Pickled, lock
from computepool.sdk.code.source_lines import SourceLines
from computepool.sdk.jobs.futures import JobFuture


def by_value(
    thing: Any, *, what: str, modules: Iterable[types.ModuleType] = (), takes_futures: bool = False
) -> Pickled:
    """`takes_futures`: a future in it stands for the result of its job, which the node provides."""
    while True:
        try:
            return _by_value(thing, what=what, modules=modules, takes_futures=takes_futures)
        except _NotSent as waiting:
            _ = waiting.future.job_id  # without the lock: it waits for the hub


def _by_value(thing: Any, *, what: str, modules: Iterable[types.ModuleType], takes_futures: bool) -> Pickled:
    with lock, _own_modules_by_value(modules):
        file = io.BytesIO()
        pickler = _Pickler(file, takes_futures=takes_futures)
        try:
            pickler.dump(thing)
        except _NotSent:
            raise
        except Exception as error:
            # Pickling calls code of the objects, which may raise anything.
            raise BadRequest(f"Cannot send {what}: {type(error).__name__}: {error}") from error
        data = Pickled(pickler.lines.along_with(file.getvalue()))
        data.modules, data.imports = frozenset(pickler.modules), frozenset(pickler.imports)
        data.uses = tuple(pickler.uses)
        return data


class _NotSent(BaseException):
    """A future whose job has no ID yet; not an Exception, so that no code of the pickled objects handles it."""

    def __init__(self, future: JobFuture) -> None:
        self.future = future


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Records modules and source lines. `reducer_override` is not called for plain values and containers of them."""

    def __init__(self, file: io.BytesIO, *, takes_futures: bool) -> None:
        super().__init__(file)
        self._takes_futures = takes_futures
        self.uses: dict[str, None] = {}  #: jobs whose futures are in it
        self.modules: set[str] = set()
        self.imports: set[str] = set()
        self.lines = SourceLines()

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, JobFuture):
            return self._reduce_future(thing)
        if isinstance(thing, types.ModuleType):
            self.modules.add(thing.__name__)
        elif isinstance(thing, types.FunctionType) and not own_modules.is_installed(thing):
            self.imports |= imports.of_function(thing)
            self.lines.add(thing)
        else:
            named = isinstance(thing, _NAMED)
            self.modules.add(getattr(thing if named else type(thing), "__module__", None) or "")
        return super().reducer_override(thing)

    def _reduce_future(self, future: JobFuture) -> Any:
        if not self._takes_futures:
            raise TypeError("it refers to a future; pass the future to the function as an argument")
        if not (future.assigned or future.done()):
            raise _NotSent(future)
        self.uses[future.job_id] = None
        return results.result_of, (future.job_id,)


_NAMED = (type, types.FunctionType, types.BuiltinFunctionType)


@contextmanager
def _own_modules_by_value(more: Iterable[types.ModuleType]) -> Iterator[None]:
    """Registered only during this call, because other code in the process may use cloudpickle, too."""
    before = cloudpickle.list_registry_pickle_by_value()
    found = {module.__name__: module for module in (*own_modules.loaded_modules(), *more)}
    added = [module for name, module in found.items() if name not in before]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)
