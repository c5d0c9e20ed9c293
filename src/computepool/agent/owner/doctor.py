"""Checks whether this machine is fit to be a node, with a fix for each check that fails."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from computepool.agent.clock import AgentClock, SystemAgentClock
from computepool.agent.config import MIB, AgentConfig, prepare_data_dir
from computepool.agent.execution.job_environment import prepare_runtime
from computepool.agent.hardware import benchmark, driver
from computepool.agent.hardware.gpus import find_cards, run_tool
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


def check_all(config: AgentConfig, clock: AgentClock | None = None) -> list[DoctorCheck]:
    """Run every check. Takes a few seconds, because the sandboxes are really attacked."""
    checks = asyncio.run(_hub(config, clock or SystemAgentClock()))
    checks += [*_folder(config), *_sandboxes(config), *_cards(config), *_gvisor_cards(config)]
    checks += [*_speed(config), *_uv(config), *_other_pythons(config)]
    return checks


async def _hub(config: AgentConfig, clock: AgentClock) -> list[DoctorCheck]:
    client = HubClient(config.hub_urls, clock=clock, limits=config.limits)
    try:
        hub_ms = await client.hub_time_ms()
    except ComputePoolError as error:
        fix = "check the address and that the hub runs; a firewall between them must let HTTP out"
        return [_fail("hub", error.detail, fix=fix)]
    finally:
        await client.close()
    skew_ms = abs(hub_ms - clock.now_ms())
    reached = _ok("hub", f"{client.url} answers")
    text = f"this machine's clock differs from the hub's by {skew_ms // 1000} s"
    if skew_ms < _SKEW_SEEN_MS:
        text = "this machine's clock agrees with the hub's"
    if skew_ms > CLOCK_SKEW_MAX_MS:
        return [reached, _warn("clock", text, fix="sudo timedatectl set-ntp true")]
    return [reached, _ok("clock", text)]


def _folder(config: AgentConfig) -> Iterator[DoctorCheck]:
    try:
        prepare_data_dir(config.data_dir)
        free_mb = shutil.disk_usage(config.data_dir).free // MIB
    except OSError as error:
        fix = f"make {config.data_dir} writable for this user, or choose another folder"
        yield _fail("folder", str(error), fix=fix)
        return
    # Only a root agent gives its jobs a user of their own.
    blocked = unreachable(config.data_dir) if os.geteuid() == 0 else None
    if blocked is not None:
        fix = "use a folder such as /var/lib/computepool, or open the way: chmod o+x " + str(blocked)
        detail = f"jobs cannot reach {config.data_dir}: {blocked} is closed to other users"
        yield _fail("folder", detail, fix=fix)
    low = free_mb < DISK_FREE_MIN_MB
    yield DoctorCheck(
        name="disk",
        health=Health.WARN if low else Health.OK,
        detail=f"{memory_size(free_mb)} free in {config.data_dir}",
        fix="free some space, or move the folder to a larger disk" if low else "",
    )
    try:
        identity = identities.load(config.identity_path)
    except ComputePoolError as error:
        yield _fail("identity", error.detail)
        return
    if identity is None:
        fix = "make a code with `pool node code` and start with --code CODE"
        yield _warn("identity", "not enrolled yet", fix=fix)
    else:
        yield _ok("identity", f"{identity.node_id} at {identity.hub_url}")


def _sandboxes(config: AgentConfig) -> Iterator[DoctorCheck]:
    try:
        config.cache_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        runtime = prepare_runtime(config.cache_dir, add=config.runtime_add)
        runtime.verify()
        reports = selftest.levels(SandboxConfig(cache_dir=config.cache_dir, runtime=runtime))
    except (OSError, SandboxError) as error:
        yield _fail("sandbox", str(error))
        return
    text = f"{runtime.short}, {runtime.files} files, {byte_size(runtime.size)}, verified"
    yield _ok("runtime", text)
    yield _quota(config)
    strong = any(report.ok and report.level >= Level.NAMESPACE for report in reports)
    for report in reports:
        needed = report.level >= Level.NAMESPACE and not strong
        health = Health.OK if report.ok else Health.WARN if needed else Health.OK
        text = f"{'passed' if report.ok else 'not usable'}: {report.reason}"
        yield DoctorCheck(name=f"sandbox {report.level.label}", health=health, detail=text, fix=report.fix)
    if not strong:
        detail = (
            "without a namespace sandbox this node runs only its owner's jobs and those of trusted accounts"
        )
        yield _warn("isolation", detail, fix="sudo apt install bubblewrap")
    limits = next((report.limits for report in reversed(reports) if report.ok), "")
    weak = limits == "rlimit"
    yield DoctorCheck(
        name="cgroups",
        health=Health.WARN if weak or not limits else Health.OK,
        detail=f"limits are enforced by {limits or 'nothing'}",
        fix="start the agent as a systemd service with Delegate=yes, or as root" if weak else "",
    )


def _quota(config: AgentConfig) -> DoctorCheck:
    found = Volumes(config.cache_dir)
    if not found.missing:
        text = "loop: every job's folder is a file system of the size it asked for"
        return _ok("disk quota", text)
    text = f"watch: the agent measures jobs' folders every second ({found.missing})"
    fix = "start the agent as root on a machine with loop devices and mkfs.ext4 for exact limits"
    return _ok("disk quota", text, fix=fix)


def _cards(config: AgentConfig) -> Iterator[DoctorCheck]:
    if config.gpus is False:
        yield _ok("gpu", "graphics cards are not lent")
        return
    cards = find_cards()
    for card in cards:
        yield _ok("gpu", f"{card.name}, {memory_size(card.vram_mb)}, tier {card.tier}")
    if cards:
        yield _card_loan(config)
        return
    if "NVIDIA" in (run_tool(["lspci"]) or ""):
        fix = "install the NVIDIA driver; `nvidia-smi` must list the card"
        yield _warn("gpu", "an NVIDIA card without a driver", fix=fix)
        return
    yield _ok("gpu", "no graphics card found; the node lends processors only")


def _card_loan(config: AgentConfig) -> DoctorCheck:
    """Who may use the cards."""
    if config.gpus:
        return _ok("gpu loan", "cards are lent to everybody (--gpus)")
    detail = "cards are for your own jobs and those of accounts you trust"
    return _ok("gpu loan", detail, fix="pool node start --gpus lends them to all")


def _gvisor_cards(config: AgentConfig) -> Iterator[DoctorCheck]:
    """Checked only if the owner lends cards at that level."""
    found = runsc.find()
    if config.sandbox != Level.GVISOR.label or config.gpus is False or isinstance(found, runsc.Missing):
        return
    reason = runsc.nvproxy_reason(found.path, driver.version())
    fix = "start with --sandbox namespace, or install a newer runsc" if reason else ""
    health = Health.WARN if reason else Health.OK
    detail = reason or "runsc knows this driver (passing cards into gvisor is not tested)"
    yield DoctorCheck(name="gpu in gvisor", health=health, detail=detail, fix=fix)


def _speed(config: AgentConfig) -> Iterator[DoctorCheck]:
    """Run the hub's measurement locally. Takes seconds."""
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
            measured = f"{gflops / 1000:.3g} TFLOPS" + (
                f", {card.tier} does {known / 1000:.3g}" if known else ""
            )
        yield _ok("gpu speed", f"{card.name}: {measured}")


def _uv(config: AgentConfig) -> Iterator[DoctorCheck]:
    found = config.uv or find_uv()
    if found is None:
        fix = "pipx install uv"
        yield _warn("uv", "jobs with dependencies cannot run here", fix=fix)
    else:
        yield _ok("uv", found)


def _other_pythons(config: AgentConfig) -> Iterator[DoctorCheck]:
    if not config.fetch_python:
        return
    if found := fetchable(config):
        listed = f"jobs may have {', '.join(found)}, fetched when one needs it"
        yield _ok("other Pythons", listed)
    else:
        fix = "name a source of them: pool node start --python-mirror URL"
        yield _warn("other Pythons", "uv offers none", fix=fix)
