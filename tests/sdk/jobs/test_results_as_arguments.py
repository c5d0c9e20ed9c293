"""Futures as arguments: nodes fetch the results, and nothing travels through the client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from computepool import JobCancelled, JobFailed, Pool, connect
from computepool.core.errors import BadRequest, Conflict
from computepool.sdk.jobs.aio import AsyncPool
from computepool.testing.processes import RealPool

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


def total(first: int, others: list[Any], *, key: dict[str, tuple[int, ...]]) -> int:
    return first + sum(others) + sum(key["nested"])


@dataclass
class Point:
    x: int
    y: bytes


def test_futures_are_arguments_wherever_they_are_nested(pool: Pool, real: RealPool) -> None:
    one, two, three = (pool.submit(pow, base, 2) for base in (1, 2, 3))
    result = pool.submit(total, one, [two, 10, one], kwargs={"key": {"nested": (three, 100)}})
    assert result.result(60) == 1 + 4 + 10 + 1 + 9 + 100
    detail = pool.jobs.get(result.job_id)
    assert detail.uses == sorted(each.job_id for each in (one, two, three)) == detail.after
    # From another client, with futures that it found by their ids; and all of them have ended.
    other = real.client()
    assert other.submit(max, other.future(two.job_id), other.future(three.job_id)).result(60) == 9


def test_large_results_and_values_of_own_classes_arrive(pool: Pool) -> None:
    large = pool.submit(bytes, 1_000_000)
    point = pool.submit(lambda: Point(3, b"y"))

    def look(point: Point, data: bytes) -> tuple[bool, int, int]:
        return isinstance(point, Point), point.x, len(data)

    assert pool.submit(look, point, large).result(60) == (True, 3, 1_000_000)


def test_maps_executors_and_asyncio_take_futures(pool: Pool) -> None:
    squares = [pool.submit(pow, number, 2) for number in range(5)]
    mixed: list[Any] = [*squares, *range(100, 120)]
    assert list(pool.map(abs, mixed, progress=False)) == [0, 1, 4, 9, 16, *range(100, 120)]
    with pool.executor() as executor:
        assert executor.submit(pow, squares[3], squares[2]).result(60) == 9**4

    async def chain() -> int:
        total: int = await AsyncPool(pool).submit(sum, [squares[4], AsyncPool(pool).submit(pow, 5, 2)])
        return total

    assert asyncio.run(chain()) == 16 + 25


def test_a_pickled_result_needs_permission_of_the_job_that_takes_it(pool: Pool) -> None:
    odd = pool.submit(lambda: (1).__add__, allow_pickle=True)
    with pytest.raises(JobFailed, match=f"the result of job {odd.job_id} cannot be read: the value is pickled"):
        pool.submit(callable, odd).result(60)
    assert pool.submit(callable, odd, allow_pickle=True).result(60) is True


def test_futures_where_they_cannot_be_used_are_refused(pool: Pool) -> None:
    one = pool.submit(abs, -1)
    with pytest.raises(BadRequest, match="it refers to a future; pass the future to the function as an argument"):
        pool.submit(lambda: one)
    with pytest.raises(BadRequest, match="a future can be an argument of a function only"):
        pool.command(["echo", one])
    echo = pool.command(["true"], wait=False)
    with pytest.raises(Conflict, match=f"{echo.job_id} cannot be an argument: a command returns no value"):
        pool.submit(abs, echo).result(60)


def test_a_failed_argument_ends_only_what_takes_it(pool: Pool) -> None:
    def broken() -> None:
        raise ValueError("on purpose")

    good, bad = pool.submit(abs, -3), pool.submit(broken)
    assert pool.jobs.wait(bad.job_id, timeout=60).state == "failed"
    # Refused one by one, although they are sent together.
    last = [pool.submit(abs, each) for each in (good, bad, good)]
    assert [last[0].result(60), last[2].result(60)] == [3, 3]
    with pytest.raises(Conflict, match=f"Job {bad.job_id} is failed; a job that depends on it could never start"):
        last[1].result(60)


def test_what_waits_for_an_argument_that_fails_is_cancelled(pool: Pool) -> None:
    first = pool.submit(time.sleep, 1000)
    last = pool.submit(abs, pool.submit(abs, first))
    assert pool.jobs.get(last.job_id).reason == "waiting_for_jobs"
    first.cancel()
    with pytest.raises(JobCancelled, match="cancelled: dependency failed") as cancelled:
        last.result(60)
    assert cancelled.value.reason == pool.jobs.get(last.job_id).reason == "dependency_failed"
