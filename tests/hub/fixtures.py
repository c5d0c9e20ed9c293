"""Hubs with settings of their own, for the tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from computepool.hub.main import check
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub

BOTH = ("sqlite", "postgresql")


def hub_fixture(*, on: tuple[str, ...] | None = None, **settings: Any) -> Any:
    """A hub by the test's own clock. `on`: one on each of these databases, not only on SQLite."""

    @pytest.fixture(params=on)
    async def hub(
        request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
    ) -> AsyncIterator[HubDouble]:
        on_postgres = getattr(request, "param", "sqlite") == "postgresql"
        url = request.getfixturevalue("migrated_url") if on_postgres else ""
        async with running_hub(tmp_path, database_url=url, clock=clock, **settings) as running:
            yield running
            assert check(running.hub.settings) == []

    return hub
