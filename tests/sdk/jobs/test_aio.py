"""The pool for asyncio: nothing blocks the event loop, and cancelling a task cancels its jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from computepool import JobFailed, connect_async
from computepool.core.jobs.lifecycle import JobState
from computepool.sdk.jobs.aio import AsyncPool
from tests.sdk.fake_hub import FakeHub


@pytest.fixture
async def apool(hub: FakeHub) -> AsyncIterator[AsyncPool]:
    async with connect_async(hub.url, "cp_test", retry_for=10) as pool:
        yield pool


async def wait_for_cancelled(hub: FakeHub, count: int) -> None:
    async with asyncio.timeout(60):
        # Conditions of the hub's threads; there is no event to wait for.
        while sum(job["state"] is JobState.CANCELLED for job in hub.jobs.values()) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_functions_and_commands_are_awaited(apool: AsyncPool) -> None:
    assert await apool.submit(pow, 2, 10) == 1024
    futures = [apool.submit(pow, 2, n) for n in range(50)]
    assert await asyncio.gather(*futures) == [2**n for n in range(50)]
    assert await futures[3] == 8  # a finished future, awaited again
    with pytest.raises(ZeroDivisionError):
        await apool.submit(divmod, 1, 0)
    assert (await apool.command(["echo", "hello"])).exit_code == 0


async def test_a_map_is_an_async_iterator(apool: AsyncPool) -> None:
    assert [value async for value in apool.map(abs, range(3_000))] == list(range(3_000))
    assert sorted([value async for value in apool.map(abs, range(3_000), ordered=False)]) == list(range(3_000))
    assert [value async for value in apool.map(abs, [])] == []
    with pytest.raises(JobFailed):
        async for _ in apool.map(divmod, [1, 1], [1, 0]):
            pass


async def test_waiting_for_results_does_not_block_the_loop(hub: FakeHub, apool: AsyncPool) -> None:
    hub.hold = True
    waiting = asyncio.ensure_future(anext(apool.map(abs, [-1])))
    future = apool.submit(abs, -2)
    await asyncio.sleep(0)  # not reached if something above blocks
    assert not waiting.done()
    hub.release()
    assert await asyncio.wait_for(waiting, 60) == 1
    assert await asyncio.wait_for(asyncio.ensure_future(future_of(future)), 60) == 2


async def future_of(future: object) -> object:
    return await future  # type: ignore[misc]


async def test_cancelling_the_waiting_task_cancels_the_job(hub: FakeHub, apool: AsyncPool) -> None:
    hub.hold = True
    future = apool.submit(abs, -2)
    await asyncio.to_thread(lambda: future.job_id)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await future
    await wait_for_cancelled(hub, 1)


async def test_leaving_a_map_cancels_its_unfinished_jobs(hub: FakeHub, apool: AsyncPool) -> None:
    hub.hold = True
    run = apool.map(abs, range(40), chunksize=10)
    await asyncio.to_thread(apool.sync.flush)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await anext(run)
    await wait_for_cancelled(hub, 4)
    async with apool.map(abs, range(40), chunksize=10) as other:
        await asyncio.to_thread(apool.sync.flush)
        assert other.group_id is not None
    await wait_for_cancelled(hub, 8)
