"""What code that takes a concurrent.futures.Executor relies on."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Iterator

import pytest

from computepool import Pool
from computepool.core.jobs.lifecycle import JobState
from tests.sdk.fake_hub import FakeHub

SOON_S = 60


def test_submit_takes_every_keyword_for_the_function(pool: Pool) -> None:
    with pool.executor(cores=2) as executor:
        assert isinstance(executor, concurrent.futures.Executor)
        assert executor.submit(pow, 2, exp=8).result(SOON_S) == 256
        assert executor.submit(dict, fn=1, self=2, vram=3).result(SOON_S) == {"fn": 1, "self": 2, "vram": 3}


def test_map_is_ordered_and_raises_in_place(pool: Pool) -> None:
    with pool.executor() as executor:
        assert list(executor.map(pow, range(10), range(10))) == list(map(pow, range(10), range(10)))
        results = executor.map(divmod, [1, 1, 1], [2, 0, 3])
        assert next(results) == (0, 1)
        with pytest.raises(Exception, match="ZeroDivisionError"):
            next(results)


def test_map_keeps_its_timeout(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    executor = pool.executor()
    with pytest.raises(TimeoutError):
        list(executor.map(abs, [1], timeout=0.05))
    executor.shutdown(wait=False)


def test_items_of_a_map_may_wait_for_what_the_same_executor_does(pool: Pool) -> None:
    def chained(executor: concurrent.futures.Executor) -> list[int]:
        futures = [executor.submit(abs, -number) for number in range(4)]
        first = list(executor.map(abs, (future.result(SOON_S) for future in futures)))
        return first + list(
            executor.map(abs, (executor.submit(abs, number).result(SOON_S) for number in first))
        )

    executor, results = pool.executor(), list[int]()
    thread = threading.Thread(target=lambda: results.extend(chained(executor)), daemon=True)
    thread.start()
    thread.join(SOON_S)
    assert results == [0, 1, 2, 3] * 2
    executor.shutdown()


def test_a_map_whose_items_end_the_executor_is_refused(pool: Pool) -> None:
    executor = pool.executor()

    def items() -> Iterator[int]:
        yield 1
        executor.shutdown(wait=False)

    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.map(abs, items())


def test_leaving_the_block_waits_for_the_work(pool: Pool) -> None:
    with pool.executor() as executor:
        futures = [executor.submit(abs, -number) for number in range(50)]
    assert all(future.done() for future in futures)


def test_nothing_is_taken_after_shutdown(pool: Pool) -> None:
    executor = pool.executor()
    executor.shutdown()
    executor.shutdown()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(abs, 1)


def test_shutdown_can_cancel_what_has_not_started(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    executor = pool.executor()
    futures = [executor.submit(abs, -number) for number in range(5)]
    pool.flush()
    with hub.lock:
        hub.jobs["job_000002"]["state"] = JobState.RUNNING
    executor.shutdown(wait=False, cancel_futures=True)
    assert [future.cancelled() for future in futures] == [False, True, True, True, True]
    with hub.lock:
        hub.run("job_000002")
    assert futures[0].result(SOON_S) == 0


def test_shutdown_without_waiting_lets_the_work_end(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    executor = pool.executor()
    future = executor.submit(abs, -3)
    executor.shutdown(wait=False)
    assert not future.done()
    hub.release()
    assert future.result(SOON_S) == 3


def test_callbacks_run_and_their_errors_stay_theirs(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    called = threading.Event()

    def bad(_: object) -> None:
        raise ValueError("from the callback")

    with pool.executor() as executor:
        future = executor.submit(abs, -1)
        future.add_done_callback(bad)
        future.add_done_callback(lambda _: called.set())
        assert called.wait(SOON_S)
        assert executor.submit(abs, -2).result(SOON_S) == 2


def test_the_standard_waiters_accept_its_futures(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    with pool.executor() as executor:
        futures = [executor.submit(abs, -number) for number in range(3)]
        pool.flush()
        with hub.lock:
            hub.run("job_000003")
        done, pending = concurrent.futures.wait(
            futures, SOON_S, return_when=concurrent.futures.FIRST_COMPLETED
        )
        assert (len(done), len(pending)) == (1, 2)
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            list(concurrent.futures.as_completed(futures, 0.05))
        assert time.monotonic() - start < SOON_S
        hub.release()


def test_map_sends_several_to_a_job_if_asked(hub: FakeHub, pool: Pool) -> None:
    with pool.executor() as executor:
        assert list(executor.map(abs, range(100), chunksize=30)) == list(range(100))
    assert [job["item"].bundled for job in hub.jobs.values()] == [30, 30, 30, 10]


@pytest.mark.soak
def test_map_reads_all_items_at_once_and_its_results_outlive_the_executor(hub: FakeHub, pool: Pool) -> None:
    items = iter(range(25_000))
    with pool.executor() as executor:
        results = executor.map(abs, items)
        assert next(items, None) is None
    assert sum(results) == sum(range(25_000))
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.map(abs, [1])


def test_map_can_read_as_it_goes(hub: FakeHub, pool: Pool) -> None:
    items = iter(range(100))
    with pool.executor() as executor:
        results = executor.map(abs, items, buffersize=10)
        assert next(items) == 10
        assert [next(results) for _ in range(3)] == [0, 1, 2]


def test_a_map_whose_executor_is_shut_down_says_so(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    executor = pool.executor()
    results = executor.map(abs, range(10))
    executor.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(concurrent.futures.CancelledError):
        next(results)


def test_leaving_a_map_leaves_the_executor_to_others(hub: FakeHub, pool: Pool) -> None:
    with pool.executor() as executor:
        results = executor.map(divmod, [1] * 50, [0] + [1] * 49)
        with pytest.raises(ZeroDivisionError):
            next(results)
        assert executor.submit(abs, -3).result(SOON_S) == 3
        assert list(executor.map(abs, [-1, -2])) == [1, 2]


def test_futures_work_with_the_standard_waits(pool: Pool) -> None:
    with pool.executor() as executor:
        futures = [executor.submit(abs, -n) for n in range(20)]
        assert sorted(f.result() for f in concurrent.futures.as_completed(futures, SOON_S)) == list(range(20))
        done, waiting = concurrent.futures.wait(futures, SOON_S)
        assert (len(done), len(waiting)) == (20, 0)


@pytest.mark.parametrize("word", ["initializer", "initargs", "max_workers", "mp_context"])
def test_what_only_local_executors_have_is_refused_with_a_reason(pool: Pool, word: str) -> None:
    with pytest.raises(TypeError, match=f"'{word}' is not supported: "):
        pool.executor(**{word: None})  # type: ignore[typeddict-item]
