"""Cards: whom they are for, what of the driver a job sees, and why a level does not pass them on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from computepool.agent.config import AgentConfig
from computepool.agent.hardware import card_test, gpus, probe
from computepool.agent.hardware.gpus import DetectedCard
from computepool.agent.owner import doctor
from computepool.agent.sandbox.backends import runsc
from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox
from computepool.agent.sandbox.backends.gvisor import GvisorSandbox
from computepool.agent.sandbox.base import Limits, SandboxError, SandboxPolicy
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.core.isolation import Level
from tests.agent.conftest import StartNode
from tests.agent.fake_hub import STRANGER, FakeHub, command

CARD = DetectedCard(
    name="NVIDIA RTX 4090", vram_mb=24_000, maker="nvidia", ident="GPU-1", nodes=("/dev/null",)
)


@pytest.fixture
def config(tmp_path: Path) -> AgentConfig:
    return AgentConfig(hub_url="http://hub.test", data_dir=tmp_path)


@pytest.mark.parametrize(("said", "found", "lent"), [(True, 1, True), (None, 1, False), (False, 0, False)])
def test_cards_are_lent_to_strangers_only_on_request(
    config: AgentConfig, monkeypatch: pytest.MonkeyPatch, said: bool | None, found: int, lent: bool
) -> None:
    monkeypatch.setattr(probe, "find_cards", lambda: (CARD,))
    chosen = dataclasses.replace(config, gpus=said)
    hardware = probe.probe(chosen)
    profile = probe.profile(chosen, hardware, level=Level.NAMESPACE, python="3.11", version="test")
    assert (len(profile.gpus), profile.lends_gpus) == (found, lent)


async def test_the_agent_itself_keeps_strangers_from_its_cards(start_node: StartNode, hub: FakeHub) -> None:
    """Whatever the hub thinks: it may be broken into."""
    node = await start_node(level="namespace")
    node.agent.loop._gatekeeper.cards = 1
    report = await hub.run(command("true"), gpus=(0,), account=STRANGER)
    assert "--gpus" in (report.error or "")


def test_the_doctor_says_whom_the_cards_are_for(config: AgentConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_cards", lambda: (CARD,))
    by_default = {check.name: check for check in doctor._cards(config)}
    assert "--gpus" in by_default["gpu loan"].fix
    lent = {check.name: check for check in doctor._cards(dataclasses.replace(config, gpus=True))}
    assert "everybody" in lent["gpu loan"].detail


def test_a_driver_that_runsc_does_not_know_is_named(config: AgentConfig) -> None:
    found = runsc.find()
    assert isinstance(found, runsc.Runsc)
    known = runsc.ask(found.path, "nvproxy", "list-supported-drivers").split()
    assert runsc.nvproxy_reason(found.path, known[0]) == ""
    assert "1.2.3" in runsc.nvproxy_reason(found.path, "1.2.3")
    assert "no NVIDIA driver" in runsc.nvproxy_reason(found.path, "")
    (check,) = doctor._gvisor_cards(dataclasses.replace(config, sandbox="gvisor"))
    assert check.fix


def test_gvisor_refuses_cards_it_cannot_pass_on(ground: Path, runtime: Runtime, data_dir: Path) -> None:
    sandbox = GvisorSandbox(SandboxConfig(cache_dir=ground / "cache", runtime=runtime))
    try:
        with pytest.raises(SandboxError, match="namespace"):
            sandbox.spawn(
                ["true"], workdir=data_dir, limits=Limits(), policy=SandboxPolicy(gpus=("/dev/nvidia0",))
            )
    finally:
        sandbox.close()


def test_a_card_that_jobs_cannot_use_is_not_lent(ground: Path, runtime: Runtime, data_dir: Path) -> None:
    """It has no device nodes: the test that runs before any card is lent must find that out."""
    sandbox = BubblewrapSandbox(SandboxConfig(cache_dir=ground / "cache", runtime=runtime))
    try:
        assert card_test.reason_against(sandbox, runtime, [CARD], work_dir=data_dir)
        assert card_test.reason_against(sandbox, runtime, [], work_dir=data_dir) == ""
        assert list(data_dir.glob("cards-*")) == []
    finally:
        sandbox.close()


def test_a_job_without_a_card_is_told_of_none() -> None:
    assert gpus.visible_env([])["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert gpus.visible_env([CARD])["CUDA_VISIBLE_DEVICES"] == "GPU-1"
