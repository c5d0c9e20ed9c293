"""The node's measurement of itself: short, in the jobs' sandbox, and never in the way of jobs."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from computepool.agent.hardware import benchmark, driver, measure
from computepool.agent.hardware.cards import DetectedCard
from computepool.core.trust.hardware import BOUNDS, CPU_TIER, cpu_class
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until
from tests.agent.conftest import StartNode
from tests.agent.fake_hub import FakeHub, command, until

LDCONFIG = """2 libs found in cache `/etc/ld.so.cache'
\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1
\tlibcuda.so.1 (libc6,x86-64) => /opt/other/libcuda.so.1
\tlibcuda.so.1 (libc6) => /usr/lib/i386-linux-gnu/libcuda.so.1
\tlibnvidia-ptxjitcompiler.so.1 (libc6,x86-64) => /usr/lib/libnvidia-ptxjitcompiler.so.1
\tlibc.so.6 (libc6,x86-64, OS ABI: Linux 3.2.0) => /lib/libc.so.6
"""


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.parametrize("level", ["process", "namespace", "gvisor"])
async def test_a_measurement_is_short_and_plausible_at_every_level(
    start_node: StartNode, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "MEASURE_S", 30)  # It ends by itself, but late on a busy machine.
    node = await start_node(level=level)
    begin = time.monotonic()
    found = await node.agent.benchmark._measure()
    assert time.monotonic() - begin < 10
    assert found is not None
    assert 0 < found["cpu"] < BOUNDS["cpu"]
    assert 0 < found["memory_mb_s"] < BOUNDS["memory_mb_s"]
    assert 0 < found["disk_mb_s"] < BOUNDS["disk_mb_s"]
    assert list(node.config.work_dir.glob("measure-*")) == []


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that measures never ends."""
    (tmp_path / "endless.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr(measure, "__file__", str(tmp_path / "endless.py"))


@pytest.mark.usefixtures("endless")
async def test_a_measurement_ends_at_its_time_limit(start_node: StartNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has measured by then counts; here that is nothing."""
    monkeypatch.setattr(benchmark, "MEASURE_S", 0.2)
    node = await start_node(level="process")
    assert await node.agent.benchmark._measure() == {"gflops": [], "notes": []}
    assert list(node.config.work_dir.glob("measure-*")) == []


@pytest.mark.soak
@pytest.mark.usefixtures("endless")
async def test_a_job_that_arrives_ends_the_measurement(
    start_node: StartNode, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "MEASURE_S", 60)
    node = await start_node(level="process")
    measuring = asyncio.create_task(node.agent.benchmark._measure())
    await until(lambda: list(node.config.work_dir.glob("measure-*/measure.py")) != [])
    (attempt,) = hub.submit(command("sleep", "1"))
    assert await measuring is None
    await until(lambda: attempt in hub.reports)


async def test_a_measurement_waits_until_the_node_has_been_idle_for_a_while(
    start_node: StartNode, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "QUIET_S", 3600)
    node = await start_node(level="process")
    measured = asyncio.Event()

    async def measure() -> None:
        measured.set()

    monkeypatch.setattr(node.agent.benchmark, "_measure", measure)
    node.agent.benchmark.request("m1")
    await hub.run(command("true"))
    assert not measured.is_set(), "a moment ago the node was busy"
    node.agent._executor.idle_since -= 3600
    await asyncio.wait_for(measured.wait(), 60)


async def test_the_network_to_the_hub_is_measured(start_node: StartNode) -> None:
    node = await start_node(level="process")

    async def probe() -> tuple[float, int, float]:
        return 0.01, 500_000, 0.11

    node.agent.benchmark.node.client.probe = probe
    assert await node.agent.benchmark._network() == {"rtt_us": 10_000, "net_mb_s": 5}


def test_the_programs_output_is_not_trusted() -> None:
    lines = [
        {"cpu": 990},
        {"card": 0, "gflops": 5},
        {"card": 7, "gflops": 9},
        {"note": "x" * 5_000},
        "nonsense",
        {"card": "a"},
    ]
    found = benchmark.collect(b"\n".join(json.dumps(line).encode() for line in lines) + b"\n{", cards=2)
    assert found["cpu"] == 990
    assert found["gflops"] == [5, None]
    assert len(found["notes"][0]) < 200


def test_cards_that_cannot_be_measured_have_a_note() -> None:
    assert "cuBLAS" in benchmark.collect(b"", cards=1)["notes"][0]
    assert benchmark.collect(b"", cards=0)["notes"] == []


@pytest.mark.soak
@pytest.mark.process
def test_the_doctor_measures_without_a_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "MEASURE_S", 30)
    found = benchmark.measure_here(tmp_path, cards=0)
    assert found["cpu"] > 0
    assert list(tmp_path.iterdir()) == []


def test_the_drivers_libraries_come_from_the_loaders_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: type("Uname", (), {"machine": "x86_64"}))
    cache = driver.read_cache(LDCONFIG)
    assert set(cache) == {"libcuda.so.1", "libnvidia-ptxjitcompiler.so.1", "libc.so.6"}
    monkeypatch.setattr(driver, "_cache", lambda: cache)
    card = DetectedCard(name="NVIDIA L4", vram_mb=1, maker="nvidia")
    places = driver.mounts([card])
    assert f"{driver.LIBRARIES}/libcuda.so.1" in places.values()
    assert not any("libc.so" in place for place in places.values())
    assert driver.mounts([]) == {}
    assert driver.library_path([card], "/opt/python/lib", None) == {
        "LD_LIBRARY_PATH": f"{driver.LIBRARIES}:/opt/python/lib"
    }


# ---------------------------------------------------------------- with the real hub
@pytest.fixture
def real() -> Iterator[RealPool]:
    measuring: dict[str, Any] = {"measure_every_s": 5, "measure_first_s": 0, "retier_round_s": 0.1}
    with RealPool(**measuring) as pool:
        hub = pool.start_hub()
        # The node times this answer, which the hub makes once. On a slow machine that takes longer than a node waits.
        with urlopen(f"{hub.url}/api/v1/openapi.json", timeout=60) as document:
            assert document.status == 200
        yield pool


@pytest.mark.soak
@pytest.mark.process
def test_a_node_is_measured_soon_after_its_enrolment(real: RealPool) -> None:
    client = real.client()
    real.start_agent(sandbox="namespace")

    def known() -> Any:
        """A complete measurement. On a busy machine the first may run out of time."""
        found = client.nodes.list()
        hardware = found[0].hardware if found else None
        scores = None if hardware is None else hardware.scores
        wanted = ("cpu", "disk_mb_s", "rtt_us", "net_mb_s")
        return hardware if all(getattr(scores, name, None) is not None for name in wanted) else None

    hardware = wait_until(known, 90, "a measurement")
    assert hardware.measured_at_ms
    assert hardware.scores.rtt_us
    tier = CPU_TIER
    for earlier in reversed(hardware.history):
        tier = cpu_class(earlier.scores.cpu, tier)
    assert hardware.tier == cpu_class(hardware.scores.cpu, tier)
