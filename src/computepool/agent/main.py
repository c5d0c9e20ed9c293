"""Start-up of a node: inspects the machine, enrols it once, then runs the agent until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import importlib.metadata
import logging
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

from computepool.agent.agent import Agent, Machine
from computepool.agent.clock import AgentClock
from computepool.agent.config import AgentConfig, prepare_data_dir
from computepool.agent.context import Node
from computepool.agent.execution.job_environment import prepare_runtime
from computepool.agent.hardware import card_test, probe
from computepool.agent.hub_link import identity as identities
from computepool.agent.hub_link.hub_client import HubClient
from computepool.agent.hub_link.identity import Identity
from computepool.agent.owner import owner_console, saved_options
from computepool.agent.owner.owner_console import OwnerConsole, Watcher
from computepool.agent.packages import environments, offers, pythons
from computepool.agent.packages.interpreters import PYTHON
from computepool.agent.sandbox import volumes
from computepool.agent.sandbox.scratch import open_lock
from computepool.agent.sandbox.selftest import selftest
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.core.errors import BadRequest, ComputePoolError, Conflict, RateLimited, Unavailable
from computepool.protocol import plain_log
from computepool.protocol.nodes.profile import Profile

_log = logging.getLogger(__name__)

_FORMAT = "%(asctime)s %(levelname)s %(message)s"
#: How long the first contact waits for a hub that is starting.
ENROL_WAIT_S = 60.0
#: Descriptors that the agent requests. More would slow down programs that close them all one by one.
OPEN_FILES_MAX = 65_536


def run(config: AgentConfig, *, console: bool = False) -> None:
    """Blocks until the node is stopped or drained. Raises ComputePoolError with one sentence for the owner.

    `console`: for an owner at a terminal, print what the node does, and log to a file.
    """
    prepare_data_dir(config.data_dir)
    watcher = OwnerConsole(clock=AgentClock(), limits=config.limits) if console else Watcher()
    if console:
        owner_console.log_to_file(config.data_dir, watcher, limits=config.limits, format=_FORMAT)
        watcher.show("Checking this machine and testing its sandbox ...")
    else:
        plain_log.configure(logging.INFO, format=_FORMAT)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    raise_open_files()
    volumes.enter_namespace()
    with only_agent(config.data_dir):
        identity = identities.load(config.identity_path)
        if identity is None and not config.code:
            raise BadRequest(
                "This node is not enrolled yet: create a code with `pool node code` and start it with --code CODE.",
                field="code",
            )
        machine = inspect(config)
        # Not uvloop, which starts processes three times slower.
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(_run(config, identity, machine, watcher=watcher))


def raise_open_files() -> None:
    """Allow more descriptors, of which each job takes several. Jobs have a limit of their own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def inspect(config: AgentConfig) -> Machine:
    """Prepare the jobs' Python, test the sandboxes and probe the hardware. The first start takes seconds."""
    config.cache_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    config.work_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    runtime = prepare_runtime(config.cache_dir, add=(*config.runtime_add, *offers.runtime_parts(config.data_dir)))
    sandbox_config = SandboxConfig(cache_dir=config.cache_dir, runtime=runtime)
    hardware = probe.probe(config)
    level = selftest.choose_level(
        lambda level: selftest.report(selftest.BACKENDS[level], sandbox_config),
        config.sandbox,
        cards=bool(hardware.cards),
    )
    sandbox = selftest.BACKENDS[level](sandbox_config)
    if reason := card_test.reason_against(sandbox, runtime, hardware.cards, work_dir=config.work_dir):
        _log.warning("not lending GPUs at level %s: %s", level.label, reason)
        hardware = dataclasses.replace(hardware, cards=())
    profile = probe.profile(
        config,
        hardware,
        level=level,
        python=PYTHON,
        fetches_python=pythons.fetchable(config),
        installs=(config.uv or environments.find_uv()) is not None,
        version=version(),
        runtime=runtime.short,
    )
    _log.info(
        "%s: %g cores, %d MB RAM, %d MB disk, %s; isolation %s, runtime %s",
        config.name,
        profile.cores,
        profile.ram_mb,
        profile.disk_mb,
        ", ".join(card.name for card in hardware.cards) or "no GPU",
        level.label,
        runtime.short,
    )
    return Machine(sandbox=sandbox, runtime=runtime, cards=hardware.cards, profile=profile)


async def _run(config: AgentConfig, identity: Identity | None, machine: Machine, *, watcher: Watcher) -> None:
    clock = AgentClock()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    client = HubClient(config.hub_urls, clock=clock, limits=config.limits, identity=identity)
    if identity is None:
        enrolment = asyncio.create_task(enrol(config, machine.profile, client, clock=clock))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([enrolment, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not enrolment.done():
            enrolment.cancel()
            return
        identity = enrolment.result()
    saved_options.save(config)
    node = Node(client=client, identity=identity, clock=clock, limits=config.limits)
    agent = Agent(config, node, machine, stop=stop, watcher=watcher)
    await watcher.greet(config, machine.profile, node)
    await agent.run()


async def enrol(config: AgentConfig, profile: Profile, client: HubClient, *, clock: AgentClock) -> Identity:
    """Exchange the one-time code for a place in the pool, and keep it in identity.json."""
    key_path = config.data_dir / "node.key"
    key = identities.load_key(key_path)
    request = identities.register_request(config.code or "", key, profile)
    backoff = client.backoff()
    deadline = clock.steady() + ENROL_WAIT_S
    reply = None
    while reply is None:
        try:
            reply = await client.register(request)
        except (Unavailable, RateLimited) as error:
            if clock.steady() > deadline:
                raise Unavailable(f"The node could not be enrolled: {error.detail}") from error
            await asyncio.sleep(min(2.0, backoff.delay_s(error)))
        except Conflict as error:
            key_path.unlink(missing_ok=True)  # The key belongs to a node already; the next try makes a new one.
            raise Conflict(f"The node could not be enrolled: {error.detail}") from error
        except ComputePoolError as error:
            raise type(error)(f"The node could not be enrolled: {error.detail}", field=error.field) from error
    identity = identities.from_reply(reply, key, hub_url=client.url)
    identities.save(identity, config.identity_path)
    key_path.unlink(missing_ok=True)
    client.identify(identity)
    _log.info("enrolled as %s at %s", identity.node_id, client.url)
    return identity


def version() -> str:
    try:
        return importlib.metadata.version("computepool")
    except importlib.metadata.PackageNotFoundError:
        return ""


@contextlib.contextmanager
def only_agent(data_dir: Path) -> Iterator[None]:
    """Refuse to start a second agent: two with one identity would fight over leases."""
    try:
        lock = open_lock(data_dir / "lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Conflict(f"Another agent already runs in {data_dir}; stop it or use another folder.") from None
    with os.fdopen(lock):
        yield
