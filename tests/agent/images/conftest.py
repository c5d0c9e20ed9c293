"""A registry on this machine, and the parts of an agent that prepare images."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from computepool.agent.clock import AgentClock
from computepool.agent.config import AgentLimits
from computepool.agent.execution.job_environment import JobEnvironment
from computepool.agent.hub_link.hub_client import HubClient
from computepool.agent.images.images import Images
from computepool.agent.network.egress import Egress
from computepool.agent.packages.builder import Builder
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.agent.sandbox.volumes import Volumes
from computepool.agent.storage.artifacts import ArtifactCache
from computepool.agent.storage.folders import WorkFolders
from computepool.agent.storage.sweeper import Sweeper
from computepool.core.isolation import Level
from tests.agent.conftest import QUICK, node_with
from tests.agent.fake_hub import FakeHub
from tests.sandbox.running import make_sandbox

_CONFIG = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
log: {{accesslog: {{disabled: true}}, level: error}}
"""


@pytest.fixture(scope="session")
def registry() -> Iterator[str]:
    """host:port of a real registry, Debian's."""
    with tempfile.TemporaryDirectory(prefix="computepool-registry-", dir="/tmp") as folder:
        port = _free_port()
        config = Path(folder, "config.yml")
        config.write_text(_CONFIG.format(folder=Path(folder, "data"), port=port))
        process = subprocess.Popen(
            ["docker-registry", "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _await_answer(f"http://127.0.0.1:{port}/v2/", process)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _await_answer(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx2.HTTPError):
            if httpx2.get(url).is_success:
                return
        time.sleep(0.02)
    raise AssertionError("the registry does not start")


@dataclass
class Kit:
    """`images` and what surrounds it."""

    images: Images
    sandbox: Sandbox
    environment: JobEnvironment
    hub: FakeHub
    folder: Path
    notes: list[str] = field(default_factory=list)


MakeKit = Callable[..., Kit]


@pytest.fixture
def make_kit(hub: FakeHub, data_dir: Path, runtime: Runtime, ground: Path) -> Iterator[MakeKit]:
    stack = contextlib.ExitStack()

    def make(*, registries: tuple[str, ...] = (), level: Level = Level.NAMESPACE, **limited: Any) -> Kit:
        limits: AgentLimits = dataclasses.replace(QUICK, **limited)
        sandbox = make_sandbox(level, SandboxConfig(cache_dir=ground / "cache", runtime=runtime))
        stack.callback(sandbox.close)
        environment = JobEnvironment(sandbox, runtime, ())
        sweeper = Sweeper()
        stack.callback(sweeper.close)
        work = data_dir / "work"
        work.mkdir(mode=0o711, exist_ok=True)
        folders = WorkFolders(work, sweeper, Volumes(data_dir / "cache"))
        stack.callback(folders.close)
        egress = Egress(work, limits=limits)
        node = node_with(HubClient((hub.url,), clock=AgentClock(), limits=limits), limits)
        images = Images(
            data_dir / "cache" / "images",
            Builder(environment, folders, egress),
            ArtifactCache(data_dir / "cache" / "artifacts", node),
            egress=egress,
            runtime=runtime,
            limits=limits,
            registries=registries,
        )
        return Kit(images, sandbox, environment, hub, data_dir)

    with stack:
        yield make
