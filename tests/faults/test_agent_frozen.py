"""A frozen agent, as on a laptop that sleeps: its jobs go elsewhere, and its late reports are judged."""

from __future__ import annotations

import contextlib
import os
import time

import pytest

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.protocol.jobs.jobs import JobSpec
from computepool.testing.waiting import wait_until
from tests.faults.conftest import MakePool
from tests.faults.jobprocesses import jobs_of, wait_gone
from tests.faults.load import command

pytestmark = [pytest.mark.process, pytest.mark.soak]

LEASE_S = 5
#: 15 s after a lease of 60, at the tests' scale; and a few more, because the machine may be busy.
RELEASED_S = LEASE_S + 15 * LEASE_S / 60 + 5


def by_attempt(first: str, second: str) -> JobSpec:
    """A job whose second attempt runs another command."""
    script = f'if test "$COMPUTEPOOL_ATTEMPT" = 1; then exec {first}; else exec {second}; fi'
    return command("/bin/sh", "-c", script, cores=0.1)


def test_an_agent_frozen_past_its_lease_loses_its_jobs_and_late_reports_are_judged(make_pool: MakePool) -> None:
    pool = make_pool(lease_min_s=LEASE_S, self_fence_s=2)
    sleeper, other = pool.start_agent(name="sleeper"), pool.start_agent(name="other")
    client = pool.client()
    client.nodes.pause(other.node_id)
    jobs = client.jobs
    until_told = pool.folder / "until-told"
    os.mkfifo(until_told)
    until_told.chmod(0o666)
    specs = {
        "never ends": by_attempt("/bin/sleep 301", "/bin/true"),
        "ends in time": by_attempt(f"/bin/cat {until_told}", "/bin/sleep 302"),
        "ends too late": by_attempt(f"/bin/cat {until_told}", "/bin/true"),
    }
    ids = {what: jobs.submit(spec).job_ids[0] for what, spec in specs.items()}
    wait_until(lambda: len(jobs_of(sleeper, "/bin/cat")) == 2, 60, "two of them wait")
    [endless] = wait_until(lambda: jobs_of(sleeper, "/bin/sleep"), 60, "the third runs")
    sleeper.freeze()
    frozen_at = time.monotonic()

    def told() -> bool:
        with contextlib.suppress(OSError):  # Nothing reads it now.
            os.close(os.open(until_told, os.O_WRONLY | os.O_NONBLOCK))
        return not jobs_of(sleeper, "/bin/cat")

    wait_until(told, 60, "two first tries end while the agent sleeps")
    client.nodes.resume(other.node_id)
    wait_until(lambda: all(jobs.get(job_id).attempts == 2 for job_id in ids.values()), 60, "the jobs were given away")
    took_s = time.monotonic() - frozen_at
    wait_gone([endless], 60)  # Its launcher ends it: the agent does nothing at all.
    for what in ("never ends", "ends too late"):
        assert jobs.wait(ids[what], timeout=60).state is JobState.SUCCEEDED
    replaced = wait_until(lambda: jobs_of(other, "/bin/sleep", "302"), 60, "the second try runs")
    sleeper.thaw()

    assert jobs.wait(ids["ends in time"], timeout=60).reason is Reason.ACCEPTED_LATE
    wait_gone(replaced, 60)
    expected = {
        "never ends": ["superseded", "succeeded"],
        "ends in time": ["succeeded", "superseded"],
        "ends too late": ["superseded", "succeeded"],
    }
    wait_until(
        lambda: {what: [one.state for one in jobs.get(ids[what]).tries] for what in ids} == expected, 10, f"{expected}"
    )
    assert jobs.get(ids["never ends"]).tries[0].reason == Reason.LEASE_LOST
    assert took_s < RELEASED_S
    # Both take work again.
    for agent in (sleeper, other):
        again = command("/bin/true", host=agent.name)
        assert jobs.wait(jobs.submit(again).job_ids[0], timeout=60).state is JobState.SUCCEEDED


def test_an_agent_frozen_for_less_than_its_lease_loses_nothing(make_pool: MakePool) -> None:
    pool = make_pool(lease_min_s=10)
    agent = pool.start_agent()
    jobs = pool.client().jobs
    [job_id] = jobs.submit(command("/bin/sleep", "2")).job_ids
    wait_until(lambda: jobs_of(agent, "/bin/sleep"), 60, "the job runs")
    agent.freeze()
    wait_until(lambda: not jobs_of(agent, "/bin/sleep"), 60, "the job ends while its agent sleeps")
    agent.thaw()
    job = jobs.wait(job_id, timeout=60)
    assert (job.state, job.reason, job.attempts) == (JobState.SUCCEEDED, Reason.COMPLETED, 1)
