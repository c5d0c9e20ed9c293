"""Real nodes of several owners check each other's results, and one of them reports wrong ones."""

from __future__ import annotations

import os

import pytest

from computepool.core.jobs.lifecycle import JobState
from computepool.protocol.jobs.views import JobDetail
from computepool.sdk.pool import Pool
from computepool.testing.processes import RealPool
from tests.faults.conftest import MakePool
from tests.faults.load import command

pytestmark = pytest.mark.process

PATIENCE_S = 60.0
OWNERS = ("olga", "otto", "liar")


def answer(question: int) -> object:
    """What a node of the liar's makes of it: there the folder that it runs in has the name of the node."""
    return "whatever" if "node-of-liar" in os.getcwd() else question * 2


def lent_by(make_pool: MakePool, *owners: str) -> RealPool:
    pool = make_pool("sqlite", verify="adaptive", signup_grant=10**12)
    for owner in owners:
        pool.start_agent(owner=pool.account(owner, "provider"), name=f"node-of-{owner}", trusted=("*",))
    return pool


@pytest.fixture
def pool(make_pool: MakePool) -> RealPool:
    return lent_by(make_pool, *OWNERS)


def believed(sam: Pool, job_id: str) -> JobDetail:
    job = sam.jobs.wait(job_id, timeout=PATIENCE_S)
    assert job.state is JobState.SUCCEEDED, job
    return job


def test_wrong_results_of_one_owner_in_three_are_never_accepted(pool: RealPool) -> None:
    sam = pool.account("sam", "submitter")
    for number in range(6):
        call = sam.submit(answer, number)
        assert call.result(timeout=PATIENCE_S) == number * 2
        job = believed(sam, call.job_id)
        assert job.verdict == "confirmed"
        paid = [run for run in job.tries if run.charge is not None]
        assert {run.node_name for run in paid} == {"node-of-olga", "node-of-otto"}
        assert all(run.state == "refuted" for run in job.tries if run.node_name == "node-of-liar")
    # A script is compared by what it prints; all print the same here.
    [job_id] = sam.jobs.submit(command("/bin/sh", "-c", "echo same"), verify="quorum:2").job_ids
    assert believed(sam, job_id).verdict == "confirmed"
    assert pool.broken_rules() == []


@pytest.mark.soak
def test_nondeterministic_results_do_not_block_two_owners(make_pool: MakePool) -> None:
    """Nobody could ever break the tie, so nobody waits for that."""
    pool = lent_by(make_pool, "olga", "otto")
    sam = pool.account("sam", "submitter")
    calls = [sam.submit(lambda: os.urandom(8).hex()) for _ in range(4)]
    assert all(call.result(timeout=PATIENCE_S) for call in calls)
    for call in calls:
        job = believed(sam, call.job_id)
        assert (job.verdict, "not confirmed" in job.status) == ("alone", True)
    violations = [sam.nodes.get(node.id).reputation.violation_count for node in sam.nodes.list()]
    assert violations == [0, 0]
    assert pool.broken_rules() == []
