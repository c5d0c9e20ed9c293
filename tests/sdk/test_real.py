"""The SDK with a real hub and a real node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from computepool import JobFailed, Pool, connect, job_slice, progress
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def real() -> Iterator[RealPool]:
    with RealPool() as real:
        real.start_hub()
        real.start_agent()
        yield real


@pytest.fixture
def pool(real: RealPool) -> Iterator[Pool]:
    with connect(real.hubs[0].url, real.admin_key) as pool:
        yield pool


def described(number: int) -> dict[int, object]:
    progress(0.5)
    return {number: job_slice(), 0: {date(2026, 11, number), b"bytes"}}


def test_functions_return_values_and_raise_errors(pool: Pool) -> None:
    assert pool.submit(described, 3).result(60) == {3: (0, 1), 0: {date(2026, 11, 3), b"bytes"}}

    def broken() -> None:
        raise ValueError("on purpose")

    with pytest.raises(JobFailed, match="ValueError: on purpose"):
        pool.submit(broken).result(60)


@pytest.mark.soak
def test_thousands_of_futures_return(pool: Pool) -> None:
    futures = [pool.submit(pow, number, 2) for number in range(2000)]
    assert [future.result(120) for future in futures] == [number**2 for number in range(2000)]


def test_large_arguments_results_and_files_are_transferred(pool: Pool, tmp_path: Path) -> None:
    data = os.urandom(1_000_000)
    assert pool.submit(bytes.__add__, data, b"!").result(60) == data + b"!"
    (tmp_path / "in.bin").write_bytes(data)
    script = tmp_path / "copy.py"
    script.write_text(
        "import os, shutil\nos.makedirs('outputs', exist_ok=True)\nshutil.copy('in.bin', 'outputs/out.bin')\n"
    )
    outcome = pool.run(script, inputs=[tmp_path / "in.bin"])
    assert [path.read_bytes() for path in outcome.download(tmp_path / "back")] == [data]


def test_a_node_measures_its_connection_when_it_starts(pool: Pool) -> None:
    [node] = pool.nodes.list(mine=True)
    assert min(node.profile.down_mbps, node.profile.up_mbps) >= 1
    options: dict[str, Any] = {"down": 1, "up": 1, "require": "not tag.laptop", "prefer": "fastest"}
    assert pool.options(**options).submit(pow, 2, 5).result(60) == 32


def test_cancel_stops_a_running_job(pool: Pool) -> None:
    future = pool.command(["sleep", "1000"], wait=False)
    wait_until(lambda: pool.jobs.get(future.job_id).state == "running", 60, "the job runs")
    assert future.cancel()
    assert pool.jobs.wait(future.job_id, timeout=60).state == "cancelled"


def test_another_connection_attaches_to_a_job(pool: Pool, real: RealPool) -> None:
    job_id = pool.submit(pow, 2, 20).job_id
    other = real.client()
    assert other.future(job_id).result(60) == 2**20
    assert other.jobs.wait(job_id, timeout=60).state == "succeeded"


@pytest.mark.soak
def test_jobs_nodes_groups_and_events_are_listed(pool: Pool) -> None:
    job_id = pool.submit(pow, 2, 3).job_id
    pool.jobs.wait(job_id, timeout=60)
    changes = [event.after for event in pool.events(job_id=job_id)]
    assert (changes[0], changes[-1]) == ("queued", "succeeded")
    followed = pool.events(follow=True, job_id=job_id)
    assert [next(followed).seq for _ in range(2)] == sorted(e.seq for e in pool.events(job_id=job_id))[:2]
    node = pool.nodes.list(mine=True)[0]
    assert pool.nodes.find(node.name).id == pool.nodes.find(node.id).id == node.id
    group_id = pool.jobs.get(job_id).group_id or ""
    assert group_id in {group.id for group in pool.groups.list(kind="session")}
    assert job_id in {result.job_id for result in pool.groups.results(group_id, follow=True)}
    assert [job.id for job in pool.jobs.list(group_id=group_id, state="succeeded", limit=1)]
    assert pool.jobs.preview(pool.options(cores=1).needs).hosts[0].ok
    assert pool.jobs.queue().nodes[0].online


@pytest.mark.soak
def test_a_search_of_events_ends_while_new_ones_keep_coming(pool: Pool) -> None:
    requests = 0
    get = pool.transport.get

    def busy(path: str, *args: Any, **kwargs: Any) -> Any:
        nonlocal requests
        if path == "/events":
            requests += 1
            assert requests < 10, "the search does not end"
            assert pool.submit(pow, 2, requests).job_id
        return get(path, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool.transport, "get", busy)
        assert list(pool.events(action="zz")) == []
