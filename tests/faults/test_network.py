"""Networks that lose, cut and delay messages between client, agents and hub, and partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from computepool.core.jobs.lifecycle import JobState
from computepool.testing.waiting import wait_until
from tests.faults.conftest import MakePool
from tests.faults.jobprocesses import jobs_of, wait_gone
from tests.faults.load import SEED, Load, command
from tests.faults.proxy import ChaosProxy, Fault

pytestmark = pytest.mark.process

FAULTS = 100
#: The hub did what was requested, and its reply was lost.
UNHEARD = (Fault.LOSE_REPLY, Fault.CUT_REPLY)
#: The first attempt notes the time again and again until it is killed; the second one notes it once.
FIRST_NEVER_ENDS = """
while
    cp /proc/uptime "$0/.$COMPUTEPOOL_ATTEMPT" && mv "$0/.$COMPUTEPOOL_ATTEMPT" "$0/$COMPUTEPOOL_ATTEMPT"
    test "$COMPUTEPOOL_ATTEMPT" = 1
do sleep 0.02; done
"""


class Proxies:
    def __init__(self) -> None:
        self.made: list[ChaosProxy] = []

    def __call__(self, port: int, **options: float) -> ChaosProxy:
        proxy = ChaosProxy(port, seed=SEED * 1_000 + len(self.made), **options)
        self.made.append(proxy)
        return proxy


@pytest.fixture
def make_proxy() -> Iterator[Proxies]:
    proxies = Proxies()
    yield proxies
    for proxy in proxies.made:
        proxy.close()


def test_requests_whose_replies_are_lost_have_one_effect(make_pool: MakePool, make_proxy: Proxies) -> None:
    pool = make_pool(lease_min_s=6)
    hub = pool.hubs[0]
    before_hub, before_agents = make_proxy(hub.port), make_proxy(hub.port)
    for _ in range(2):
        pool.start_agent(url=before_agents.url)

    def enough() -> bool:
        """Which faults come, and when, is random: so it goes on until each kind that matters has come."""
        watched = ((before_hub, "/api/v1/jobs", FAULTS), (before_agents, "/api/v1/complete", FAULTS // 2))
        return (
            all(proxy.count(path) >= faults for proxy, path, faults in watched)
            and all(proxy.count(path, *UNHEARD) >= FAULTS // 5 for proxy, path, _ in watched)
            and all(proxy.count(path, Fault.LOSE_REQUEST) for proxy, path, _ in watched)
            and before_agents.count() >= FAULTS
            and before_agents.count("/api/v1/next", *UNHEARD) > 0
        )

    specs = [command("/bin/true"), command("/bin/sleep", "0.1"), command("/bin/echo", "x")]
    with Load(pool.client(before_hub.url), specs, pause_s=0.01) as load:
        before_hub.rate, before_agents.rate = 0.4, 0.3
        wait_until(lambda: load.errors or enough(), 150, "enough went wrong")
        before_hub.heal()
        before_agents.heal()
    load.check_exactly_once()


@pytest.mark.soak
@pytest.mark.parametrize("cut", ["both", "replies"])
def test_a_node_that_is_cut_off_stops_its_job_before_another_starts_it(
    make_pool: MakePool, make_proxy: Proxies, cut: str
) -> None:
    pool = make_pool(lease_min_s=3)
    hub = pool.hubs[0]
    proxy = make_proxy(hub.port)
    lost, other = pool.start_agent(name="lost", url=proxy.url), pool.start_agent(name="other")
    client = pool.client()
    client.nodes.pause(other.node_id)
    marks = pool.shared_folder("marks")
    [job_id] = client.jobs.submit(command("/bin/sh", "-c", FIRST_NEVER_ENDS, str(marks))).job_ids
    wait_until((marks / "1").exists, 60, "the job runs")
    processes = jobs_of(lost, "/bin/sh", "-c", FIRST_NEVER_ENDS)
    client.nodes.resume(other.node_id)
    proxy.cut = cut
    wait_gone(processes, 60)
    job = client.jobs.wait(job_id, timeout=60)
    assert (job.state, job.node_name) == (JobState.SUCCEEDED, "other")
    last, first = (float((marks / number).read_text().split()[0]) for number in "12")
    assert last <= first, "two nodes ran it at the same time"
    proxy.heal()
    again = client.jobs.submit(command("/bin/true", host="lost")).job_ids[0]
    assert client.jobs.wait(again, timeout=60).state is JobState.SUCCEEDED
    assert client.jobs.get(job_id).attempts == 2
