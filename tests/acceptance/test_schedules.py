"""A schedule of two hubs that are killed: every tick is submitted once."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, text

from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until
from tests.faults.conftest import MakePool
from tests.faults.load import seeded

pytestmark = [pytest.mark.process, pytest.mark.soak]
TICKS = 20
SETTINGS = {"schedule_round_s": 0.02, "schedule_retry_s": 1}


@pytest.fixture
def real(make_pool: MakePool) -> RealPool:
    pool = make_pool("postgresql", agents=0, **SETTINGS)
    pool.start_hub()
    return pool


def test_two_hubs_that_are_killed_submit_each_tick_once(real: RealPool) -> None:
    client, chance = real.client(), seeded(7)
    made = client.schedules.add("often", ["true"], cron="* * * * *", overlap="replace")
    engine = create_engine(real.hubs[0].settings.url)
    # The next tick is at once, not in a minute; the epoch of PostgreSQL's clock is in seconds.
    now_ms = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    for number in range(TICKS):
        with engine.begin() as connection:
            connection.execute(text(f"UPDATE schedules SET next_at_ms = {now_ms} WHERE id = :id"), {"id": made.id})
        victim = real.hubs[number % 2]
        wait_until(lambda: chance.random() < 0.3, 10)
        victim.restart()

    def settled() -> bool:
        runs = [*client.schedules.runs("often", limit=1_000)]
        return len(runs) >= TICKS and all(run.state == "submitted" for run in runs)

    wait_until(settled, 60, "every run is submitted")
    engine.dispose()
    client.schedules.pause("often")
    runs = [*client.schedules.runs("often", limit=1_000)]
    listed = sorted(job_id for run in runs for job_id in run.job_ids)
    assert sorted(job.id for job in client.jobs.list(limit=1_000)) == listed
    assert len(listed) == len(runs)
