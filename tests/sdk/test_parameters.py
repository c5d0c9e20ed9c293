"""Public parameters are named as in the standard library: `timeout=` in seconds, without a unit in the name."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cached_property

import computepool.sdk
from computepool.sdk import Pool


def public_parameters() -> Iterator[str]:
    things = [getattr(computepool.sdk, name) for name in computepool.sdk.__all__]
    with Pool(computepool.sdk.connect("http://127.0.0.1:1", "cp_test").transport) as pool:
        parts = [name for name, part in vars(Pool).items() if isinstance(part, cached_property)]
        things += [type(getattr(pool, name)) for name in parts]
    for thing in things:
        members = inspect.getmembers(thing, inspect.isfunction) if inspect.isclass(thing) else [("", thing)]
        for name, function in members:
            if not name.startswith("_"):
                for parameter in inspect.signature(function).parameters:
                    yield f"{thing.__name__}.{name}({parameter}=)"


def test_no_public_parameter_carries_seconds_in_its_name() -> None:
    found = list(public_parameters())
    assert "JobApi.wait(timeout=)" in found
    assert [name for name in found if name.endswith(("_s=)", "timeout_ms=)"))] == []
