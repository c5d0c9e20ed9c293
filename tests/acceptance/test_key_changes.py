"""A real agent and a real hub both change their keys: jobs run on, and the stored identity is right afterwards."""

from __future__ import annotations

import pytest

from computepool.agent.hub_link import identity as identities
from computepool.agent.owner import control
from computepool.core.jobs.lifecycle import JobState
from computepool.protocol.hub_keys import HubKeys
from computepool.sdk.pool import Pool
from computepool.testing.processes import AgentProcess
from tests.faults.conftest import MakePool
from tests.faults.load import command

pytestmark = [pytest.mark.process, pytest.mark.soak]


def works(client: Pool) -> bool:
    [job_id] = client.jobs.submit(command("/bin/true")).job_ids
    return client.jobs.wait(job_id, timeout=30).state is JobState.SUCCEEDED


def known(agent: AgentProcess) -> identities.Identity:
    found = identities.load(agent.config.identity_path)
    assert found is not None
    return found


def test_jobs_run_on_while_hub_and_node_change_their_keys(make_pool: MakePool) -> None:
    pool = make_pool("sqlite")
    agent = pool.start_agent()
    client = pool.client()
    assert works(client)
    pinned = set(known(agent).hub_keys)
    assert len(pinned) == 2
    for _ in range(2):  # the first successor is pinned already; the second one must be followed
        published = client.transport.post("/hub/keys/rotate", HubKeys)
        assert works(client)
    assert published.current not in pinned
    assert set(known(agent).hub_keys) == set(published.keys)
    before = known(agent).key.private_bytes_raw()
    reply = control.call(agent.config.data_dir, "rekey")
    assert reply["node_id"] == agent.node_id
    assert known(agent).key.private_bytes_raw() != before
    assert works(client)
    agent.restart()
    pool.wait_online(agent)
    assert works(client), "with what it kept"
