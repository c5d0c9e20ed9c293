"""Real pools for the fault tests. The rules of the database must hold after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from computepool.hub.db.schema import migrate
from computepool.testing.processes import RealPool

MakePool = Callable[..., RealPool]


@pytest.fixture
def make_pool(request: pytest.FixtureRequest) -> Iterator[MakePool]:
    """Makes pools that end with the test; then their databases are checked."""
    pools: dict[RealPool, bool] = {}

    def make(database: str = "sqlite", *, agents: int = 0, quiet: bool = True, **settings: str | float) -> RealPool:
        """A pool with a hub and so many agents.

        `database`: sqlite, postgresql for an empty one on the shared server, or the address of one.
        `quiet`: no process of the pool may log a traceback.
        """
        url = database if "://" in database else ""
        if database == "postgresql":
            url = request.getfixturevalue("postgres").fresh_database(migrate)
        pool = RealPool(database_url=url, **settings)
        pools[pool] = quiet
        pool.start_hub()
        for _ in range(agents):
            pool.start_agent()
        return pool

    yield make
    broken: list[str] = []
    for pool, quiet in pools.items():
        print(pool.logs())  # shown by pytest when the test failed
        try:
            broken += pool.broken_rules()
            loud = [one for one in pool.processes if quiet and "Traceback" in one.log]
            broken += [f"{one.name} failed:\n{one.log[-6000:]}" for one in loud]
        finally:
            pool.close()
    assert not broken, "\n".join(broken)
