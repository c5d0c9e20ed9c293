"""Real sandboxes on this machine. Folders are made under /tmp, because a root agent's jobs run as another user
and pytest's own temporary folders are closed to everyone else.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from computepool.agent.sandbox.backends import runsc
from computepool.agent.sandbox.backends.bubblewrap import BubblewrapSandbox
from computepool.agent.sandbox.backends.container import ContainerSandbox
from computepool.agent.sandbox.backends.gvisor import GvisorSandbox
from computepool.agent.sandbox.backends.process import ProcessSandbox
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import remove_tree
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.agent.sandbox.volumes import sweep
from tests.sandbox.running import require_runsc


def _quick_folder() -> str:
    """In memory where there is room and programs may run: the runtimes alone are ten thousand files."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return "/tmp"
    roomy = found.f_bavail * found.f_frsize > 4 * 1024**3 and not found.f_flag & os.ST_NOEXEC
    return "/dev/shm" if roomy else "/tmp"


@pytest.fixture(scope="session")
def ground() -> Iterator[Path]:
    """A folder that every user can pass."""
    folder = Path(tempfile.mkdtemp(prefix="computepool-test-", dir=_quick_folder()))
    folder.chmod(0o755)
    yield folder
    sweep(folder)  # Of tests that failed.
    remove_tree(folder)


@pytest.fixture(scope="session")
def runtime(ground: Path) -> Iterator[Runtime]:
    """What jobs see. Whatever all of them tried, its content must still be what its name says."""
    made = Runtime.prepare(ground / "cache", {})
    yield made
    made.verify()


@pytest.fixture(scope="session")
def config(ground: Path, runtime: Runtime) -> SandboxConfig:
    return SandboxConfig(cache_dir=ground / "cache", runtime=runtime)


@pytest.fixture(scope="session")
def bwrap(config: SandboxConfig) -> Iterator[BubblewrapSandbox]:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    sandbox = BubblewrapSandbox(config)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session")
def gvisor(config: SandboxConfig) -> Iterator[GvisorSandbox]:
    require_runsc()
    sandbox = GvisorSandbox(config)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session")
def container(config: SandboxConfig) -> Iterator[ContainerSandbox]:
    sandbox = ContainerSandbox(config)
    if isinstance(sandbox._found, runsc.Missing):
        pytest.skip(sandbox._found.reason)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session")
def process(config: SandboxConfig) -> Iterator[ProcessSandbox]:
    sandbox = ProcessSandbox(config)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session", params=["process", "namespace", "container", "gvisor"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Each built-in level in turn."""
    return _fixture_of(request)


@pytest.fixture(scope="session", params=["namespace", "container", "gvisor"])
def boxed(request: pytest.FixtureRequest) -> Sandbox:
    """Each level that strangers' jobs may run at."""
    return _fixture_of(request)


def _fixture_of(request: pytest.FixtureRequest) -> Sandbox:
    chosen = request.getfixturevalue("bwrap" if request.param == "namespace" else request.param)
    assert isinstance(chosen, Sandbox)
    return chosen
