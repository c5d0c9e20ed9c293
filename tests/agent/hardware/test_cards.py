"""Cards: who may use them, and why a level does not pass them on."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import pytest

from computepool.agent.config import AgentConfig
from computepool.agent.hardware import card_test, gpus, probe
from computepool.agent.hardware.cards import DetectedCard
from computepool.agent.owner import doctor
from computepool.agent.sandbox.backends import runsc
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.core.isolation import Level
from tests.agent.conftest import StartNode
from tests.agent.fake_hub import STRANGER, FakeHub, command
from tests.sandbox.running import make_sandbox

CARD = DetectedCard(name="NVIDIA RTX 4090", vram_mb=24_000, maker="nvidia", ident="GPU-1", nodes=("/dev/null",))


@pytest.fixture
def config(tmp_path: Path) -> AgentConfig:
    return AgentConfig(hub_url="http://hub.test", data_dir=tmp_path)


@pytest.mark.parametrize(("option", "found", "lent"), [(True, 1, True), (None, 1, False), (False, 0, False)])
def test_cards_are_lent_to_strangers_only_on_request(
    config: AgentConfig, monkeypatch: pytest.MonkeyPatch, option: bool | None, found: int, lent: bool
) -> None:
    monkeypatch.setattr(probe, "find_cards", lambda: (CARD,))
    chosen = dataclasses.replace(config, gpus=option)
    hardware = probe.probe(chosen)
    profile = probe.profile(chosen, hardware, level=Level.NAMESPACE, python="3.11", version="test")
    assert (len(profile.gpus), profile.lends_gpus) == (found, lent)


async def test_the_agent_itself_refuses_its_cards_to_strangers(start_node: StartNode, hub: FakeHub) -> None:
    """Even if the hub sends such a job: it may be compromised."""
    await start_node(level="namespace")
    report = await hub.run(command("true"), gpus=(0,), account=STRANGER)
    assert "--gpus" in (report.error or "")


def test_the_doctor_says_who_may_use_the_cards(config: AgentConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_cards", lambda: (CARD,))
    by_default = {check.name: check for check in doctor._cards(config)}
    assert "--gpus" in by_default["gpu loan"].fix
    lent = {check.name: check for check in doctor._cards(dataclasses.replace(config, gpus=True))}
    assert "everybody" in lent["gpu loan"].detail


def test_a_driver_that_runsc_does_not_know_is_named(config: AgentConfig) -> None:
    found = runsc.find()
    known = runsc.ask(found.path, "nvproxy", "list-supported-drivers").split()
    assert runsc.nvproxy_reason(found.path, known[0]) == ""
    assert "1.2.3" in runsc.nvproxy_reason(found.path, "1.2.3")
    assert "no NVIDIA driver" in runsc.nvproxy_reason(found.path, "")
    (check,) = doctor._gvisor_cards(dataclasses.replace(config, sandbox="gvisor"))
    assert check.fix


def test_a_card_that_jobs_cannot_use_is_not_lent(ground: Path, runtime: Runtime, data_dir: Path) -> None:
    """It has no device nodes, which the test before lending must find out."""
    config = SandboxConfig(cache_dir=ground / "cache", runtime=runtime)
    with contextlib.closing(make_sandbox(Level.NAMESPACE, config)) as sandbox:
        assert card_test.reason_against(sandbox, runtime, [CARD], work_dir=data_dir)
        assert card_test.reason_against(sandbox, runtime, [], work_dir=data_dir) == ""
        assert list(data_dir.glob("cards-*")) == []


def test_the_variables_of_a_job_name_only_its_own_cards() -> None:
    assert gpus.visible_env([])["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert gpus.visible_env([CARD])["CUDA_VISIBLE_DEVICES"] == "GPU-1"
