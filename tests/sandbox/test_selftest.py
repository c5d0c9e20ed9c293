"""The self-test says yes here, and no where a level is missing or leaks."""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from computepool.agent.sandbox.backends import bubblewrap, runsc
from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox
from computepool.agent.sandbox.backends.container import ContainerSandbox
from computepool.agent.sandbox.backends.gvisor import GvisorSandbox
from computepool.agent.sandbox.backends.process import ProcessSandbox
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.selftest import probing, selftest
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.core.isolation import Level, names
from tests.sandbox.running import require_runsc


@pytest.mark.process
def test_every_level_holds_here(config: SandboxConfig) -> None:
    require_runsc()
    began = time.monotonic()
    reports = selftest.levels(config)
    took_s = time.monotonic() - began
    assert [(report.level, report.ok) for report in reports] == [
        (Level.PROCESS, True),
        (Level.NAMESPACE, True),
        (Level.CONTAINER, True),
        (Level.GVISOR, True),
    ], reports
    assert all(report.limits in ("cgroup1", "cgroup2", "rlimit") for report in reports)
    assert [len(report.attacks) for report in reports] == [3, 9, 10, 11]
    assert took_s < 60, "meant to take about two seconds"


def test_missing_bubblewrap_is_said_with_the_remedy(
    config: SandboxConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    report = selftest.report(BubblewrapSandbox, config)
    assert (report.ok, report.limits) == (False, "")
    assert "not installed" in report.reason
    assert "apt install bubblewrap" in report.fix


UNTRIED = "could not be tried: it did not end in time"


@pytest.mark.parametrize(
    ("first", "second", "ok"), [(UNTRIED, "", True), (UNTRIED, UNTRIED, False), ("got out", "", False)]
)
def test_what_could_not_be_tried_is_tried_again_and_a_breach_stands(
    config: SandboxConfig, monkeypatch: pytest.MonkeyPatch, *, first: str, second: str, ok: bool
) -> None:
    attack, found = selftest._attack, [first, second]

    def disturbed(sandbox: Sandbox, config: SandboxConfig) -> dict[str, str]:
        return {**attack(sandbox, config), "daemon": found.pop(0)}

    monkeypatch.setattr(selftest, "_attack", disturbed)
    assert selftest.report(ProcessSandbox, config).ok is ok


def test_only_the_jobs_own_connection_counts(tmp_path: Path) -> None:
    """Other programs of the host may try the same port."""
    with contextlib.ExitStack() as cleanup:
        canaries = selftest._Canaries(cleanup, tmp_path)
        address = canaries._listeners[0].getsockname()
        for words in (b"", b"GET / HTTP/1.1"):
            with socket.create_connection(address) as other:
                other.sendall(words)
        assert canaries.traces() == {}
        with socket.create_connection(address) as job:
            job.sendall(canaries.marker.encode())
        assert "connected" in canaries.traces()["network"]


class LeakyProcess(ProcessSandbox):
    """Claims to be more than it is."""

    level: ClassVar[Level] = Level.NAMESPACE  # type: ignore[misc]


def test_a_level_that_leaks_is_not_offered(config: SandboxConfig) -> None:
    report = selftest.report(LeakyProcess, config)
    assert not report.ok
    achieved = {name for name, text in report.attacks if text}
    assert achieved >= {"files", "processes", "network", "calls", "privileges", "writes"}
    assert report.fix


@pytest.mark.parametrize("flag", ["--unshare-all", "--disable-userns"])
def test_a_sandbox_with_a_part_missing_is_noticed(
    config: SandboxConfig, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    """Without the network namespace the listener is hit; without namespaces at all nothing holds."""
    if flag == "--disable-userns":
        monkeypatch.setattr(
            bubblewrap.seccomp, "program", lambda: b"\x06\x00\x00\x00\x00\x00\xff\x7f"
        )  # allow all
    else:
        rest = ("--unshare-pid", "--unshare-ipc", "--unshare-uts")
        kept = [argument for argument in bubblewrap._ISOLATION if argument != flag]
        monkeypatch.setattr(bubblewrap, "_ISOLATION", (*rest, *kept))
    report = selftest.report(BubblewrapSandbox, config)
    assert not report.ok
    assert {name for name, text in report.attacks if text} == (
        {"calls"} if flag == "--disable-userns" else {"network"}
    )


@pytest.mark.soak
def test_gvisor_without_its_filter_is_noticed(config: SandboxConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    require_runsc()
    monkeypatch.setattr(runsc, "FLAGS", tuple(flag for flag in runsc.FLAGS if flag != "--oci-seccomp"))
    report = selftest.report(GvisorSandbox, config)
    assert not report.ok
    assert {name for name, text in report.attacks if text} == {"calls", "privileges"}, report


@pytest.mark.soak
def test_gvisor_in_the_hosts_network_is_noticed(
    config: SandboxConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either the flag or the namespace would do; without both the host's listener is hit."""
    require_runsc()
    written = runsc.configuration

    def without_network(*arguments: Any, **options: Any) -> dict[str, Any]:
        spec = written(*arguments, **options)
        kinds = [kind for kind in spec["linux"]["namespaces"] if kind["type"] != "network"]
        spec["linux"]["namespaces"] = kinds
        return spec

    monkeypatch.setattr(runsc, "configuration", without_network)
    monkeypatch.setattr(
        runsc, "FLAGS", tuple(flag.replace("network=none", "network=host") for flag in runsc.FLAGS)
    )
    report = selftest.report(GvisorSandbox, config)
    assert not report.ok
    assert {name for name, text in report.attacks if text} >= {"network", "isolation"}, report


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
def test_a_container_with_a_hole_is_noticed(
    config: SandboxConfig, monkeypatch: pytest.MonkeyPatch, hole: str
) -> None:
    adapt = ContainerSandbox._adapt

    def with_hole(self: ContainerSandbox, spec: dict[str, Any], uid: int) -> None:
        adapt(self, spec, uid)
        _HOLES[hole](spec)

    monkeypatch.setattr(ContainerSandbox, "_adapt", with_hole)
    report = selftest.report(ContainerSandbox, config)
    assert not report.ok
    assert hole in report.reason, report


class ClaimsAKernel(BubblewrapSandbox):
    """Claims to be more than it is."""

    level: ClassVar[Level] = Level.GVISOR  # type: ignore[misc]


def test_a_sandbox_on_the_hosts_kernel_is_not_taken_for_more(config: SandboxConfig) -> None:
    report = selftest.report(ClaimsAKernel, config)
    assert not report.ok
    assert {name for name, text in report.attacks if text} == {"kernel", "isolation"}


def test_closed_cache_folder_is_said_with_the_remedy(config: SandboxConfig, ground: Path) -> None:
    closed = ground / "closed-cache"
    closed.mkdir(mode=0o700)
    inner = SandboxConfig(cache_dir=closed / "inner", runtime=config.runtime)
    report = selftest.report(ProcessSandbox, inner)
    if report.ok:
        pytest.skip("an ordinary user's jobs can enter it")
    assert str(closed) in report.reason
    assert "/var/lib/computepool" in report.fix


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("bwrap: setting up uid map: Permission denied", "user namespaces"),
        ("bwrap: Creating new namespace failed: Operation not permitted", "user namespaces"),
        ("bwrap: Unknown option --disable-userns", "0.8"),
        ("something else", "doctor"),
    ],
)
def test_remedies(reason: str, remedy: str) -> None:
    assert remedy in probing.explain(reason)


def test_levels_have_names_and_an_order() -> None:
    assert names() == ("process", "namespace", "container", "gvisor")
    assert Level.parse(" Namespace ") is Level.NAMESPACE
    assert Level.PROCESS < Level.NAMESPACE < Level.CONTAINER < Level.GVISOR
    assert all(Level.parse(level.label) is level for level in Level)
    with pytest.raises(ValueError, match="process, namespace, container, gvisor"):
        Level.parse("vm")
