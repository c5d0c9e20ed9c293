"""Jobs on several nodes, with real agents: their programs reach each other, start and end together, and begin again together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from computepool.core.jobs.lifecycle import JobState
from computepool.sdk.pool import Pool
from computepool.testing.processes import AgentProcess, RealPool
from computepool.testing.waiting import wait_until
from tests.faults.conftest import MakePool

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not os.access("/dev/net/tun", os.R_OK | os.W_OK), reason="this user may not use /dev/net/tun"),
]
ALL_REDUCE = Path(__file__).parents[2] / "examples" / "gang_allreduce.py"
SMALL = {"cores": 0.1, "ram": "128MB", "timeout": 120}
#: Meets the others, and then stays until its job begins again.
STAYS_ONCE = """
import computepool, os, socket, time
gang = computepool.gang()
listener = socket.create_server((gang.address, gang.port))
for address in gang.addresses:
    while True:
        try:
            with socket.create_connection((address, gang.port), timeout=5) as sent:
                sent.sendall(bytes([gang.rank]))
            break
        except OSError:
            time.sleep(0.1)
met = set()  # who leaves before all have come would be looked for in vain
while len(met) < gang.size:
    met.update(listener.accept()[0].recv(1))
print("met all", flush=True)
time.sleep(600 if os.environ["COMPUTEPOOL_ATTEMPT"] == "1" else 0.3 * gang.rank)
"""

#: Numbers go round for some seconds, one after the other.
GOES_ROUND = """
import computepool, socket, time
gang = computepool.gang()
listener = socket.create_server((gang.address, gang.port))
while True:
    try:
        after = socket.create_connection((gang.addresses[(gang.rank + 1) % gang.size], gang.port), timeout=60)
        break
    except OSError:
        time.sleep(0.1)
before, _ = listener.accept()
if gang.rank == 0:
    after.sendall(b"0\\n")
lines = before.makefile()
for line in lines:
    number = int(line)
    if gang.rank == 0:
        print("round", number, flush=True)
        time.sleep(0.2)
    if gang.rank == 0 and number == 40:
        break
    after.sendall(b"%d\\n" % (number + (gang.rank == 0)))
    if gang.rank and number == 40:
        break
print("went round", flush=True)
"""


def three_nodes(make_pool: MakePool, *, lan: bool = False, **settings: str | float) -> RealPool:
    pool = make_pool(**settings)
    for _ in range(3):
        pool.start_agent(sandbox="namespace", lan=lan, cores=0.3, ram_mb=1_000)
    return pool


def members(client: Pool, job_id: str) -> list[str]:
    return [member.job_id for member in client.jobs.get(job_id).gang]


def logs_of(client: Pool, job_ids: list[str]) -> list[str]:
    return ["".join(chunk.text for chunk in client.jobs.log_page(job_id).chunks) for job_id in job_ids]


def reduced(client: Pool, length: int) -> list[str]:
    outcome = client.run(ALL_REDUCE, [length], nodes=3, **SMALL, wait=False)
    outcome.result(timeout=120)
    ids = members(client, outcome.job_id)
    wait_until(lambda: all(client.jobs.get(job_id).state is JobState.SUCCEEDED for job_id in ids), 60, "all are done")
    return logs_of(client, ids)


def test_members_compute_together_through_the_hub(make_pool: MakePool) -> None:
    client = three_nodes(make_pool).client()
    for rank, text in enumerate(reduced(client, 50_000)):
        assert f"rank {rank} of 3: every number is 6" in text
    assert client.submit(rank_and_size, nodes=3, **SMALL).result(timeout=120) == ("0", "3", "10.77.0.1")


def rank_and_size() -> tuple[str, str, str]:
    name = socket_name()
    return os.environ["RANK"], os.environ["WORLD_SIZE"], name


def socket_name() -> str:
    import socket

    return socket.gethostbyname(socket.gethostname())


@pytest.mark.soak
def test_members_in_one_network_need_no_relay(make_pool: MakePool) -> None:
    client = three_nodes(make_pool, lan=True, gang_relay_bytes_max=0).client()
    for rank, text in enumerate(reduced(client, 50_000)):
        assert f"rank {rank} of 3: every number is 6" in text


def test_a_killed_agent_makes_all_members_begin_again(make_pool: MakePool, tmp_path: Path) -> None:
    pool = three_nodes(make_pool)
    client = pool.client()
    script = tmp_path / "stays.py"
    script.write_text(STAYS_ONCE)
    future = client.run(script, nodes=3, **SMALL, wait=False)
    ids = members(client, future.job_id)
    wait_until(lambda: all("met all" in text for text in logs_of(client, ids)), 90, "all members have met")
    victim = _agent_of(pool, client.jobs.get(ids[1]).node_id)
    victim.kill()
    victim.start()
    future.result(timeout=120)
    wait_until(lambda: all(client.jobs.get(job_id).state is JobState.SUCCEEDED for job_id in ids), 60, "all are done")
    jobs = [client.jobs.get(job_id) for job_id in ids]
    assert [job.attempts for job in jobs] == [2, 2, 2]
    assert [job.tries[0].reason for job in jobs] == ["gang_member_lost", "node_restarted", "gang_member_lost"]
    assert all("met all" in text for text in logs_of(client, ids))


def _agent_of(pool: RealPool, node_id: str | None) -> AgentProcess:
    return next(agent for agent in pool.agents if agent.node_id == node_id)


@pytest.mark.soak
def test_members_that_never_meet_go_back_into_the_queue(make_pool: MakePool) -> None:
    """One of them cannot fetch what it needs in time; nobody is at fault."""
    pool = three_nodes(make_pool, gang_start_s=1)
    client = pool.client()
    frozen = pool.agents[0]
    # The frozen agent gets its member with the poll that is parked, and does nothing with it.
    frozen.freeze()
    job_ids = client.jobs.submit(client.options(nodes=3, **SMALL).program(["sleep", "30"])).job_ids
    try:
        wait_until(lambda: client.jobs.get(job_ids[0]).tries, 60, "it is placed")
        wait_until(
            lambda: any(one.reason == "gang_not_ready" for job_id in job_ids for one in client.jobs.get(job_id).tries),
            60,
            "the others give up",
        )
    finally:
        frozen.thaw()
    wait_until(lambda: client.jobs.get(job_ids[0]).attempts > 1, 60, "it begins again")
    client.jobs.cancel(job_ids[2])
    wait_until(lambda: client.jobs.get(job_ids[0]).state is JobState.CANCELLED, 30, "all are cancelled")


@pytest.mark.soak
def test_members_go_on_after_a_kill_of_the_hub(make_pool: MakePool, tmp_path: Path) -> None:
    pool = three_nodes(make_pool)
    client = pool.client()
    script = tmp_path / "round.py"
    script.write_text(GOES_ROUND)
    future = client.run(script, nodes=3, **SMALL, wait=False)
    ids = members(client, future.job_id)
    wait_until(lambda: "round 5\n" in logs_of(client, ids[:1])[0], 90, "they have begun")
    pool.hubs[0].restart()
    future.result(timeout=120)
    wait_until(lambda: all(client.jobs.get(job_id).state is JobState.SUCCEEDED for job_id in ids), 60, "all are done")
    assert [client.jobs.get(job_id).attempts for job_id in ids] == [1, 1, 1]
    assert all("went round" in text for text in logs_of(client, ids))
