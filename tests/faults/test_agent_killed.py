"""kill -9 of agents: their jobs run again, their finished work is not lost, and nothing of theirs goes on running."""

from __future__ import annotations

import time

import psutil
import pytest

from computepool.core.jobs.lifecycle import JobState
from computepool.testing.processes import AgentProcess, RealPool, wait_until
from tests.faults.conftest import MakePool
from tests.faults.jobprocesses import descendants, jobs_of, wait_gone, workers_of
from tests.faults.load import TRUE, Load, MapLoad, command, seeded

pytestmark = pytest.mark.process

KILLS = 21
#: How long the jobs of a killed agent may go on: their launchers notice at once that nobody is there.
LEFTOVERS_S = 10.0


def kill_busy(pool: RealPool) -> AgentProcess:
    """kill -9 of an agent in the middle of a job. Nothing it started survives it."""
    busy = wait_until(
        lambda: [agent for agent in pool.agents if agent.alive and jobs_of(agent, "/bin/sleep")],
        20,
        "an agent runs a job",
    )
    started = descendants(busy[0])
    busy[0].kill()
    wait_gone(started, LEFTOVERS_S)
    return busy[0]


@pytest.mark.soak
@pytest.mark.timeout(240)
def test_killed_under_load_their_jobs_run_again(make_pool: MakePool) -> None:
    pool = make_pool(agents=3)
    chance = seeded(3)
    specs = [command("/bin/sleep", "0.3"), command(*TRUE), command("/bin/sleep", "0.1")]
    with Load(pool.client(), specs, pause_s=0.15) as load, MapLoad(pool.client()) as calls:
        for _ in range(KILLS):
            load.wait_for_more(chance.randint(3, 10))
            kill_busy(pool).start()
    jobs = load.check_exactly_once(timeout_s=90)
    assert calls.check() > KILLS
    again = [job for job in jobs if job.attempts > 1]
    assert again, "no kill ever hit a running job"


def test_a_report_that_was_not_sent_survives_the_agent(make_pool: MakePool) -> None:
    """The hub hangs, the job ends, the agent is killed: the result must come from the disk, without a second run."""
    pool = make_pool(lease_min_s=30, self_fence_s=1)
    hub = pool.hubs[0]
    agent = pool.start_agent()
    client = pool.client()
    marks = pool.folder / "marks"
    marks.mkdir(mode=0o777)
    marks.chmod(0o777)
    ids = client.jobs.submit(
        command("/bin/sh", "-c", f"sleep 3; echo x >> {marks}/$COMPUTEPOOL_JOB_ID")
    ).job_ids
    wait_until(lambda: client.jobs.get(ids[0]).state is JobState.RUNNING, 20, "the job runs")
    hub.freeze()
    outbox = agent.config.outbox_dir
    wait_until(lambda: list(outbox.glob("*.json")), 20, "the report is on the disk")
    agent.kill()
    hub.thaw()
    agent.start()
    done = client.jobs.wait(ids[0], timeout=20)
    assert (done.state, done.attempts) == (JobState.SUCCEEDED, 1)
    assert (marks / ids[0]).read_text() == "x\n"
    wait_until(lambda: not list(outbox.glob("*.json")), 10, "the outbox is empty")


@pytest.mark.soak
def test_jobs_of_a_killed_agent_end_in_every_sandbox(make_pool: MakePool) -> None:
    """Also daemons that left the job's session, and the warm worker of functions."""
    pool = make_pool()
    client = pool.client()
    for sandbox in ("process", "namespace"):
        agent = pool.start_agent(sandbox=sandbox, name=sandbox)
        client.jobs.submit(
            command("/bin/sh", "-c", "setsid /bin/sleep 300 & /bin/sleep 300", cores=0.1, host=sandbox)
        )
        client.submit(time.sleep, 300, cores=0.1, host=sandbox)
        wait_until(
            lambda agent=agent: len(jobs_of(agent, "/bin/sleep")) == 2, 15, "the job and its daemon run"
        )
        wait_until(lambda agent=agent: workers_of(agent), 15, "the worker runs")
        started = descendants(agent)
        agent.kill()
        wait_gone(started, LEFTOVERS_S)


@pytest.mark.soak
def test_an_agent_killed_in_its_self_test_leaves_nothing(make_pool: MakePool) -> None:
    pool = make_pool()
    for _ in range(10):
        agent = pool.start_agent(online=False)
        started = wait_until(lambda agent=agent: in_self_test(agent) or agent.enrolled, 60)
        agent.kill()
        if started is not True:
            break
    else:
        pytest.fail("the self-test was always over before anybody looked")
    wait_gone(started, LEFTOVERS_S)
    assert "Traceback" not in agent.log


def in_self_test(agent: AgentProcess) -> list[psutil.Process]:
    """What it has started for that, while it does it; it is over before anybody on a busy machine has looked."""
    found = descendants(agent)
    return found if len(found) >= 3 and not agent.enrolled else []
