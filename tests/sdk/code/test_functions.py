"""Functions are sent with the submitter's own modules, and a cached pickle is never stale."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from computepool.sdk import BadRequest
from computepool.sdk.code.functions import FunctionCache, pickle_arguments, pickle_function

LOADER = """
import pickle, sys
function, (args, kwargs) = pickle.loads(sys.stdin.buffer.read())
function = pickle.loads(function)
print(function(*args, **kwargs))
"""


def run_elsewhere(function: bytes, *args: Any) -> str:
    """In an interpreter that has cloudpickle, and none of the submitter's modules."""
    import pickle

    done = subprocess.run(
        [sys.executable, "-c", LOADER],
        input=pickle.dumps((function, (args, {}))),
        capture_output=True,
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A local module that uses another one, as an attribute and by name."""
    (tmp_path / "helper_mod.py").write_text("FACTOR = 3\ndef triple(x):\n    return x * FACTOR\n")
    (tmp_path / "work_mod.py").write_text(
        "import math\nimport helper_mod\nfrom helper_mod import triple\n"
        "class Box:\n    def __init__(self, v): self.v = v\n    def area(self): return triple(self.v)\n"
        "def work(x):\n    return Box(x).area() + helper_mod.triple(math.floor(1.5))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import work_mod  # type: ignore[import-not-found]

    yield work_mod  # type: ignore[misc]
    for name in ("work_mod", "helper_mod"):
        sys.modules.pop(name, None)


def test_local_modules_are_pickled_by_value(own_modules: types.ModuleType) -> None:
    assert run_elsewhere(pickle_function(own_modules.work), 5) == "18"
    assert not cloudpickle.list_registry_pickle_by_value()  # other code in the process is not affected


@pytest.mark.soak
def test_instances_of_local_classes_are_sent_as_arguments(own_modules: types.ModuleType) -> None:
    data = pickle_arguments((own_modules.Box(2), [own_modules.Box(3)]), {})
    function = pickle_function(lambda packed: __import__("pickle").loads(packed)[0][1][0].area())
    assert run_elsewhere(function, data) == "9"


def test_functions_of_installed_packages_are_pickled_by_name() -> None:
    assert len(pickle_function(np.linalg.norm)) < 200
    assert len(pickle_function(functools.reduce)) < 200


def test_functions_for_jobs_are_pickled_by_their_name_on_a_node() -> None:
    from computepool import job_slice, outputs, progress

    for function in (progress, outputs, job_slice):
        assert b"computepool.sdk" not in pickle_function(function)


@pytest.mark.parametrize("thing", [functools.partial(print, threading.Lock()), 7, None])
def test_an_object_that_cannot_be_sent_is_refused(thing: Callable[[], Any]) -> None:
    with pytest.raises(BadRequest, match=r"Cannot send the function.*lock|not callable"):
        pickle_function(thing)


limit = 1
names = ["a"]


def uses_limit() -> int:
    return limit


def uses_names() -> list[str]:
    return names


def calls_other() -> int:
    return uses_limit() + 1


def test_a_function_is_pickled_once_while_its_captured_values_are_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = FunctionCache()
    first = cache.pickle(calls_other)
    assert cache.pickle(calls_other) is first
    monkeypatch.setitem(globals(), "limit", 2)
    second = cache.pickle(calls_other)
    assert second != first
    assert cloudpickle.loads(second)() == 3


def test_a_mutable_global_is_pickled_every_time() -> None:
    cache = FunctionCache()
    cache.pickle(uses_names)
    names.append("b")
    try:
        assert cloudpickle.loads(cache.pickle(uses_names))() == ["a", "b"]
    finally:
        names.remove("b")


def test_a_changed_closure_is_pickled_again() -> None:
    cache = FunctionCache()
    count = 1

    def counted() -> int:
        return count

    assert cloudpickle.loads(cache.pickle(counted))() == 1
    count = 2
    assert cloudpickle.loads(cache.pickle(counted))() == 2


def test_changed_defaults_and_object_state_are_pickled_again() -> None:
    cache = FunctionCache()

    def with_default(value: int = 1) -> int:
        return value

    assert cloudpickle.loads(cache.pickle(with_default))() == 1
    with_default.__defaults__ = (2,)
    assert cloudpickle.loads(cache.pickle(with_default))() == 2

    class Counter:
        total = 1

        def get(self) -> int:
            return self.total

    counter = Counter()
    assert cloudpickle.loads(cache.pickle(counter.get))() == 1
    counter.total = 5
    assert cloudpickle.loads(cache.pickle(counter.get))() == 5


def test_a_recursive_function_is_pickled_and_cached() -> None:
    cache = FunctionCache()

    def factorial(n: int) -> int:
        return 1 if n < 2 else n * factorial(n - 1)

    first = cache.pickle(factorial)
    assert cloudpickle.loads(first)(5) == 120
    assert cache.pickle(factorial) is first


@pytest.mark.soak
def test_the_cache_is_bounded() -> None:
    cache = FunctionCache()
    for number in range(300):
        cache.pickle(eval(f"lambda: {number}"))
    assert len(cache._entries) <= 128
