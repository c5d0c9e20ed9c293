"""The guarantees of concurrent.futures.Executor."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Iterator

import pytest

from computepool import Pool
from computepool.core.jobs.lifecycle import JobState
from tests.sdk.fake_hub import FakeHub

SOON_S = 60


def test_all_keyword_arguments_go_to_the_function(pool: Pool) -> None:
    with pool.executor(cores=2) as executor:
        assert isinstance(executor, concurrent.futures.Executor)
        assert executor.submit(pow, 2, exp=8).result(SOON_S) == 256
        assert executor.submit(dict, fn=1, self=2, vram=3).result(SOON_S) == {"fn": 1, "self": 2, "vram": 3}


def test_map_yields_results_and_errors_in_order(pool: Pool) -> None:
    with pool.executor() as executor:
        assert list(executor.map(pow, range(10), range(10))) == list(map(pow, range(10), range(10)))
        results = executor.map(divmod, [1, 1, 1], [2, 0, 3])
        assert next(results) == (0, 1)
        with pytest.raises(Exception, match="ZeroDivisionError"):
            next(results)


def test_map_raises_timeout_error(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    executor = pool.executor()
    with pytest.raises(TimeoutError):
        list(executor.map(abs, [1], timeout=0.05))
    executor.shutdown(wait=False)


def test_items_of_a_map_may_wait_for_futures_of_the_same_executor(pool: Pool) -> None:
    def chained(executor: concurrent.futures.Executor) -> list[int]:
        futures = [executor.submit(abs, -number) for number in range(4)]
        first = list(executor.map(abs, (future.result(SOON_S) for future in futures)))
        return first + list(executor.map(abs, (executor.submit(abs, number).result(SOON_S) for number in first)))

    executor, results = pool.executor(), list[int]()
    thread = threading.Thread(target=lambda: results.extend(chained(executor)), daemon=True)
    thread.start()
    thread.join(SOON_S)
    assert results == [0, 1, 2, 3] * 2
    executor.shutdown()


def test_a_map_whose_items_shut_the_executor_down_is_refused(pool: Pool) -> None:
    executor = pool.executor()

    def items() -> Iterator[int]:
        yield 1
        executor.shutdown(wait=False)

    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.map(abs, items())


def test_leaving_the_block_waits_for_all_futures(pool: Pool) -> None:
    with pool.executor() as executor:
        futures = [executor.submit(abs, -number) for number in range(50)]
    assert all(future.done() for future in futures)


def test_submitting_after_shutdown_is_refused(pool: Pool) -> None:
    executor = pool.executor()
    executor.shutdown()
    executor.shutdown()
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        executor.submit(abs, 1)


def test_shutdown_can_cancel_queued_futures(hub: FakeHub, pool: Pool) -> None:
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


def test_shutdown_without_waiting_does_not_cancel(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    executor = pool.executor()
    future = executor.submit(abs, -3)
    executor.shutdown(wait=False)
    assert not future.done()
    hub.release()
    assert future.result(SOON_S) == 3


def test_an_error_in_a_callback_does_not_affect_others(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    called = threading.Event()

    def bad(_: object) -> None:
        raise ValueError("from the callback")

    with pool.executor() as executor:
        future = executor.submit(abs, -1)
        future.add_done_callback(bad)
        future.add_done_callback(lambda _: called.set())
        assert called.wait(SOON_S)
        assert executor.submit(abs, -2).result(SOON_S) == 2


def test_wait_and_as_completed_accept_its_futures(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    with pool.executor() as executor:
        futures = [executor.submit(abs, -number) for number in range(3)]
        pool.flush()
        with hub.lock:
            hub.run("job_000003")
        done, pending = concurrent.futures.wait(futures, SOON_S, return_when=concurrent.futures.FIRST_COMPLETED)
        assert (len(done), len(pending)) == (1, 2)
        with pytest.raises(TimeoutError):
            list(concurrent.futures.as_completed(futures, 0.05))
        hub.release()
        assert {future.result() for future in concurrent.futures.as_completed(futures, SOON_S)} == {0, 1, 2}


def test_chunksize_sets_the_items_per_job(hub: FakeHub, pool: Pool) -> None:
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


def test_buffersize_limits_reading_ahead(hub: FakeHub, pool: Pool) -> None:
    items = iter(range(100))
    with pool.executor() as executor:
        results = executor.map(abs, items, buffersize=10)
        assert next(items) == 10
        assert [next(results) for _ in range(3)] == [0, 1, 2]


def test_shutdown_cancels_a_map(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    executor = pool.executor()
    results = executor.map(abs, range(10))
    executor.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(concurrent.futures.CancelledError):
        next(results)


def test_a_failed_map_does_not_affect_other_calls(hub: FakeHub, pool: Pool) -> None:
    with pool.executor() as executor:
        results = executor.map(divmod, [1] * 50, [0] + [1] * 49)
        with pytest.raises(ZeroDivisionError):
            next(results)
        assert executor.submit(abs, -3).result(SOON_S) == 3
        assert list(executor.map(abs, [-1, -2])) == [1, 2]


@pytest.mark.parametrize("word", ["initializer", "initargs", "max_workers", "mp_context"])
def test_parameters_of_local_executors_are_refused_with_a_reason(pool: Pool, word: str) -> None:
    with pytest.raises(TypeError, match=f"'{word}' is not supported: "):
        pool.executor(**{word: None})  # type: ignore[typeddict-item]
