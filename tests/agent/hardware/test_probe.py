"""The hardware of a machine, according to programs on PATH that print what the real tools printed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from computepool.agent.config import AgentConfig
from computepool.agent.hardware import cards, gpus, nvml, probe
from computepool.core.isolation import Level
from tests.agent.fake_nvml import FakeCard, FakeNvml

NVIDIA_SMI = """#!/bin/sh
echo '0, NVIDIA GeForce RTX 4090, 24564, GPU-8a6e5a33-7c1b-4b5e-9f0e-1f0f5a3c2b11'
echo '1, NVIDIA H100 80GB HBM3, 81559, GPU-0b7f9a52-2d61-4e8f-8f0c-8d2e8d0f7a10'
"""
NVIDIA_SMI_BROKEN = """#!/bin/sh
echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
exit 9
"""
ROCM_SMI = """#!/bin/sh
cat <<END
{"card0": {"VRAM Total Memory (B)": "21458059264", "VRAM Total Used Memory (B)": "27856896",
 "Card Series": "Radeon RX 7900 XT", "Card Model": "0x744c", "Card SKU": "D70401XT", "GFX Version": "gfx1100"},
 "card10": {"VRAM Total Memory (B)": "68702699520", "Card series": "AMD Instinct MI250X"},
 "system": {"Driver version": "6.8.5"}}
END
"""
AMD_SMI = """#!/bin/sh
cat <<END
[{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X", "vendor_id": "0x1002"},
  "vram": {"type": "HBM3", "vendor": "N/A", "size": {"value": 196592, "unit": "MB"}}}]
END
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with only the shell and what the test puts there, and no NVML."""
    (tmp_path / "sh").symlink_to("/bin/sh")
    (tmp_path / "cat").symlink_to("/bin/cat")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nvml, "pynvml", FakeNvml(driver=""))
    return tmp_path


def put(tools: Path, name: str, text: str) -> None:
    (tools / name).write_text(text)
    (tools / name).chmod(0o755)


def test_without_tools_there_are_no_cards(tools: Path) -> None:
    assert gpus.find_cards() == ()


def test_nvidia_smi_lists_cards(tools: Path) -> None:
    put(tools, "nvidia-smi", NVIDIA_SMI)
    cards = gpus.find_cards()
    assert [(card.name, card.tier, card.vram_mb) for card in cards] == [
        ("NVIDIA GeForce RTX 4090", "rtx-4090", 24564),
        ("NVIDIA H100 80GB HBM3", "h100", 81559),
    ]
    assert gpus.visible_env(cards[1:])["CUDA_VISIBLE_DEVICES"].startswith("GPU-0b7f")
    assert gpus.visible_env(())["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize("text", [NVIDIA_SMI_BROKEN, "#!/bin/sh\necho a, b, c, d; echo; echo 1,2", "#!/nothing\n"])
def test_a_broken_tool_finds_no_cards(tools: Path, text: str) -> None:
    put(tools, "nvidia-smi", text)
    assert gpus.find_cards() == ()


def test_a_tool_that_hangs_finds_no_cards(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "TOOL_TIMEOUT_S", 0.2)
    put(tools, "nvidia-smi", "#!/bin/sh\nwhile :; do :; done")
    assert gpus.find_cards() == ()


def test_rocm_smi_lists_cards(tools: Path) -> None:
    put(tools, "rocm-smi", ROCM_SMI)
    assert [(card.name, card.tier, card.vram_mb, card.ident) for card in gpus.find_cards()] == [
        ("Radeon RX 7900 XT", "rx-7900xt", 20464, "0"),
        ("AMD Instinct MI250X", "mi250x", 65520, "1"),
    ]


def test_amd_smi_comes_before_rocm_smi(tools: Path) -> None:
    put(tools, "rocm-smi", ROCM_SMI)
    put(tools, "amd-smi", AMD_SMI)
    assert [(card.tier, card.vram_mb) for card in gpus.find_cards()] == [("mi300x", 196592)]


def test_nvml_comes_before_nvidia_smi(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tools, "nvidia-smi", NVIDIA_SMI)
    monkeypatch.setattr(nvml, "pynvml", FakeNvml(cards=[FakeCard(idle_mb=2048)]))
    (card,) = gpus.find_cards()
    assert (card.name, card.vram_mb, card.ident) == ("NVIDIA GeForce RTX 3090", 24 * 1024, "GPU-1")
    seen = nvml.GpuMeter([card]).load([0])
    assert seen is not None
    assert (seen.busy, seen.percent, seen.vram_mb) == (0.5, 50, 2048)
    assert nvml.GpuMeter([card]).load([]) is None
    monkeypatch.setattr(nvml, "pynvml", FakeNvml(driver=""))
    assert len(gpus.find_cards()) == 2


@pytest.mark.parametrize(
    ("v2", "v1", "cores"), [("50000 100000", "50000", 0.5), ("max 100000", "-1", len(os.sched_getaffinity(0)))]
)
def test_cores_are_limited_by_affinity_and_quota(tmp_path: Path, v2: str, v1: str, cores: float) -> None:
    assert probe._cores(tmp_path) == len(os.sched_getaffinity(0))
    put(tmp_path, "cpu.max", f"{v2}\n")
    (tmp_path / "cpu").mkdir()
    put(tmp_path, "cpu/cpu.cfs_quota_us", f"{v1}\n")
    put(tmp_path, "cpu/cpu.cfs_period_us", "100000\n")
    assert probe._cores(tmp_path) == cores


def test_memory_is_limited_by_the_cgroup(tmp_path: Path) -> None:
    limit = 256 * 1024 * 1024
    put(tmp_path, "memory.max", f"{limit}\n")
    (tmp_path / "memory").mkdir()
    put(tmp_path, "memory/memory.limit_in_bytes", f"{limit}\n")
    assert probe._ram_bytes(tmp_path) == limit


def test_the_owner_can_lend_less(tools: Path, tmp_path: Path) -> None:
    put(tools, "nvidia-smi", NVIDIA_SMI)
    config = AgentConfig(hub_url="http://h", data_dir=tmp_path, cores=0.5, ram_mb=100, disk_mb=200, gpus=False)
    hardware = probe.probe(config)
    assert (hardware.cores, hardware.ram_mb, hardware.disk_mb, hardware.cards) == (0.5, 100, 200, ())


def test_the_profile_describes_the_hardware_and_the_owners_options(tools: Path, tmp_path: Path) -> None:
    put(tools, "nvidia-smi", NVIDIA_SMI)
    config = AgentConfig(hub_url="http://h", data_dir=tmp_path, name="n", tags=("fast",), region="in")
    profile = probe.profile(config, probe.probe(config), level=Level.NAMESPACE, python="3.11", version="1")
    assert [gpu.tier for gpu in profile.gpus] == ["rtx-4090", "h100"]
    assert (profile.isolation, profile.region, profile.tags) == ("namespace", "in", ["fast"])
    assert profile.disk_mb > 0
    assert profile.ram_mb > 0


def test_mig_devices_are_cards_of_their_own(tools: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A card in that mode cannot be used as a whole. Each device has its own memory, and its own device nodes."""
    parts = [
        FakeCard(
            name=f"NVIDIA H100 80GB HBM3{suffix}",
            uuid=f"MIG-{number}",
            total_mb=9_728,
            percent=None,
            instances=(7 + number, 0),
        )
        for number, suffix in enumerate((" MIG 1g.10gb", ""))
    ]
    whole = FakeCard(name="NVIDIA H100 80GB HBM3", uuid="GPU-0", total_mb=81_559, capability=(9, 0))
    divided = FakeCard(name="NVIDIA H100 80GB HBM3", uuid="GPU-1", minor=1, capability=(9, 0), parts=parts)
    monkeypatch.setattr(nvml, "pynvml", FakeNvml(cards=[whole, divided]))
    monkeypatch.setattr(nvml, "_CAPABILITIES", tmp_path)
    monkeypatch.setattr(nvml, "existing_paths", tuple)
    for place, number in (("gi7", 30), ("gi7/ci0", 31), ("gi8", 39)):
        folder = tmp_path / "gpu1" / "mig" / place
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "access").write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\n")
    found = gpus.find_cards()
    shared = ("/dev/nvidiactl", "/dev/nvidia-uvm")
    assert [(card.ident, card.vram_mb, card.tier, card.compute_capability) for card in found] == [
        ("GPU-0", 81_559, "h100", "9.0"),
        ("MIG-0", 9_728, "h100-mig", "9.0"),
        ("MIG-1", 9_728, "h100-mig", "9.0"),
    ]
    assert [card.nodes for card in found] == [
        ("/dev/nvidia0", *shared),
        ("/dev/nvidia1", *shared, "/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31"),
        ("/dev/nvidia1", *shared, "/dev/nvidia-caps/nvidia-cap39"),
    ]
    assert gpus.visible_env(found[1:2])["CUDA_VISIBLE_DEVICES"] == "MIG-0"
    load = nvml.GpuMeter(found).load([1, 2])
    assert load is not None
    assert (load.percent, load.vram_mb) == (None, 0), "the driver tells no load of a MIG device"


def test_the_driver_and_its_cuda_are_reported(tools: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = AgentConfig(hub_url="http://h", data_dir=tmp_path, name="n")

    def described(fake: FakeNvml) -> tuple[str, str, list[str]]:
        monkeypatch.setattr(nvml, "pynvml", fake)
        profile = probe.profile(config, probe.probe(config), level=Level.NAMESPACE, python="3.11", version="1")
        return profile.driver, profile.cuda, [gpu.compute_capability for gpu in profile.gpus]

    assert described(FakeNvml(cuda=12040)) == ("580.159.04", "12.4", ["8.6"])
    assert described(FakeNvml(driver="r580-beta")) == ("", "13.0", ["8.6"]), "not a version that can be compared"
    assert described(FakeNvml(driver="")) == ("", "", [])
    assert described(FakeNvml(cards=[])) == ("", "", [])
