"""Public parameters are named as in the standard library: `timeout=` in seconds, without a unit in the name."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cached_property
from typing import Any, cast

import computepool.sdk
from computepool.sdk import Pool
from computepool.sdk.client.transport import Transport
from computepool.sdk.files.artifacts import ArtifactApi
from computepool.sdk.resources.groups import GroupApi
from computepool.sdk.resources.market import MarketApi


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


def test_no_public_parameter_carries_a_unit_of_time_in_its_name() -> None:
    found = list(public_parameters())
    assert "JobApi.wait(timeout=)" in found
    assert [name for name in found if name.endswith(("_s=)", "_ms=)"))] == []


class Recorder:
    """A transport that keeps what it was asked for, and answers nothing."""

    def __init__(self) -> None:
        self.sent: dict[str, Any] = {}

    def get(self, _path: str, _model: object, *, params: dict[str, Any] | None = None, wait_ms: int = 0) -> None:
        self.sent = {**(params or {}), "wait_ms": wait_ms}


def test_seconds_become_milliseconds_on_the_wire() -> None:
    recorder = Recorder()
    transport = cast("Transport", recorder)
    GroupApi(transport, cast("ArtifactApi", None)).drain("grp_1", timeout=1.5)
    assert recorder.sent["wait_ms"] == 1_500
    market = MarketApi(transport)
    market.history("cpu", since=1_700_000_000.001, step=0.25)
    assert (recorder.sent["since_ms"], recorder.sent["step_ms"]) == (1_700_000_000_001, 250)
    market.history()
    assert (recorder.sent["since_ms"], recorder.sent["step_ms"]) == (None, None)
