"""Agents against a fake hub, in this process, with real sandboxes.

Folders lie under /tmp, because a root agent's jobs run as another user and pytest's own are closed to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.agent import context
from computepool.agent.agent import Agent, Machine
from computepool.agent.clock import AgentClock
from computepool.agent.config import AgentConfig, AgentLimits, prepare_data_dir
from computepool.agent.execution.job_environment import prepare_runtime
from computepool.agent.hardware import probe
from computepool.agent.hardware.cards import DetectedCard
from computepool.agent.hub_link import identity as identities
from computepool.agent.hub_link.hub_client import HubClient
from computepool.agent.hub_link.identity import Identity
from computepool.agent.main import enrol
from computepool.agent.owner.owner_console import Watcher
from computepool.agent.packages.interpreters import PYTHON
from computepool.agent.packages.pythons import fetchable
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.scratch import remove_tree
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.agent.sandbox.volumes import sweep
from computepool.core.isolation import Level
from computepool.testing.processes import RealPool
from tests.agent.fake_hub import CODE, FakeHub, until
from tests.sandbox.running import make_sandbox

#: Nothing is given back for being slow unless a test asks for it: the machine may be busy.
QUICK = AgentLimits(
    retry_base_s=0.05,
    retry_max_s=0.2,
    poll_slack_s=5,
    stop_flush_s=3,
    worker_idle_s=20,
    idle_pause_s=0.02,
    give_back_after_s=60,
    give_back_unstarted_s=60,
)


@pytest.fixture(scope="session")
def ground() -> Iterator[Path]:
    """A folder that every user can pass."""
    folder = Path(tempfile.mkdtemp(prefix="computepool-agent-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    sweep(folder)  # Of tests that failed.
    remove_tree(folder)


@pytest.fixture(scope="session")
def runtime(ground: Path) -> Runtime:
    cache = ground / "cache"
    cache.mkdir(mode=0o755)
    return prepare_runtime(cache)


@pytest.fixture
def shared(ground: Path) -> Path:
    """A folder in which jobs of every user may write."""
    folder = Path(tempfile.mkdtemp(prefix="shared-", dir=ground))
    folder.chmod(0o777)
    return folder


@pytest.fixture
def data_dir(ground: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="node-", dir=ground))
    prepare_data_dir(folder)
    yield folder
    remove_tree(folder)


@pytest.fixture
async def hub() -> AsyncIterator[FakeHub]:
    hub = FakeHub()
    await hub.start()
    yield hub
    await hub.stop()


@pytest.fixture
def real() -> Iterator[RealPool]:
    """A real hub, as a process."""
    with RealPool() as pool:
        pool.start_hub()
        yield pool


def node_with(client: HubClient, limits: AgentLimits = QUICK) -> context.Node:
    """What parts of an agent share, with any identity."""
    identity = Identity(key=Ed25519PrivateKey.generate(), node_id="n", owner="o", hub_keys={}, hub_url=client.url)
    return context.Node(client=client, identity=identity, clock=AgentClock(), limits=limits)


@dataclass
class Node:
    """A running agent and what the tests want to know of it."""

    agent: Agent
    config: AgentConfig
    stop: asyncio.Event
    task: asyncio.Task[None]
    machine: Machine = field(repr=False)

    async def finish(self) -> None:
        self.stop.set()
        await self.task


StartNode = Callable[..., Any]


@pytest.fixture
async def start_node(hub: FakeHub, data_dir: Path, runtime: Runtime, ground: Path) -> AsyncIterator[StartNode]:
    nodes: list[Node] = []

    async def start(
        *,
        level: str = "process",
        limits: AgentLimits = QUICK,
        watcher: Watcher | None = None,
        cards: Sequence[DetectedCard] = (),
        **fields: Any,
    ) -> Node:
        config = AgentConfig(
            hub_url=fields.pop("hub_url", hub.url), data_dir=data_dir, code=CODE, name="test", limits=limits,
            sandbox=level, gpus=False, **fields,
        )  # fmt: skip
        machine = make_machine(config, runtime, ground, cards=cards)
        clock = AgentClock()
        client = HubClient(config.hub_urls, clock=clock, limits=limits)
        identity = identities.load(config.identity_path)
        if identity is None:
            identity = await enrol(config, machine.profile, client, clock=clock)
        client.identify(identity)
        stop = asyncio.Event()
        parts = context.Node(client=client, identity=identity, clock=clock, limits=limits)
        agent = Agent(config, parts, machine, stop=stop, watcher=watcher or Watcher())
        node = Node(agent, config, stop, asyncio.create_task(agent.run()), machine)
        nodes.append(node)
        await until(lambda: agent.loop.last_contact is not None or node.task.done())
        return node

    yield start
    for node in nodes:
        node.stop.set()
        with contextlib.suppress(Exception):
            await node.task


def make_machine(config: AgentConfig, runtime: Runtime, ground: Path, *, cards: Sequence[DetectedCard] = ()) -> Machine:
    level = Level.parse(config.sandbox)
    config.work_dir.mkdir(mode=0o711, exist_ok=True)
    config.cache_dir.mkdir(mode=0o755, exist_ok=True)
    hardware = probe.Hardware(cores=2, ram_mb=4096, disk_mb=4096, cards=tuple(cards))
    profile = probe.profile(
        config, hardware, level=level, python=PYTHON, fetches_python=fetchable(config), version="test"
    )
    sandbox = make_sandbox(level, SandboxConfig(cache_dir=ground / "cache", runtime=runtime))
    return Machine(sandbox=sandbox, runtime=runtime, cards=tuple(cards), profile=profile)
