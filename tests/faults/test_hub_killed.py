"""kill -9 of the hub, at random and at named points: what it acknowledged is kept, and done exactly once."""

from __future__ import annotations

import pytest

from computepool.testing.processes import wait_until
from tests.faults.conftest import MakePool
from tests.faults.load import TRUE, Load, MapLoad, command, seeded, square

pytestmark = pytest.mark.process

KILLS = {"sqlite": 20, "postgresql": 10}
ITEMS = 100_000
#: After so many results, while as many items as may be are on their way.
KILLED_AFTER = (500, 20_000, 70_000)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("database", "kills"), KILLS.items())
def test_killed_under_load_it_loses_nothing(make_pool: MakePool, database: str, kills: int) -> None:
    pool = make_pool(database, agents=2)
    hub = pool.hubs[0]
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


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_a_hundred_thousand_items_survive_it(make_pool: MakePool) -> None:
    """One map, as a person writes it: every result is right, in its place and there once; at the hub as well."""
    pool = make_pool("sqlite")
    hub = pool.hubs[0]
    pool.start_agent()
    results = []
    with pool.client().map(square, range(ITEMS), progress=False) as run:
        for value in run:
            results.append(value)
            if len(results) in KILLED_AFTER:
                hub.kill()
                hub.start()
        group_id = run.group_id
    assert results == [square(number) for number in range(ITEMS)]
    group = pool.client().groups.get(group_id or "")
    assert group.counts == {"succeeded": ITEMS}
    jobs = pool.client().jobs.list(group_id=group_id, limit=ITEMS)
    assert len(jobs) < ITEMS / 10
