"""kill -9 of the hub at random moments: what it acknowledged is kept, and done exactly once."""

from __future__ import annotations

from collections import Counter

import pytest

from computepool.testing.waiting import wait_until
from tests.faults.conftest import MakePool
from tests.faults.load import TRUE, Load, MapLoad, command, seeded, square, transfers

pytestmark = pytest.mark.process

KILLS = {"sqlite": 20, "postgresql": 10}
PAID_KILLS = {"sqlite": 6, "postgresql": 4}
ITEMS = 100_000
#: After so many results, while as many items as possible are in flight.
KILLED_AFTER = (500, 20_000, 70_000)


@pytest.mark.parametrize(("database", "kills"), KILLS.items())
def test_a_hub_killed_under_load_loses_nothing(make_pool: MakePool, database: str, kills: int) -> None:
    pool = make_pool(database, agents=2)
    hub = pool.hubs[0]
    chance = seeded(2)
    specs = [command(*TRUE), command("/bin/sleep", "0.1"), command("/bin/echo", "hello")]
    with Load(pool.client(), specs) as load, MapLoad(pool.client()) as calls:
        for _ in range(kills):
            load.wait_for_more(chance.randint(1, 25))
            done = load.finished(pool.client())
            wait_until(lambda done=done: load.finished() > done, 60, "jobs get done between two kills")
            hub.restart()
    jobs = load.check_exactly_once()
    assert len(jobs) > kills
    assert calls.check() > kills


@pytest.mark.soak
def test_a_map_of_a_hundred_thousand_items_survives_kills(make_pool: MakePool) -> None:
    pool = make_pool("sqlite")
    hub = pool.hubs[0]
    pool.start_agent()
    results = []
    with pool.client().map(square, range(ITEMS), progress=False) as run:
        for value in run:
            results.append(value)
            if len(results) in KILLED_AFTER:
                hub.restart()
        group_id = run.group_id
    assert results == [square(number) for number in range(ITEMS)]
    group = pool.client().groups.get(group_id or "")
    assert group.counts == {"succeeded": ITEMS}
    jobs = pool.client().jobs.list(group_id=group_id, limit=ITEMS)
    assert len(jobs) < ITEMS / 10


@pytest.mark.parametrize(("database", "kills"), PAID_KILLS.items())
def test_a_hub_killed_under_load_pays_for_every_job_once(make_pool: MakePool, database: str, kills: int) -> None:
    """Agents of the admin work for another account's money, which matures while hubs die."""
    pool = make_pool(database, holdback_s=1, mature_s=0.3, tick_s=1)
    hub = pool.hubs[0]
    for _ in range(2):
        pool.start_agent(trusted=("*",))
    chance = seeded(9)
    with Load(pool.account("sam", "submitter"), [command("/bin/sleep", "0.05"), command("/bin/false")]) as load:
        for _ in range(kills):
            load.wait_for_more(chance.randint(2, 20))
            hub.restart()
    jobs = load.wait_finished()
    assert sorted(job.id for job in jobs) == sorted(load.acknowledged)
    booked = transfers(hub)
    paid = Counter(row.job_id for row in booked if row.kind == "pay")
    assert set(paid) <= {job.id for job in jobs if job.state == "succeeded"}
    assert set(paid.values()) == {1}
    charged = sum(job.charge or 0 for job in jobs)
    assert charged == sum(row.amount for row in booked if row.kind in ("pay", "fee")) > 0
