"""Intentional stops: quick, clean, and without waiting for a lease to expire."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.protocol.jobs.views import AttemptView, JobView
from computepool.testing.processes import AgentProcess, RealPool
from computepool.testing.waiting import wait_until
from tests.faults.conftest import MakePool
from tests.faults.jobprocesses import jobs_of, wait_gone
from tests.faults.load import Load, command

pytestmark = pytest.mark.process

#: Leases as in production: what waits for one to run out fails these tests.
PRODUCTION = {"lease_min_s": 90, "interval_min_s": 10, "sweep_s": 10, "boot_grace_s": 120, "self_fence_s": 10}
#: Far less than a lease, and more than a busy machine needs.
STOPPED_S = 40.0


@contextmanager
def event_stream(pool: RealPool) -> Iterator[threading.Event]:
    """A browser that follows the events; set when the hub has ended the stream."""
    ended, opened = threading.Event(), threading.Event()

    def follow() -> None:
        headers = {"Authorization": f"Bearer {pool.admin_key}"}
        url = f"{pool.hubs[0].url}/api/v1/events/stream"
        try:
            with httpx2.stream("GET", url, headers=headers, timeout=60) as stream:
                assert stream.status_code == 200
                opened.set()
                for _ in stream.iter_lines():
                    pass
        except httpx2.TransportError:
            pass
        ended.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert opened.wait(60)
    yield ended
    thread.join(60)


def stop_in_time(process: AgentProcess) -> int:
    began = time.monotonic()
    code = process.stop(STOPPED_S + 5)
    assert time.monotonic() - began <= STOPPED_S
    return code


def begun(job: JobView) -> list[AttemptView]:
    """Without those that only waited behind another one, on a node that had no time for both."""
    return [one for one in job.tries if one.reason != Reason.GIVEN_BACK]


@pytest.mark.soak
def test_the_hub_stops_with_parked_polls_and_open_streams(make_pool: MakePool) -> None:
    pool = make_pool(**PRODUCTION, agents=2)
    hub = pool.hubs[0]
    client = pool.client()
    [waiting] = client.jobs.submit(command("/bin/true", cores=4_000)).job_ids
    follower = threading.Thread(target=lambda: client.jobs.get(waiting, seen=JobState.QUEUED, timeout=20))
    with event_stream(pool) as ended:
        follower.start()
        began = time.monotonic()
        hub.stop(STOPPED_S + 5)
        assert time.monotonic() - began <= STOPPED_S
        assert ended.wait(60)
    assert "Traceback" not in hub.log, hub.log
    hub.start()
    follower.join(30)
    assert not follower.is_alive()


@pytest.mark.soak
def test_a_hub_that_is_replaced_keeps_running_jobs_running(make_pool: MakePool) -> None:
    pool = make_pool(lease_min_s=20)
    hub = pool.hubs[0]
    agent = pool.start_agent()
    jobs = pool.client().jobs
    [job_id] = jobs.submit(command("/bin/sleep", "2")).job_ids
    wait_until(lambda: jobs_of(agent, "/bin/sleep"), 60, "the job runs")
    hub.stop()
    hub.start()
    job = jobs.wait(job_id, timeout=60)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 1)


def test_a_stopped_agent_gives_its_jobs_back_at_once(make_pool: MakePool) -> None:
    pool = make_pool(**PRODUCTION)
    leaving = pool.start_agent(name="leaving")
    client = pool.client()
    ids = [client.jobs.submit(command("/bin/sh", "-c", _SECOND_TRY_ENDS)).job_ids[0] for _ in range(3)]
    processes = wait_until(lambda: len(found := jobs_of(leaving, "/bin/sleep")) == 3 and found, 60)
    staying = pool.start_agent(name="staying")
    assert stop_in_time(leaving) == 0
    wait_gone(processes, STOPPED_S)
    for job_id in ids:
        job = client.jobs.wait(job_id, timeout=STOPPED_S)
        assert job.state is JobState.SUCCEEDED
        assert [(one.node_name, one.reason) for one in begun(job)] == [
            ("leaving", Reason.NODE_DRAINING),
            ("staying", Reason.COMPLETED),
        ]
    assert staying.alive


_SECOND_TRY_ENDS = 'test "$COMPUTEPOOL_ATTEMPT" -gt 1 || exec /bin/sleep 300'


@pytest.mark.soak
def test_no_job_is_given_to_an_agent_that_has_stopped(make_pool: MakePool) -> None:
    pool = make_pool(**PRODUCTION)
    leaving, _ = pool.start_agent(name="leaving"), pool.start_agent(name="staying")
    client = pool.client()
    assert stop_in_time(leaving) == 0
    ids = client.jobs.submit(command("/bin/true")).job_ids
    ids += [client.jobs.submit(command("/bin/true")).job_ids[0] for _ in range(8)]
    for job_id in ids:
        job = client.jobs.wait(job_id, timeout=STOPPED_S)
        assert [(one.node_name, one.state) for one in begun(job)] == [("staying", "succeeded")]
        assert {one.node_name for one in job.tries} == {"staying"}


@pytest.mark.soak
def test_stopping_an_agent_under_load_delays_no_job(make_pool: MakePool) -> None:
    pool = make_pool(**PRODUCTION)
    leaving, _ = pool.start_agent(name="leaving"), pool.start_agent(name="staying")
    with Load(pool.client(), [command("/bin/true"), command("/bin/sleep", "0.2")], pause_s=0.02) as load:
        load.wait_for_more(40)
        assert stop_in_time(leaving) == 0
        load.wait_for_more(10)
    load.check_exactly_once(timeout_s=60)


@pytest.mark.soak
def test_a_drained_node_finishes_its_jobs_and_stops(make_pool: MakePool) -> None:
    pool = make_pool(**PRODUCTION)
    leaving = pool.start_agent(name="leaving")
    client = pool.client()
    [job_id] = client.jobs.submit(command("/bin/sleep", "2")).job_ids
    wait_until(lambda: jobs_of(leaving, "/bin/sleep"), 60, "the job runs")
    client.nodes.drain(leaving.node_id)
    [later] = client.jobs.submit(command("/bin/true")).job_ids
    job = client.jobs.wait(job_id, timeout=60)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 1)
    assert leaving.wait(60) == 0
    assert client.jobs.get(later).state is JobState.QUEUED
    client.nodes.resume(leaving.node_id)
    leaving.start()
    assert client.jobs.wait(later, timeout=60).state is JobState.SUCCEEDED
