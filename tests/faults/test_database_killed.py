"""Crashes of the database under a hub, which recovers by itself and has lost nothing."""

from __future__ import annotations

import pytest

from computepool.testing.postgres import PostgresServer
from computepool.testing.waiting import wait_until
from tests.faults.conftest import MakePool
from tests.faults.load import Load, command, seeded

pytestmark = pytest.mark.process

CRASHES = 5
BACK_S = 60.0


def test_a_crash_of_postgresql_loses_nothing(durable_postgres: PostgresServer, make_pool: MakePool) -> None:
    pool = make_pool(durable_postgres.fresh_database(), quiet=False, lease_min_s=6, agents=2)
    hub = pool.hubs[0]
    pid = hub.pid
    chance = seeded(8)
    with Load(pool.client(), [command("/bin/true"), command("/bin/sleep", "0.1")]) as load:
        for _ in range(CRASHES):
            load.wait_for_more(chance.randint(2, 12))
            done = load.finished()
            durable_postgres.restart(immediate=True)
            wait_until(lambda done=done: load.finished() > done, BACK_S, "the hub works again")
    load.check_exactly_once()
    assert hub.alive
    assert hub.pid == pid
