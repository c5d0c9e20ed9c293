"""What the doctor finds on this machine, with a hub and without."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
from pathlib import Path

import pytest

from computepool.agent.clock import SystemAgentClock
from computepool.agent.config import AgentConfig
from computepool.agent.owner import doctor
from computepool.agent.owner.doctor import DoctorCheck, Health
from tests.agent.conftest import QUICK
from tests.agent.fake_hub import FakeHub

pytestmark = pytest.mark.anyio


@pytest.fixture
def config(data_dir: Path, ground: Path, runtime: object) -> AgentConfig:
    (data_dir / "cache").symlink_to(ground / "cache")
    return AgentConfig(hub_url="http://127.0.0.1:9", data_dir=data_dir, limits=QUICK)


def by_name(checks: list[DoctorCheck]) -> dict[str, DoctorCheck]:
    return {check.name: check for check in checks}


async def test_a_good_node(hub: FakeHub, config: AgentConfig) -> None:
    config = dataclasses.replace(config, hub_url=hub.url)
    checks = by_name(await asyncio.to_thread(doctor.check_all, config))
    assert {"hub", "clock", "disk", "identity", "sandbox process", "cgroups", "gpu", "uv"} <= set(checks)
    assert checks["hub"].health is Health.OK
    assert checks["clock"].health is Health.OK
    assert checks["sandbox namespace"].health is Health.OK, checks["sandbox namespace"]
    assert checks["sandbox namespace"].detail.startswith("passed: ")
    assert re.match(r"[0-9a-f]{12}, \d+ files, \d+ MB", checks["runtime"].detail)
    assert checks["disk quota"].detail.startswith("loop: " if os.geteuid() == 0 else "watch: ")
    assert checks["identity"].fix != "", "not enrolled yet, and it says how to"
    assert all(check.fix for check in checks.values() if check.health is not Health.OK)


async def test_an_unreachable_hub(config: AgentConfig) -> None:
    (check,) = await doctor._hub(config, SystemAgentClock())
    assert (check.name, check.health) == ("hub", Health.FAIL)
    assert check.fix


async def test_a_wrong_clock(hub: FakeHub, config: AgentConfig) -> None:
    hub.time_offset_ms = 20 * 60 * 1000
    checks = by_name(await doctor._hub(dataclasses.replace(config, hub_url=hub.url), SystemAgentClock()))
    assert checks["clock"].health is Health.WARN
    assert "1200" in checks["clock"].detail or "1199" in checks["clock"].detail


def test_a_full_disk(config: AgentConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISK_FREE_MIN_MB", 2**60)
    assert by_name(list(doctor._folder(config)))["disk"].health is Health.WARN


def test_a_folder_that_cannot_be_made(config: AgentConfig) -> None:
    blocked = dataclasses.replace(config, data_dir=Path("/proc/nothing"))
    (check,) = doctor._folder(blocked)
    assert check.health is Health.FAIL
    assert check.fix


def test_a_damaged_identity(config: AgentConfig) -> None:
    config.identity_path.write_text("{")
    assert by_name(list(doctor._folder(config)))["identity"].health is Health.FAIL


def test_cards_not_lent(config: AgentConfig) -> None:
    (check,) = doctor._cards(dataclasses.replace(config, gpus=False))
    assert "not lent" in check.detail


def test_no_uv(config: AgentConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_uv", lambda: None)
    (check,) = doctor._uv(config)
    assert check.health is Health.WARN


def test_other_pythons(config: AgentConfig) -> None:
    assert not list(doctor._other_pythons(config)), "only where the owner allows it"
    (check,) = doctor._other_pythons(dataclasses.replace(config, fetch_python=True))
    assert check.health is Health.OK
    (check,) = doctor._other_pythons(dataclasses.replace(config, fetch_python=True, uv="/nonexistent/uv"))
    assert (check.health, "--python-mirror" in check.fix) == (Health.WARN, True)
