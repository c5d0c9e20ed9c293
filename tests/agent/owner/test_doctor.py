"""The doctor: what it finds on this machine, with a hub and without."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
from pathlib import Path

import pytest

from computepool.agent.clock import AgentClock
from computepool.agent.config import AgentConfig
from computepool.agent.owner import doctor
from computepool.agent.owner.doctor import DoctorCheck, Health
from tests.agent.conftest import QUICK
from tests.agent.fake_hub import FakeHub


@pytest.fixture
def config(data_dir: Path, ground: Path, runtime: object) -> AgentConfig:
    (data_dir / "cache").symlink_to(ground / "cache")
    return AgentConfig(hub_url="http://127.0.0.1:9", data_dir=data_dir, limits=QUICK)


def by_name(checks: list[DoctorCheck]) -> dict[str, DoctorCheck]:
    return {check.name: check for check in checks}


async def test_a_good_node_passes_and_every_problem_has_a_fix(hub: FakeHub, config: AgentConfig) -> None:
    config = dataclasses.replace(config, hub_url=hub.url)
    checks = by_name(await asyncio.to_thread(doctor.check_all, config))
    assert {"disk", "identity", "sandbox process", "cgroups", "gpu", "uv"} <= set(checks)
    for name in ("hub", "clock", "sandbox namespace"):
        assert checks[name].health is Health.OK, checks[name]
    assert checks["sandbox namespace"].detail.startswith("passed: ")
    assert re.match(r"[0-9a-f]{12}, \d+ files, \d+ MB", checks["runtime"].detail)
    assert checks["disk quota"].detail.startswith("loop: " if os.geteuid() == 0 else "watch: ")
    assert checks["identity"].fix, "it is not enrolled yet"
    assert all(check.fix for check in checks.values() if check.health is not Health.OK)


async def test_an_unreachable_hub_is_a_failure_with_a_fix(config: AgentConfig) -> None:
    (check,) = await doctor._hub(config, AgentClock())
    assert (check.name, check.health) == ("hub", Health.FAIL)
    assert check.fix


async def test_a_wrong_clock_is_a_warning(hub: FakeHub, config: AgentConfig) -> None:
    hub.time_offset_ms = 20 * 60 * 1000
    checks = by_name(await doctor._hub(dataclasses.replace(config, hub_url=hub.url), AgentClock()))
    assert checks["clock"].health is Health.WARN
    assert "1200" in checks["clock"].detail or "1199" in checks["clock"].detail


def test_problems_of_the_folder_are_found(config: AgentConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    (missing,) = doctor._folder(dataclasses.replace(config, data_dir=Path("/proc/nothing")))
    assert (missing.health, bool(missing.fix)) == (Health.FAIL, True)
    monkeypatch.setattr(doctor, "DISK_FREE_MIN_MB", 2**60)
    config.identity_path.write_text("{")
    checks = by_name(list(doctor._folder(config)))
    assert (checks["disk"].health, checks["identity"].health) == (Health.WARN, Health.FAIL)


def test_missing_parts_are_reported_only_if_the_owner_wants_them(
    config: AgentConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cards,) = doctor._cards(dataclasses.replace(config, gpus=False))
    assert "not lent" in cards.detail
    assert not list(doctor._other_pythons(config))
    (pythons,) = doctor._other_pythons(dataclasses.replace(config, fetch_python=True))
    assert pythons.health is Health.OK
    (pythons,) = doctor._other_pythons(dataclasses.replace(config, fetch_python=True, uv="/nonexistent/uv"))
    assert (pythons.health, "--python-mirror" in pythons.fix) == (Health.WARN, True)
    monkeypatch.setattr(doctor, "find_uv", lambda: None)
    (uv,) = doctor._uv(config)
    assert uv.health is Health.WARN
