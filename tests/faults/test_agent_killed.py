"""kill -9 of agents: their jobs run again, finished work is not lost, and all their processes end."""

from __future__ import annotations

import time

import psutil
import pytest

from computepool.core.jobs.lifecycle import JobState
from computepool.testing.processes import AgentProcess, RealPool
from computepool.testing.waiting import wait_until
from tests.faults.conftest import MakePool
from tests.faults.jobprocesses import descendants, jobs_of, wait_gone, workers_of
from tests.faults.load import TRUE, Load, MapLoad, command, seeded

pytestmark = pytest.mark.process

KILLS = 21
#: How long the jobs of a killed agent may go on: their launchers notice at once that nobody is there.
LEFTOVERS_S = 60.0


def kill_busy(pool: RealPool) -> AgentProcess:
    """kill -9 of an agent that runs a job; waits until all its processes have ended."""
    busy = wait_until(
        lambda: [agent for agent in pool.agents if agent.alive and jobs_of(agent, "/bin/sleep")],
        60,
        "an agent runs a job",
    )
    started = descendants(busy[0])
    busy[0].kill()
    wait_gone(started, LEFTOVERS_S)
    return busy[0]


@pytest.mark.soak
def test_jobs_of_agents_killed_under_load_run_again(make_pool: MakePool) -> None:
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


def test_an_unsent_report_survives_the_agent_without_a_second_run(make_pool: MakePool) -> None:
    """The hub hangs, the job ends, the agent is killed."""
    pool = make_pool(lease_min_s=30, self_fence_s=1)
    hub = pool.hubs[0]
    agent = pool.start_agent()
    client = pool.client()
    marks = pool.shared_folder("marks")
    line = f"until [ -e {marks}/go ]; do sleep 0.01; done; echo x >> {marks}/$COMPUTEPOOL_JOB_ID"
    [job_id] = client.jobs.submit(command("/bin/sh", "-c", line)).job_ids
    wait_until(lambda: client.jobs.get(job_id).state is JobState.RUNNING, 60, "the job runs")
    hub.freeze()
    (marks / "go").touch()
    outbox = agent.config.outbox_dir
    wait_until(lambda: list(outbox.glob("*.json")), 60, "the report is on the disk")
    agent.kill()
    hub.thaw()
    agent.start()
    done = client.jobs.wait(job_id, timeout=60)
    assert (done.state, done.attempts) == (JobState.SUCCEEDED, 1)
    assert (marks / job_id).read_text() == "x\n"
    wait_until(lambda: not list(outbox.glob("*.json")), 60, "the outbox is empty")


@pytest.mark.soak
def test_jobs_of_a_killed_agent_end_in_every_sandbox(make_pool: MakePool) -> None:
    """Also daemons that left the job's session, and warm workers."""
    pool = make_pool()
    client = pool.client()
    for sandbox in ("process", "namespace"):
        agent = pool.start_agent(sandbox=sandbox, name=sandbox)
        client.jobs.submit(command("/bin/sh", "-c", "setsid /bin/sleep 300 & /bin/sleep 300", cores=0.1, host=sandbox))
        client.submit(time.sleep, 300, cores=0.1, host=sandbox)
        wait_until(lambda agent=agent: len(jobs_of(agent, "/bin/sleep")) == 2, 60, "the job and its daemon run")
        wait_until(lambda agent=agent: workers_of(agent), 60, "the worker runs")
        started = descendants(agent)
        agent.kill()
        wait_gone(started, LEFTOVERS_S)


@pytest.mark.soak
def test_an_agent_killed_in_its_self_test_leaves_no_processes(make_pool: MakePool) -> None:
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
    """The processes of its self-test, while it runs, which may be missed on a busy machine."""
    found = descendants(agent)
    return found if len(found) >= 3 and not agent.enrolled else []
