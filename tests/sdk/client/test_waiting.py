"""Explanations of waits: shown after a while, and again when the reason changes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from computepool.core.errors import Conflict
from computepool.protocol.jobs.jobs import Needs
from computepool.sdk import Pool, connect
from computepool.sdk.client import waiting
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until

pytestmark = pytest.mark.process
SOON_S = 60.0
HUGE = "1000GB"


@pytest.fixture(scope="module")
def real() -> Iterator[RealPool]:
    with RealPool() as pool:
        pool.start_hub()
        pool.start_agent(name="small", trusted=("*",))
        client = pool.client()
        wait_until(lambda: client.jobs.preview(Needs()).why.eligible_now, SOON_S, "the node is there")
        yield pool


@pytest.fixture
def pool(real: RealPool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setenv(waiting.NOTICE_ENV, "0.2")
    with connect(real.hubs[0].url, real.admin_key) as pool:
        yield pool


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_an_impossible_job_is_explained_at_submission_and_in_the_timeout(
    pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    future = pool.submit(pow, 2, 10, ram=HUGE)
    assert future.job_id  # else the time may be over before it is sent
    with pytest.raises(TimeoutError, match="No node can run this: the only node has less than 1000 GB of RAM"):
        future.result(timeout=0.5)
    assert [line for line in warnings(caplog) if "No node can run this" in line], "without a request"
    assert len(warnings(caplog)) == 1, "only once"
    future.cancel()


@pytest.mark.soak
def test_a_missing_python_version_is_named(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    spec = pool.options().program(["true"])
    other = spec.model_copy(update={"needs": spec.needs.model_copy(update={"python": "3.9"})})
    job_id = pool.jobs.submit(other).job_ids[0]
    with pytest.raises(TimeoutError, match=r"does not have Python 3\.9"):
        pool.jobs.result(job_id, timeout=1)
    assert [line for line in warnings(caplog) if "does not have Python 3.9" in line]
    pool.jobs.cancel(job_id)


@pytest.mark.soak
def test_an_impossible_job_is_refused_on_request(pool: Pool) -> None:
    with pytest.raises(Conflict, match="No node can run this"):
        pool.submit(pow, 2, 10, ram=HUGE, impossible="refuse").result(timeout=SOON_S)


WAITS: dict[str, Any] = {
    "future": lambda pool, job_id: pool.future(job_id).result(timeout=SOON_S),
    "as_completed": lambda pool, job_id: list(concurrent.futures.as_completed([pool.future(job_id)], timeout=SOON_S)),
    "await": lambda pool, job_id: asyncio.run(awaited(pool, job_id)),
    "jobs.wait": lambda pool, job_id: pool.jobs.wait(job_id, timeout=SOON_S),
    "jobs.result": lambda pool, job_id: pool.jobs.result(job_id, timeout=SOON_S),
    "drain": lambda pool, _: pool.groups.collector("waits").drain(timeout=SOON_S),
    "results": lambda pool, _: list(pool.groups.results(pool.groups.find("waits").id, follow=True)),
}


async def awaited(pool: Pool, job_id: str) -> None:
    await pool.future(job_id)


@pytest.mark.soak
@pytest.mark.parametrize("name", WAITS)
def test_every_kind_of_wait_is_explained_once(pool: Pool, caplog: pytest.LogCaptureFixture, name: str) -> None:
    """The node is paused, so the job cannot start before its wait is explained."""
    node = pool.nodes.find("small")
    pool.nodes.pause(node.id)
    group_id = pool.groups.find_or_create("waits").id
    [job_id] = pool.jobs.submit(pool.options().program(["true"]), group_id=group_id).job_ids
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        waits = threads.submit(WAITS[name], pool, job_id)
        wait_until(lambda: warnings(caplog), SOON_S, "the wait is explained")
        pool.nodes.resume(node.id)
        waits.result(timeout=SOON_S)
    lines = warnings(caplog)
    assert "the only node is paused" in lines[0]
    assert lines[0].startswith(f"{job_id}: Waiting")
    assert len(set(lines)) == len(lines)


@pytest.mark.soak
def test_the_timeout_of_a_map_is_explained(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    run = pool.map(abs, [1, -2], ram=HUGE)
    assert pool.flush()  # else the time may be over before they are sent
    with pytest.raises(TimeoutError, match="No node can run this"):
        run.take(timeout=1)
    assert len(warnings(caplog)) == 1
    run.close()


@pytest.mark.soak
def test_a_reason_that_changes_only_in_numbers_is_not_repeated() -> None:
    written: list[str] = []
    notice = waiting.WaitNotice(lambda: "", write=written.append)
    for text in ("job_1: 3 of 4 nodes are busy", "job_2: 2 of 4 nodes are busy", "job_2: the only node is paused"):
        notice.notify(text)
    assert written == ["job_1: 3 of 4 nodes are busy", "job_2: the only node is paused"]
