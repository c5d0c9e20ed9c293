"""kill -9 of running jobs: the outcome names the signal, retries work, and the agent goes on."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import psutil
import pytest

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.protocol.jobs.views import AttemptView
from computepool.sdk.errors import JobFailed
from computepool.sdk.jobs.futures import JobFuture
from computepool.sdk.pool import Pool
from computepool.testing.processes import AgentProcess
from computepool.testing.waiting import wait_until
from tests.faults.conftest import MakePool
from tests.faults.jobprocesses import descendants, jobs_of, wait_gone, workers_of
from tests.faults.load import command

pytestmark = pytest.mark.process

#: In each of two sandboxes: so many commands without and with a retry, and so many function calls.
AT_ONCE = 5
FIRST_TRY_HANGS = 'test "$COMPUTEPOOL_ATTEMPT" -gt 1 || exec /bin/sleep 300'


def hang(attempts: int) -> str:
    """Hangs in so many attempts, after printing that it has begun."""
    if int(os.environ["COMPUTEPOOL_ATTEMPT"]) <= attempts:
        print("begun", flush=True)
        time.sleep(300)
    return "done"


def kill_workers_of(agent: AgentProcess, client: Pool, job: JobFuture) -> None:
    """Kill the worker that runs the call, and idle ones."""
    # A job is shown as running before its worker is ready, when killing the worker is the node's fault.
    wait_until(lambda: "begun" in client.jobs.log_text(job.job_id), 60, "the call has begun")
    for worker in workers_of(agent):
        with suppress(psutil.NoSuchProcess):  # It ended with another one.
            worker.kill()


def tries(attempts: list[AttemptView]) -> list[tuple[str, str, int | None]]:
    """Without those that were given back because they waited behind another one."""
    return [
        (attempt.state, attempt.reason, attempt.exit_code)
        for attempt in attempts
        if attempt.reason != Reason.GIVEN_BACK
    ]


@pytest.mark.parametrize("sandbox", ["process", "namespace"])
def test_killed_commands_fail_by_the_signal_or_run_again(make_pool: MakePool, sandbox: str) -> None:
    pool = make_pool()
    agent = pool.start_agent(sandbox=sandbox)
    jobs = pool.client().jobs
    hang = command("/bin/sleep", "300", cores=0.1)
    once = command("/bin/sh", "-c", FIRST_TRY_HANGS, cores=0.1)
    given_up = [jobs.submit(hang).job_ids[0] for _ in range(AT_ONCE)]
    retried = [jobs.submit(once, retries=1).job_ids[0] for _ in range(AT_ONCE)]
    victims = wait_until(
        lambda: len(found := jobs_of(agent, "/bin/sleep", "300")) == 2 * AT_ONCE and found, 60, "all jobs run"
    )
    for victim in victims:
        victim.kill()
    killed = ("failed", Reason.SIGNAL, -9)
    for job_id in given_up:
        job = jobs.wait(job_id, timeout=60)
        assert (job.state, job.reason, job.exit_code) == (JobState.FAILED, Reason.SIGNAL, -9)
        assert "SIGKILL" in (job.error or "")
        assert tries(job.tries) == [killed]
    for job_id in retried:
        job = jobs.wait(job_id, timeout=60)
        assert job.state is JobState.SUCCEEDED
        assert tries(job.tries) == [killed, ("succeeded", Reason.COMPLETED, 0)]
    assert agent.alive


@pytest.mark.soak
@pytest.mark.parametrize("sandbox", ["process", "namespace"])
def test_a_killed_worker_fails_only_its_call_which_is_retried_if_requested(make_pool: MakePool, sandbox: str) -> None:
    pool = make_pool()
    agent = pool.start_agent(sandbox=sandbox)
    client = pool.client()
    for number in range(AT_ONCE):
        job = client.submit(hang, 9, cores=0.1)
        kill_workers_of(agent, client, job)
        with pytest.raises(JobFailed) as failure:
            job.result(timeout=60)
        assert failure.value.reason == Reason.SIGNAL
        assert client.submit(pow, 2, number).result(timeout=60) == 2**number
    job = client.submit(hang, 1, retries=1, cores=0.1)
    kill_workers_of(agent, client, job)
    assert job.result(timeout=60) == "done"
    assert [one.state for one in client.jobs.get(job.job_id).tries] == ["failed", "succeeded"]
    assert agent.alive


def test_a_killed_launcher_is_the_nodes_fault(make_pool: MakePool) -> None:
    """The job runs again although it requested no retry."""
    pool = make_pool()
    agent = pool.start_agent(sandbox="process")
    jobs = pool.client().jobs
    [job_id] = jobs.submit(command("/bin/sh", "-c", FIRST_TRY_HANGS)).job_ids
    [hanging] = wait_until(lambda: jobs_of(agent, "/bin/sleep", "300"), 60, "the job runs")
    launcher = hanging.parent()
    assert launcher is not None
    below = descendants(agent)
    launcher.kill()
    job = jobs.wait(job_id, timeout=60)
    assert job.state is JobState.SUCCEEDED
    assert [one.reason for one in job.tries] == [Reason.NODE_ERROR, Reason.COMPLETED]
    wait_gone([one for one in below if one.pid in (hanging.pid, launcher.pid)], 60)
    assert agent.alive
