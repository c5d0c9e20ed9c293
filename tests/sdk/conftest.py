from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from computepool import Pool, connect
from computepool.testing.processes import RealPool
from tests.sdk.fake_hub import FakeHub

#: The node of the pool in which job classes are tried; it has nothing but what the agent puts there.
NODE = "no-package-here"


@pytest.fixture(autouse=True)
def _own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the config file of the person who runs it."""
    monkeypatch.setenv("COMPUTEPOOL_CONFIG", str(tmp_path / "config.json"))
    for name in ("COMPUTEPOOL_HUB", "COMPUTEPOOL_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        yield hub


@pytest.fixture
def pool(hub: FakeHub) -> Iterator[Pool]:
    with connect(hub.url, "cp_test", retry_for=10) as pool:
        yield pool


@pytest.fixture(scope="session")
def class_pool() -> Iterator[RealPool]:
    """A hub and a sandboxed node, as processes, shared by the tests of job classes and their groups."""
    with RealPool() as pool:
        pool.start_hub()
        pool.start_agent(sandbox="namespace", name=NODE, tags=("linux",))
        yield pool
