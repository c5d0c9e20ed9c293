"""A hub in this process, on SQLite by default; tests that must hold on both databases ask for `any_hub`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from computepool.testing.hub import HubDouble, running_hub


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubDouble]:
    async with running_hub(tmp_path) as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
async def any_hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[HubDouble]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgresql" else ""
    async with running_hub(tmp_path, database_url=url) as running:
        yield running
