"""Checks of this machine's fitness to be a node, with a fix for each check that fails."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from computepool.agent.clock import AgentClock
from computepool.agent.config import MIB, AgentConfig, prepare_data_dir
from computepool.agent.execution.job_environment import prepare_runtime
from computepool.agent.hardware import benchmark, driver
from computepool.agent.hardware.cards import run_tool
from computepool.agent.hardware.gpus import find_cards
from computepool.agent.hub_link import identity as identities
from computepool.agent.hub_link.hub_client import HubClient
from computepool.agent.packages.environments import find_uv
from computepool.agent.packages.pythons import fetchable
from computepool.agent.sandbox.backends import runsc
from computepool.agent.sandbox.base import SandboxError
from computepool.agent.sandbox.scratch import unreachable
from computepool.agent.sandbox.selftest import selftest
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.agent.sandbox.volumes import Volumes
from computepool.core.errors import ComputePoolError
from computepool.core.isolation import Level
from computepool.core.trust.tiers import REFERENCE, REFERENCE_SCORE, TIER_GFLOPS
from computepool.core.words import byte_size, memory_size

DISK_FREE_MIN_MB = 2048
CLOCK_SKEW_MAX_MS = 5 * 60 * 1000
#: The hub's Date header has whole seconds and may be one old.
_SKEW_SEEN_MS = 3_000


class Health(StrEnum):
    OK = "ok"
    WARN = "warn"  #: the node works, but not as well as it could
    FAIL = "fail"  #: the node cannot work


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    health: Health
    name: str
    detail: str
    fix: str = ""


_ok, _warn, _fail = (partial(DoctorCheck, health) for health in (Health.OK, Health.WARN, Health.FAIL))


def _ok_or_warn(name: str, detail: str, *, warn: bool, fix: str) -> DoctorCheck:
    return _warn(name, detail, fix) if warn else _ok(name, detail)


def check_all(config: AgentConfig, clock: AgentClock | None = None) -> list[DoctorCheck]:
    """Run every check. Takes a few seconds: the sandboxes are attacked, and the machine is measured."""
    checks = asyncio.run(_hub(config, clock or AgentClock()))
    checks += [*_folder(config), *_sandboxes(config), *_cards(config), *_gvisor_cards(config)]
    checks += [*_speed(config), *_uv(config), *_other_pythons(config)]
    return checks


async def _hub(config: AgentConfig, clock: AgentClock) -> list[DoctorCheck]:
    client = HubClient(config.hub_urls, clock=clock, limits=config.limits)
    try:
        hub_ms = await client.hub_time_ms()
    except ComputePoolError as error:
        fix = "check the address and that the hub runs; a firewall between them must let HTTP out"
        return [_fail("hub", error.detail, fix)]
    finally:
        await client.close()
    skew_ms = abs(hub_ms - clock.now_ms())
    agrees = "agrees with the hub's" if skew_ms < _SKEW_SEEN_MS else f"differs from the hub's by {skew_ms // 1000} s"
    clock_check = _ok_or_warn(
        "clock", f"this machine's clock {agrees}", warn=skew_ms > CLOCK_SKEW_MAX_MS, fix="sudo timedatectl set-ntp true"
    )
    return [_ok("hub", f"{client.url} answers"), clock_check]


def _folder(config: AgentConfig) -> Iterator[DoctorCheck]:
    try:
        prepare_data_dir(config.data_dir)
        free_mb = shutil.disk_usage(config.data_dir).free // MIB
    except OSError as error:
        yield _fail("folder", str(error), f"make {config.data_dir} writable for this user, or choose another folder")
        return
    # Only a root agent runs jobs as other users.
    blocked = unreachable(config.data_dir) if os.geteuid() == 0 else None
    if blocked is not None:
        fix = f"use a folder such as /var/lib/computepool, or open the way: chmod o+x {blocked}"
        yield _fail("folder", f"jobs cannot reach {config.data_dir}: {blocked} is closed to other users", fix)
    detail = f"{memory_size(free_mb)} free in {config.data_dir}"
    fix = "free some space, or move the folder to a larger disk"
    yield _ok_or_warn("disk", detail, warn=free_mb < DISK_FREE_MIN_MB, fix=fix)
    try:
        identity = identities.load(config.identity_path)
    except ComputePoolError as error:
        yield _fail("identity", error.detail)
        return
    if identity is None:
        yield _warn("identity", "not enrolled yet", "create a code with `pool node code` and start with --code CODE")
    else:
        yield _ok("identity", f"{identity.node_id} at {identity.hub_url}")


def _sandboxes(config: AgentConfig) -> Iterator[DoctorCheck]:
    try:
        config.cache_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        runtime = prepare_runtime(config.cache_dir, add=config.runtime_add)
        summary = runtime.verify()
        reports = selftest.levels(SandboxConfig(cache_dir=config.cache_dir, runtime=runtime))
    except (OSError, SandboxError) as error:
        yield _fail("sandbox", str(error))
        return
    yield _ok("runtime", f"{runtime.short}, {summary.files} files, {byte_size(summary.size)}, verified")
    yield _quota(config)
    strong = any(report.ok and report.level >= Level.NAMESPACE for report in reports)
    for report in reports:
        make = _warn if report.level >= Level.NAMESPACE and not strong else _ok
        passed = "passed" if report.ok else "not usable"
        yield make(f"sandbox {report.level.label}", f"{passed}: {report.reason}", report.fix)
    if not strong:
        detail = "without a namespace sandbox this node runs only its owner's jobs and those of trusted accounts"
        yield _warn("isolation", detail, "sudo apt install bubblewrap")
    limits = next((report.limits for report in reversed(reports) if report.ok), "")
    fix = "start the agent as a systemd service with Delegate=yes, or as root" if limits == "rlimit" else ""
    detail = f"limits are enforced by {limits or 'nothing'}"
    yield _ok_or_warn("cgroups", detail, warn=limits in ("", "rlimit"), fix=fix)


def _quota(config: AgentConfig) -> DoctorCheck:
    found = Volumes(config.cache_dir)
    if not found.missing:
        return _ok("disk quota", "loop: every job's folder is a file system of the requested size")
    detail = f"watch: the agent measures jobs' folders every second ({found.missing})"
    return _ok(
        "disk quota", detail, "start the agent as root on a machine with loop devices and mkfs.ext4 for exact limits"
    )


def _cards(config: AgentConfig) -> Iterator[DoctorCheck]:
    if config.gpus is False:
        yield _ok("gpu", "GPUs are not lent")
        return
    cards = find_cards()
    for card in cards:
        yield _ok("gpu", f"{card.name}, {memory_size(card.vram_mb)}, tier {card.tier}")
    if cards and config.gpus:
        yield _ok("gpu loan", "GPUs are lent to everybody (--gpus)")
    elif cards:
        detail = "GPUs are lent only to you and the accounts you trust"
        yield _ok("gpu loan", detail, "pool node start --gpus lends them to all")
    elif "NVIDIA" in (run_tool(["lspci"]) or ""):
        yield _warn(
            "gpu", "an NVIDIA GPU without a driver", "install the NVIDIA driver; `nvidia-smi` must list the GPU"
        )
    else:
        yield _ok("gpu", "no GPU found; the node lends only processors")


def _gvisor_cards(config: AgentConfig) -> Iterator[DoctorCheck]:
    """Checked only if the owner lends cards at that level."""
    if config.sandbox != Level.GVISOR.label or config.gpus is False:
        return
    try:
        found = runsc.find()
    except SandboxError:
        return  # The report on the level says so.
    reason = runsc.nvproxy_reason(found.path, driver.version())
    detail = reason or "runsc knows this driver (passing GPUs into gvisor is not tested)"
    fix = "start with --sandbox namespace, or install a newer runsc"
    yield _ok_or_warn("gpu in gvisor", detail, warn=bool(reason), fix=fix)


def _speed(config: AgentConfig) -> Iterator[DoctorCheck]:
    """Run the hub's measurement locally."""
    cards = () if config.gpus is False else find_cards()
    try:
        found = benchmark.measure_here(config.data_dir, cards=len(cards))
    except OSError as error:
        yield _warn("speed", f"not measured: {error}")
        return
    detail = (
        f"a core scores {found.get('cpu')} ({REFERENCE_SCORE} is {REFERENCE}), memory {found.get('memory_mb_s')} MB/s, "
        f"disk {found.get('disk_mb_s')} MB/s; the hub decides its rating: pool node show"
    )
    yield _ok("speed", detail)
    for card, gflops in zip(cards, found["gflops"], strict=True):
        known = TIER_GFLOPS.get(card.tier)
        measured = f"claimed, not measured ({'; '.join(found['notes'])})"
        if gflops is not None:
            measured = f"{gflops / 1000:.3g} TFLOPS" + (f", {card.tier} does {known / 1000:.3g}" if known else "")
        yield _ok("gpu speed", f"{card.name}: {measured}")


def _uv(config: AgentConfig) -> Iterator[DoctorCheck]:
    found = config.uv or find_uv()
    if found is None:
        yield _warn("uv", "jobs with dependencies cannot run here", "pipx install uv")
    else:
        yield _ok("uv", found)


def _other_pythons(config: AgentConfig) -> Iterator[DoctorCheck]:
    if not config.fetch_python:
        return
    if found := fetchable(config):
        yield _ok("other Pythons", f"jobs may have {', '.join(found)}, fetched when one needs it")
    else:
        yield _warn("other Pythons", "uv offers none", "name a source: pool node start --python-mirror URL")
