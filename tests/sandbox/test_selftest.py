"""The self-test passes here and fails where a level is missing or leaks; the node takes the strongest level that passes."""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from computepool.agent.sandbox.backends import bubblewrap, runsc
from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox
from computepool.agent.sandbox.backends.container import ContainerSandbox
from computepool.agent.sandbox.backends.gvisor import GvisorSandbox
from computepool.agent.sandbox.backends.process import ProcessSandbox
from computepool.agent.sandbox.base import SandboxPolicy
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.selftest import selftest
from computepool.agent.sandbox.selftest.selftest import LevelReport
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.core.errors import Unavailable
from computepool.core.isolation import Level, names


@pytest.mark.process
@pytest.mark.usefixtures("gvisor")
def test_every_level_holds_here(config: SandboxConfig) -> None:
    began = time.monotonic()
    reports = selftest.levels(config)
    took_s = time.monotonic() - began
    assert [(report.level, report.ok) for report in reports] == [(level, True) for level in Level], reports
    assert all(report.limits in ("cgroup1", "cgroup2", "rlimit") for report in reports)
    assert [len(report.attacks) for report in reports] == [3, 9, 10, 11]
    assert took_s < 60, "meant to take about two seconds"


def test_a_missing_bubblewrap_is_reported_with_the_fix(config: SandboxConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    report = selftest.report(BubblewrapSandbox, config)
    assert (report.ok, report.limits) == (False, "")
    assert "not installed" in report.reason
    assert "apt install bubblewrap" in report.fix


UNTRIED = "could not be tried: it did not end in time"


@pytest.mark.parametrize(
    ("first", "second", "ok"), [(UNTRIED, "", True), (UNTRIED, UNTRIED, False), ("got out", "", False)]
)
def test_an_attack_that_could_not_be_tried_is_repeated_and_a_breach_stands(
    config: SandboxConfig, monkeypatch: pytest.MonkeyPatch, *, first: str, second: str, ok: bool
) -> None:
    attack, found = selftest._attack, [first, second]

    def disturbed(sandbox: Sandbox, config: SandboxConfig) -> dict[str, str]:
        return {**attack(sandbox, config), "daemon": found.pop(0)}

    monkeypatch.setattr(selftest, "_attack", disturbed)
    assert selftest.report(ProcessSandbox, config).ok is ok


def test_only_the_jobs_own_connection_counts(tmp_path: Path) -> None:
    """Other programs of the host may connect to the same port."""
    with contextlib.ExitStack() as cleanup:
        canaries = selftest._Canaries(cleanup, tmp_path)
        address = canaries._listeners[0].getsockname()
        for data in (b"", b"GET / HTTP/1.1"):
            with socket.create_connection(address) as other:
                other.sendall(data)
        assert canaries.traces() == {}
        with socket.create_connection(address) as job:
            job.sendall(canaries.marker.encode())
        assert "connected" in canaries.traces()["network"]


def broken_by(backend: type[Sandbox], config: SandboxConfig) -> set[str]:
    """The attacks that succeed."""
    report = selftest.report(backend, config)
    assert not report.ok
    assert report.fix
    return {name for name, text in report.attacks if text}


class LeakyProcess(ProcessSandbox):
    """Claims to be more than it is."""

    level = Level.NAMESPACE


def test_a_level_that_leaks_is_not_offered(config: SandboxConfig) -> None:
    assert broken_by(LeakyProcess, config) >= {"files", "processes", "network", "calls", "privileges", "writes"}


@pytest.mark.parametrize("hole", ["network", "calls"])
def test_bubblewrap_with_a_hole_is_noticed(config: SandboxConfig, monkeypatch: pytest.MonkeyPatch, hole: str) -> None:
    if hole == "calls":
        monkeypatch.setattr(bubblewrap.seccomp, "program", lambda **_: b"\x06\x00\x00\x00\x00\x00\xff\x7f")  # allow all
    else:
        others = ("--unshare-pid", "--unshare-ipc", "--unshare-uts")
        kept = [argument for argument in bubblewrap._ISOLATION if argument != "--unshare-all"]
        monkeypatch.setattr(bubblewrap, "_ISOLATION", (*others, *kept))
    assert broken_by(BubblewrapSandbox, config) == {hole}


@pytest.mark.soak
def test_gvisor_without_its_filter_is_noticed(config: SandboxConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runsc, "FLAGS", tuple(flag for flag in runsc.FLAGS if flag != "--oci-seccomp"))
    assert broken_by(GvisorSandbox, config) == {"calls", "privileges"}


@pytest.mark.soak
def test_gvisor_in_the_hosts_network_is_noticed(config: SandboxConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either the flag or the namespace would suffice; without both, the job reaches the host's listener."""
    written = runsc.configuration

    def without_network(*arguments: Any, **options: Any) -> dict[str, Any]:
        spec = written(*arguments, **options)
        kinds = [kind for kind in spec["linux"]["namespaces"] if kind["type"] != "network"]
        spec["linux"]["namespaces"] = kinds
        return spec

    monkeypatch.setattr(runsc, "configuration", without_network)
    monkeypatch.setattr(runsc, "FLAGS", tuple(flag.replace("network=none", "network=host") for flag in runsc.FLAGS))
    assert broken_by(GvisorSandbox, config) >= {"network", "isolation"}


_SOME = {kind: ["CAP_DAC_OVERRIDE"] for kind in ("bounding", "effective", "permitted")}
_HOLES: dict[str, Callable[[dict[str, Any]], object]] = {
    "calls": lambda spec: spec["linux"].pop("seccomp"),
    "network": lambda spec: spec["linux"]["namespaces"].remove({"type": "network"}),
    "files": lambda spec: spec["mounts"].append(_host_usr()),
    "privileges": lambda spec: spec["process"].update(capabilities=_SOME),
}


def _host_usr() -> dict[str, Any]:
    return {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]}


@pytest.mark.soak
@pytest.mark.parametrize("hole", _HOLES)
def test_a_container_with_a_hole_is_noticed(config: SandboxConfig, monkeypatch: pytest.MonkeyPatch, hole: str) -> None:
    adapt = ContainerSandbox._adapt

    def with_hole(self: ContainerSandbox, spec: dict[str, Any], policy: SandboxPolicy, *, uid: int) -> None:
        adapt(self, spec, policy, uid=uid)
        _HOLES[hole](spec)

    monkeypatch.setattr(ContainerSandbox, "_adapt", with_hole)
    assert hole in broken_by(ContainerSandbox, config)


class ClaimsAKernel(BubblewrapSandbox):
    """Claims to be more than it is."""

    level = Level.GVISOR


def test_a_sandbox_on_the_hosts_kernel_is_not_taken_for_gvisor(config: SandboxConfig) -> None:
    assert broken_by(ClaimsAKernel, config) == {"kernel", "isolation"}


def test_a_closed_cache_folder_is_reported_with_the_fix(config: SandboxConfig, ground: Path) -> None:
    closed = ground / "closed-cache"
    closed.mkdir(mode=0o700)
    inner = SandboxConfig(cache_dir=closed / "inner", runtime=config.runtime)
    report = selftest.report(ProcessSandbox, inner)
    if report.ok:
        pytest.skip("an ordinary user's jobs can enter it")
    assert str(closed) in report.reason
    assert "/var/lib/computepool" in report.fix


@pytest.mark.parametrize(
    ("reason", "fix"),
    [
        ("bwrap: setting up uid map: Permission denied", "user namespaces"),
        ("bwrap: Creating new namespace failed: Operation not permitted", "user namespaces"),
        ("bwrap: Unknown option --disable-userns", "0.8"),
        ("something else", "doctor"),
    ],
)
def test_errors_have_a_fix(reason: str, fix: str) -> None:
    assert fix in selftest.explain(reason)


# ------------------------------------------------------------------ which level a node takes
class Machine:
    """Provides these levels, and remembers which were tested."""

    def __init__(self, *holding: Level) -> None:
        self.holding, self.tested = holding, list[Level]()

    def test(self, level: Level) -> LevelReport:
        self.tested.append(level)
        ok = level in self.holding
        return LevelReport(level=level, ok=ok, reason="a reason", fix="" if ok else "a fix", limits="cgroup2")

    def takes(self, requested: str, *, cards: bool = False) -> Level:
        return selftest.choose_level(self.test, requested, cards=cards)


def test_the_strongest_level_that_holds_is_taken() -> None:
    process, namespace, container, gvisor = Level
    assert Machine(process, namespace, container).takes("auto") is namespace
    assert Machine(process, container).takes("auto") is container
    assert Machine(process).takes("auto") is process
    assert Machine(*Level).takes("container") is container
    assert Machine(*Level).takes("auto") is gvisor
    assert Machine(*Level).takes("namespace") is namespace
    assert Machine(*Level).takes("auto", cards=True) is namespace
    assert Machine(*Level).takes("gvisor", cards=True) is gvisor
    with pytest.raises(Unavailable, match="a fix"):
        Machine(process, namespace).takes("gvisor")


def test_levels_that_would_not_be_taken_are_not_tested() -> None:
    machine = Machine(*Level)
    machine.takes("process")
    assert machine.tested == [Level.PROCESS]
    machine.takes("auto")
    assert machine.tested == [Level.PROCESS, Level.GVISOR]


def test_levels_have_names_and_an_order() -> None:
    assert names() == ("process", "namespace", "container", "gvisor")
    assert Level.parse(" Namespace ") is Level.NAMESPACE
    assert Level.PROCESS < Level.NAMESPACE < Level.CONTAINER < Level.GVISOR
    assert all(Level.parse(level.label) is level for level in Level)
    with pytest.raises(ValueError, match="process, namespace, container, gvisor"):
        Level.parse("vm")
