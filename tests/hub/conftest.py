"""A hub in this process, on SQLite by default; tests that must hold on both databases ask for `any_hub`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest

from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.attacks import unpickling


@pytest.fixture(autouse=True)
def _no_unpickling() -> Iterator[None]:
    """Whatever a test sends, the hub opens no pickle."""
    with unpickling.forbidden():
        yield


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubDouble]:
    async with running_hub(tmp_path) as running:
        yield running


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def sam(hub: HubDouble) -> httpx2.AsyncClient:
    return await hub.account("sam", "submitter")


@pytest.fixture
async def pia(hub: HubDouble) -> httpx2.AsyncClient:
    return await hub.account("pia", "provider")


@pytest.fixture(params=["sqlite", "postgresql"])
async def any_hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HubDouble]:
    url = request.getfixturevalue("migrated_url") if request.param == "postgresql" else ""
    async with running_hub(tmp_path, database_url=url) as running:
        yield running
