"""Fixtures of hubs with settings of a test module."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from computepool.hub.main import check
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub

BOTH = ("sqlite", "postgresql")


def hub_fixture(*, on: tuple[str, ...] | None = None, **settings: Any) -> Any:
    """A hub with the test's own clock, on each of the databases `on`, by default on SQLite."""

    @pytest.fixture(params=on)
    async def hub(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> AsyncIterator[HubDouble]:
        on_postgres = getattr(request, "param", "sqlite") == "postgresql"
        url = request.getfixturevalue("migrated_url") if on_postgres else ""
        async with running_hub(tmp_path, database_url=url, clock=clock, **settings) as running:
            yield running
            assert check(running.hub.settings) == []

    return hub


@asynccontextmanager
async def two_hubs(folder: Path, url: str, **settings: Any) -> AsyncIterator[tuple[HubDouble, HubDouble]]:
    """Two hubs on one PostgreSQL database."""
    async with (
        running_hub(folder / "a", database_url=url, **settings) as first,
        running_hub(folder / "b", database_url=url, **settings) as second,
    ):
        first.admin = first.client(second.admin_key)  # the second start replaced the first one's key
        yield first, second
