"""kill -9 of the hub, at random and at named points: what it acknowledged is kept, and done exactly once."""

from __future__ import annotations

import pytest

from computepool.testing.processes import wait_until
from tests.faults.conftest import MakePool
from tests.faults.load import TRUE, Load, MapLoad, command, seeded

pytestmark = pytest.mark.process

KILLS = {"sqlite": 20, "postgresql": 10}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("database", "kills"), KILLS.items())
def test_killed_under_load_it_loses_nothing(make_pool: MakePool, database: str, kills: int) -> None:
    pool = make_pool(database)
    hub = pool.start_hub()
    for _ in range(2):
        pool.start_agent()
    chance = seeded(2)
    specs = [command(*TRUE), command("/bin/sleep", "0.1"), command("/bin/echo", "hello")]
    with Load(pool.client(), specs) as load, MapLoad(pool.client()) as calls:
        for _ in range(kills):
            load.wait_for_more(chance.randint(1, 25))
            done = load.finished(pool.client())
            wait_until(lambda done=done: load.finished() > done, 30, "jobs get done between two kills")
            hub.kill()
            hub.start()
    jobs = load.check_exactly_once()
    assert len(jobs) > kills
    assert calls.check() > kills
