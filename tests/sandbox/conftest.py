"""Real sandboxes on this machine.

Folders are made where every user can enter them: a root agent's jobs run as other users, for whom pytest's own temporary
folders are closed.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import remove_tree
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.agent.sandbox.volumes import enter_namespace, sweep
from computepool.core.isolation import Level
from tests.sandbox.running import make_sandbox

LABELS = [level.label for level in Level]
AtLevel = Callable[[Level], Sandbox]


def _fast_folder() -> str:
    """In memory, if there is room and programs may run: each runtime is thousands of files."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return "/tmp"
    usable = found.f_bavail * found.f_frsize > 4 * 1024**3 and not found.f_flag & os.ST_NOEXEC
    return "/dev/shm" if usable else "/tmp"


@pytest.fixture(scope="session", autouse=True)
def mount_namespace() -> None:
    """As agents have one: only then launchers have their own, too."""
    enter_namespace()


@pytest.fixture(scope="session")
def ground() -> Iterator[Path]:
    """A folder that every user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="computepool-test-", dir=_fast_folder()))
    folder.chmod(0o755)
    yield folder
    sweep(folder)  # after tests that failed
    remove_tree(folder)


@pytest.fixture(scope="session")
def runtime(ground: Path) -> Iterator[Runtime]:
    """What jobs see. Whatever all the hostile jobs try, its content must still match its digest."""
    made = Runtime.prepare(ground / "cache", {})
    yield made
    made.verify()


@pytest.fixture(scope="session")
def config(ground: Path, runtime: Runtime) -> SandboxConfig:
    return SandboxConfig(cache_dir=ground / "cache", runtime=runtime)


@pytest.fixture(scope="session")
def at_level(config: SandboxConfig) -> Iterator[AtLevel]:
    """Makes the sandbox of each level once."""
    with ExitStack() as opened:
        yield functools.cache(lambda level: opened.enter_context(closing(make_sandbox(level, config))))


@pytest.fixture(scope="session", params=LABELS)
def sandbox(request: pytest.FixtureRequest, at_level: AtLevel) -> Sandbox:
    """Each level in turn."""
    return at_level(Level.parse(request.param))


@pytest.fixture(scope="session", params=LABELS[1:])
def boxed(request: pytest.FixtureRequest, at_level: AtLevel) -> Sandbox:
    """Each level at which untrusted jobs may run."""
    return at_level(Level.parse(request.param))


@pytest.fixture(scope="session")
def process(at_level: AtLevel) -> Sandbox:
    return at_level(Level.PROCESS)


@pytest.fixture(scope="session")
def bwrap(at_level: AtLevel) -> Sandbox:
    return at_level(Level.NAMESPACE)


@pytest.fixture(scope="session")
def gvisor(at_level: AtLevel) -> Sandbox:
    return at_level(Level.GVISOR)
