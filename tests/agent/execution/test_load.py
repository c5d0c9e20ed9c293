"""What the hub is told of an attempt's processes: little, once, and with every peak."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computepool.agent.config import AgentConfig
from computepool.agent.execution.load import FIRST_COMPARABLE, Load, UnsentLoads
from computepool.agent.hardware import probe
from computepool.agent.hardware.probe import Hardware
from computepool.core.errors import BadRequest
from computepool.core.isolation import Level
from computepool.protocol.nodes.nodes import LOADS_MAX

CARD = st.none() | st.integers(0, 100)
LOOKS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 9_999), CARD), min_size=1, max_size=80)


def looked(values: list[tuple[int, int, int | None]]) -> list[Load]:
    return [
        Load(
            at=float(number),
            cpu_ms=0,
            cpu_percent=cpu,
            rss_mb=rss,
            processes=1,
            gpu_percent=gpu,
            looks=number + 1,
        )
        for number, (cpu, rss, gpu) in enumerate(values)
    ]


@given(LOOKS, st.booleans())
def test_few_are_told_with_every_peak(values: list[tuple[int, int, int | None]], young: bool) -> None:
    unsent_loads, loads = UnsentLoads(), looked(values)
    for load in loads:
        unsent_loads.add(load)
    now = float(len(loads))
    told = unsent_loads.take(now, young=young)
    worth = [load for load in loads if load.looks >= FIRST_COMPARABLE]
    assert len(told) <= min(LOADS_MAX, 8 if young else 1)
    assert bool(told) == bool(worth)
    if worth:
        assert max(load.cpu_percent for load in told) == max(load.cpu_percent for load in worth)
        assert max(load.rss_mb for load in told) == max(load.rss_mb for load in worth)
        cards = [load.gpu_percent for load in worth if load.gpu_percent is not None]
        assert max((load.gpu_percent for load in told if load.gpu_percent is not None), default=None) == max(
            cards, default=None
        )
        assert [load.ago_ms for load in told] == sorted((load.ago_ms for load in told), reverse=True)
        assert told[-1].ago_ms == round((now - worth[-1].at) * 1000)
    assert unsent_loads.take(now, young=young) == [], "nothing is told twice"


def test_the_first_look_has_nothing_to_compare_with_and_is_not_told() -> None:
    unsent_loads = UnsentLoads()
    unsent_loads.add(Load(at=0, cpu_ms=0))
    assert unsent_loads.take(1) == []


def _profile(config: AgentConfig) -> object:
    hardware = Hardware(cores=1, ram_mb=1, disk_mb=1, cards=())
    return probe.profile(config, hardware, level=Level.PROCESS, python="3.11", version="1").place


def test_a_place_leaves_the_machine_only_if_its_owner_states_it_and_rounded(tmp_path: Path) -> None:
    config = AgentConfig(hub_url="http://hub.test", data_dir=tmp_path)
    assert _profile(config) is None
    stated = _profile(dataclasses.replace(config, place="52.5163,13.3777"))
    assert stated is not None
    assert stated.model_dump() == {"lat": 52.5, "lon": 13.4}  # type: ignore[attr-defined]
    with pytest.raises(BadRequest, match="LATITUDE,LONGITUDE"):
        dataclasses.replace(config, place="Berlin")
