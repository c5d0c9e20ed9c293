"""Two hubs on one PostgreSQL database serve one pool; on SQLite the second one refuses to start."""

from __future__ import annotations

import subprocess
import sys

import pytest

from computepool.core.jobs.lifecycle import JobState
from computepool.protocol.jobs.jobs import Needs
from computepool.sdk.pool import Pool
from computepool.testing.processes import RealPool, free_port
from computepool.testing.waiting import wait_until
from tests.faults.conftest import MakePool
from tests.faults.jobprocesses import jobs_of, wait_gone
from tests.faults.load import Load, command, seeded

pytestmark = pytest.mark.process

KILLS = 10
#: What must not wait for anything to run out, only for a notification.
SOON_S = 60.0


class TwoHubs:
    """The first hub has no node of its own; everything submitted there runs at the second."""

    def __init__(self, pool: RealPool) -> None:
        self.pool = pool
        self.here, self.there = pool.hubs[0], pool.start_hub()
        self.agent = pool.start_agent(url=self.there.url)
        self.at_here, self.at_there = pool.client(self.here.url), pool.client(self.there.url)

    @property
    def clients(self) -> tuple[Pool, Pool]:
        return self.at_here, self.at_there


@pytest.fixture
def two(make_pool: MakePool) -> TwoHubs:
    return TwoHubs(make_pool("postgresql"))


def test_a_job_of_one_hub_runs_on_a_node_of_the_other(two: TwoHubs) -> None:
    gate = two.pool.folder / "gate"
    script = "echo early; until test -e $0; do sleep 0.05; done; echo late; echo kept > outputs/file"
    spec = command("/bin/sh", "-c", script, str(gate))
    [job_id] = two.at_here.jobs.submit(spec).job_ids
    for client in two.clients:
        wait_until(lambda client=client: "early" in client.jobs.log_text(job_id), SOON_S, "live logs")
        wait_until(lambda client=client: client.jobs.get(job_id).state is JobState.RUNNING, SOON_S, "it is said to run")
    gate.touch()
    for client in two.clients:
        job = client.jobs.wait(job_id, timeout=SOON_S)
        assert (job.state, job.attempts) == (JobState.SUCCEEDED, 1)
        assert client.jobs.log_text(job_id) == "early\nlate\n"
        [output] = job.outputs
        assert b"".join(_content(client, output.digest)) == b"kept\n"
    assert two.at_here.submit(pow, 2, 10).result(timeout=SOON_S) == 1024


def _content(client: Pool, digest: str) -> list[bytes]:
    with client.transport.stream("GET", f"/artifacts/{digest}") as reply:
        return list(reply.iter_bytes())


@pytest.mark.soak
def test_cancelling_at_one_hub_stops_the_job_at_the_other(two: TwoHubs) -> None:
    [running] = two.at_here.jobs.submit(command("/bin/sleep", "300")).job_ids
    processes = wait_until(lambda: jobs_of(two.agent, "/bin/sleep"), SOON_S, "the job runs")
    assert two.at_here.jobs.cancel(running).state is JobState.CANCELLED
    wait_gone(processes, SOON_S)
    for client in two.clients:
        assert client.jobs.get(running).state is JobState.CANCELLED
    # The place is free again.
    [next_] = two.at_here.jobs.submit(command("/bin/true", cores=2)).job_ids
    assert two.at_there.jobs.wait(next_, timeout=SOON_S).state is JobState.SUCCEEDED


@pytest.mark.soak
def test_an_owners_change_at_one_hub_applies_at_the_other(two: TwoHubs) -> None:
    node_id = two.agent.node_id
    two.at_here.nodes.pause(node_id)
    # The store says so at once; here it must have come to the hub that places jobs, as must the node itself.
    wait_until(
        lambda: [host.ok for host in two.at_there.jobs.preview(Needs()).hosts] == [False],
        SOON_S,
        "the other hub heard of it",
    )
    assert two.at_there.nodes.get(node_id).state == "paused"
    [job_id] = two.at_there.jobs.submit(command("/bin/true")).job_ids
    assert two.at_there.jobs.get(job_id, seen=JobState.QUEUED, timeout=1).state is JobState.QUEUED
    two.at_here.nodes.resume(node_id)
    assert two.at_there.jobs.wait(job_id, timeout=SOON_S).state is JobState.SUCCEEDED


@pytest.mark.soak
def test_a_node_moves_to_the_other_hub_and_keeps_its_job(make_pool: MakePool) -> None:
    """Its own hub is killed and stays dead. With a lease to spare, the running job is not even disturbed."""
    pool = make_pool("postgresql", lease_min_s=10)
    dying, staying = pool.hubs[0], pool.start_hub()
    agent = pool.start_agent(url=f"{dying.url},{staying.url}")
    jobs = pool.client(staying.url).jobs
    [job_id] = jobs.submit(command("/bin/sleep", "3")).job_ids
    wait_until(lambda: jobs_of(agent, "/bin/sleep"), SOON_S, "the job runs")
    dying.kill()
    job = jobs.wait(job_id, timeout=60)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 1)


@pytest.mark.soak
def test_leases_of_a_dead_hubs_node_are_taken_back_by_the_other(make_pool: MakePool) -> None:
    """The node goes down with its hub, as when a rack loses power."""
    two = TwoHubs(make_pool("postgresql", lease_min_s=3))
    [job_id] = two.at_here.jobs.submit(
        command("/bin/sh", "-c", 'test "$COMPUTEPOOL_ATTEMPT" -gt 1 || exec /bin/sleep 300')
    ).job_ids
    wait_until(lambda: jobs_of(two.agent, "/bin/sleep"), SOON_S, "the job runs")
    two.there.kill()
    two.agent.kill()
    two.pool.start_agent(url=two.here.url)
    job = two.at_here.jobs.wait(job_id, timeout=60)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 2)


@pytest.mark.soak
def test_killing_either_hub_under_load_loses_nothing(make_pool: MakePool) -> None:
    pool = make_pool("postgresql")
    hubs = [pool.hubs[0], pool.start_hub()]
    first, second = (hub.url for hub in hubs)
    pool.start_agent(url=f"{first},{second}")
    pool.start_agent(url=f"{second},{first}")
    chance = seeded(5)
    specs = [command("/bin/true"), command("/bin/sleep", "0.1")]
    with Load(pool.client(first), specs) as at_first, Load(pool.client(second), specs) as at_second:
        loads = (at_first, at_second)
        for number in range(KILLS):
            for load in loads:
                load.wait_for_more(chance.randint(1, 8))
            hub = hubs[number % 2]
            hub.kill()
            loads[1 - number % 2].wait_for_more(chance.randint(1, 8))  # the other one goes on alone
            hub.start()
    for load in loads:
        load.check_exactly_once()


def test_on_sqlite_a_second_hub_refuses_to_start(make_pool: MakePool) -> None:
    pool = make_pool()
    first = pool.hubs[0]
    data = first.settings.data_dir
    start = ["hub", "start", "--data", str(pool.folder), "--port", str(free_port())]
    refused = subprocess.run(
        [sys.executable, "-m", "computepool.cli", *start], capture_output=True, text=True, check=False, timeout=240
    )
    assert refused.returncode != 0
    said = " ".join((refused.stdout + refused.stderr).split())
    assert f"Another hub (process {first.pid}) already serves the SQLite database {data}/hub.sqlite" in said
    assert "set DATABASE_URL to a PostgreSQL database" in said
    assert "Traceback" not in said
    assert first.alive
    # The first one's end, however sudden, frees the database.
    first.restart()
