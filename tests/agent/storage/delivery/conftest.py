from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from computepool.testing.hub import HubDouble, running_hub
from tests.agent.storage.delivery.home_node import Home, home_of


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubDouble]:
    async with running_hub(tmp_path / "hub") as running:
        yield running


@pytest.fixture
async def home(hub: HubDouble, tmp_path: Path) -> AsyncIterator[Home]:
    async with home_of(hub, tmp_path / "agent") as made:
        yield made
