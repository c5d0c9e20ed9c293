"""kill -9 of running jobs: the outcome has a name, a retry is a retry, and the agent goes on."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import psutil
import pytest

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.protocol.jobs.jobs import AttemptView
from computepool.sdk.errors import JobFailed
from computepool.sdk.jobs.futures import JobFuture
from computepool.sdk.pool import Pool
from computepool.testing.processes import wait_until
from tests.faults.conftest import MakePool
from tests.faults.jobprocesses import descendants, jobs_of, wait_gone, workers_of
from tests.faults.load import command

pytestmark = pytest.mark.process

#: In each of two sandboxes: so many commands without and with a retry, and so many function calls.
AT_ONCE = 5
FIRST_TRY_HANGS = 'test "$COMPUTEPOOL_ATTEMPT" -gt 1 || exec /bin/sleep 300'


def hang(unless: str) -> str:
    """Says that it has begun; hangs unless there is such a file."""
    if not os.path.exists(unless):
        print("begun", flush=True)
        time.sleep(300)
    return "done"


def wait_begun(client: Pool, job: JobFuture) -> None:
    # A job is shown as running when its worker starts; a worker killed before it is ready is the node's fault.
    wait_until(lambda: "begun" in client.jobs.log_text(job.job_id), 20, "the call has begun")


def tries(attempts: list[AttemptView]) -> list[tuple[str, str, int | None]]:
    """Without those that only waited behind another one, on a node that had no time for both."""
    return [
        (attempt.state, attempt.reason, attempt.exit_code)
        for attempt in attempts
        if attempt.reason != Reason.GIVEN_BACK
    ]


@pytest.mark.parametrize("sandbox", ["process", "namespace"])
def test_killed_commands_fail_by_their_name_or_run_again(make_pool: MakePool, sandbox: str) -> None:
    pool = make_pool()
    agent = pool.start_agent(sandbox=sandbox)
    jobs = pool.client().jobs
    hang = command("/bin/sleep", "300", cores=0.1)
    once = command("/bin/sh", "-c", FIRST_TRY_HANGS, cores=0.1)
    given_up = [jobs.submit(hang).job_ids[0] for _ in range(AT_ONCE)]
    retried = [jobs.submit(once, retries=1).job_ids[0] for _ in range(AT_ONCE)]
    victims = wait_until(
        lambda: len(found := jobs_of(agent, "/bin/sleep", "300")) == 2 * AT_ONCE and found, 20, "all jobs run"
    )
    for victim in victims:
        victim.kill()
    killed = ("failed", Reason.SIGNAL, -9)
    for job_id in given_up:
        job = jobs.wait(job_id, timeout=20)
        assert (job.state, job.reason, job.exit_code) == (JobState.FAILED, Reason.SIGNAL, -9)
        assert "SIGKILL" in (job.error or "")
        assert tries(job.tries) == [killed]
    for job_id in retried:
        job = jobs.wait(job_id, timeout=20)
        assert job.state is JobState.SUCCEEDED
        assert tries(job.tries) == [killed, ("succeeded", Reason.COMPLETED, 0)]
    assert agent.alive


@pytest.mark.soak
@pytest.mark.parametrize("sandbox", ["process", "namespace"])
def test_killed_workers_fail_their_call_alone(make_pool: MakePool, sandbox: str) -> None:
    pool = make_pool()
    agent = pool.start_agent(sandbox=sandbox)
    client = pool.client()
    for number in range(AT_ONCE):
        job = client.submit(hang, "/nothing", cores=0.1)
        wait_begun(client, job)
        for worker in workers_of(agent):  # the one that calls, and the idle one of the last round
            with suppress(psutil.NoSuchProcess):  # it went with the first
                worker.kill()
        with pytest.raises(JobFailed) as failure:
            job.result(timeout=20)
        assert failure.value.reason == Reason.SIGNAL
        assert client.submit(pow, 2, number).result(timeout=20) == 2**number
    assert agent.alive


@pytest.mark.soak
def test_a_killed_call_is_tried_again_if_asked(make_pool: MakePool) -> None:
    pool = make_pool()
    agent = pool.start_agent()
    client = pool.client()
    mark = pool.folder / "mark"
    job = client.submit(hang, str(mark), retries=1)
    wait_begun(client, job)
    mark.touch()
    for worker in workers_of(agent):
        with suppress(psutil.NoSuchProcess):
            worker.kill()
    assert job.result(timeout=20) == "done"
    assert [one.state for one in client.jobs.get(job.job_id).tries] == ["failed", "succeeded"]


def test_a_killed_launcher_is_the_nodes_fault(make_pool: MakePool) -> None:
    """What stands between the agent and a job is the node's: the job runs again although it asked for no retry."""
    pool = make_pool()
    agent = pool.start_agent(sandbox="process")
    jobs = pool.client().jobs
    [job_id] = jobs.submit(command("/bin/sh", "-c", FIRST_TRY_HANGS)).job_ids
    [hanging] = wait_until(lambda: jobs_of(agent, "/bin/sleep", "300"), 20, "the job runs")
    launcher = hanging.parent()
    assert launcher is not None
    below = descendants(agent)
    launcher.kill()
    job = jobs.wait(job_id, timeout=20)
    assert job.state is JobState.SUCCEEDED
    assert [one.reason for one in job.tries] == [Reason.NODE_ERROR, Reason.COMPLETED]
    wait_gone([one for one in below if one.pid in (hanging.pid, launcher.pid)], 10)
    assert agent.alive
