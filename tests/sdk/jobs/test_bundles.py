"""Bundles: small items share a job, but to the caller each one behaves like a job of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

import computepool
from computepool import JobFailed, Pool
from computepool.core.errors import BadRequest
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.protocol.jobs import bundles
from computepool.protocol.jobs.jobs import PAYLOAD_MAX
from computepool.sdk.errors import JobCancelled, ResultUnreadable
from computepool.sdk.jobs import bundles as feeds, mapping
from computepool.sdk.jobs.bundles import BUNDLE_BYTES_MAX, BUNDLE_MAX, RESULT_CHARS_MAX, Sizer, Task
from tests.sdk.fake_hub import FakeHub

SOON_S = 60


def double(number: int) -> int:
    return 2 * number


def double_or_move(number: int) -> int:
    if number < 0:
        computepool.dispatch_to("elsewhere")
    return 2 * number


def picky(number: int) -> float:
    return 1 / (number % 100)


class LargeNumber(int):
    """One whose pickle does not fit into a submission."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _small, (int(self), bytes(PAYLOAD_MAX))


def _small(number: int, _: bytes) -> int:
    return number


def sizes(hub: FakeHub) -> list[int]:
    return [job["item"].bundled for job in hub.jobs.values()]


def fail_bundles_with(hub: FakeHub, fatal: Callable[[Any], bool], reason: Reason = Reason.SIGNAL) -> None:
    """Jobs that contain a fatal item fail as a whole, as in a crash or at a time limit."""
    real = hub.run

    def run(job_id: str) -> None:
        item = hub.jobs[job_id]["item"]
        data = hub._bytes(item.payload, item.payload_artifact)
        parts = bundles.unpack(data) if data[:1] == bundles.MARK else [data]
        if any(fatal(__import__("pickle").loads(part)[0][0]) for part in parts):
            hub.finish(job_id, JobState.FAILED, reason, error="it crashed")
        else:
            real(job_id)

    hub.run = run  # type: ignore[method-assign]


def end_bundles(hub: FakeHub, state: JobState, reason: Reason, **end: str) -> None:
    """Jobs with several items end in this way; those with one item run."""
    real = hub.run

    def run(job_id: str) -> None:
        several = hub.jobs[job_id]["item"].bundled > 1
        hub.finish(job_id, state, reason, **end) if several else real(job_id)

    hub.run = run  # type: ignore[method-assign]


# ---------------------------------------------------------------- items per job


@given(
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 10**6), st.booleans()), max_size=40),
    st.floats(0.1, 10_000),
)
def test_the_size_of_bundles_stays_within_its_limits(results: list[tuple[int, int, bool]], timeout_s: float) -> None:
    sizer = Sizer(timeout_s=timeout_s)
    for ran_ms, chars, failed in results:
        before = sizer.size
        if failed:
            sizer.shrink(before)
        else:
            sizer.observe(before, ran_ms=ran_ms, chars=chars)
        assert 1 <= sizer.size <= min(BUNDLE_MAX, 16 * before)


def test_bundles_of_short_items_grow_and_those_of_long_items_shrink() -> None:
    sizer = Sizer()
    sizes = []
    while not sizer.steady:
        sizes.append(sizer.size)
        sizer.observe(sizer.size, ran_ms=0, chars=4)
    assert sizes == [1, 16, 256]
    for _ in range(5):
        sizer.observe(sizer.size, ran_ms=100 * sizer.size, chars=4)
    assert sizer.size <= 2
    assert sizer.steady
    small = Sizer(timeout_s=0.1)  # a bundle must stay far below the time limit of one item
    for _ in range(9):
        small.observe(small.size, ran_ms=small.size, chars=4)
    assert small.size <= 10


def test_one_slow_item_does_not_stop_bundling() -> None:
    sizer = Sizer()
    for ran_ms in (900, 0, 0):
        sizer.observe(1, ran_ms=ran_ms, chars=4)
    assert sizer.size > 1


def test_large_results_limit_the_size_of_bundles() -> None:
    sizer = Sizer()
    sizer.observe(1, ran_ms=0, chars=RESULT_CHARS_MAX // 3)
    assert (sizer.ideal, sizer.size) == (3, 3)


def test_an_incomplete_bundle_waits_for_more_items_unless_the_map_is_complete(
    hub: FakeHub, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "_LINGER_IDLE_S", 60.0)
    feed = pool.map(double, [])._feed
    assert feed.delay() is None
    feed.sizer = Sizer(fixed=10)
    feed.put([Task(n, b"x") for n in range(4)])
    assert (feed.delay() or 0) > 1
    feed.put([Task(n, b"x") for n in range(9)])
    assert [len(job.tasks) for job in feed.take(100, 10**6)] == [10]
    feed.complete = True
    assert [len(job.tasks) for job in feed.take(100, 10**6)] == [3]


def test_bundles_with_large_results_need_no_artifacts(hub: FakeHub, pool: Pool) -> None:
    assert [len(text) for text in pool.map(lambda n: "x" * 20_000, range(300))] == [20_000] * 300
    assert max(sizes(hub)) <= 16
    assert all(result.result_artifact is None for results in hub.results.values() for result in results[200:])


# ---------------------------------------------------------------- end to end


@pytest.mark.soak
def test_short_items_are_bundled_and_results_come_in_order(hub: FakeHub, pool: Pool) -> None:
    assert list(pool.map(double, range(20_000))) == [2 * n for n in range(20_000)]
    assert sum(sizes(hub)) == 20_000
    assert len(hub.jobs) < 10_000  # the exact number depends on how quickly the first results come


def test_an_unordered_map_yields_every_result_once(pool: Pool) -> None:
    found = Counter(pool.map(double, range(5_000), ordered=False))
    assert found == Counter(2 * n for n in range(5_000))


def test_an_unordered_map_does_not_wait_for_a_slow_item(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    run = pool.map(double, range(8), ordered=False, chunksize=1)
    assert pool.flush()
    with hub.lock:
        hub.run(list(hub.jobs)[7])
    assert next(run) == 14
    hub.release()
    assert sorted(run) == [2 * n for n in range(7)]


@pytest.mark.parametrize("chunksize", [1, 7, 600])
def test_chunksize_sets_the_items_per_job(hub: FakeHub, pool: Pool, chunksize: int) -> None:
    assert list(pool.map(double, range(1_200), chunksize=chunksize)) == [2 * n for n in range(1_200)]
    assert set(sizes(hub)) <= {chunksize, 1_200 % chunksize}
    with pytest.raises(BadRequest, match="chunksize"):
        pool.map(double, [1], chunksize=0)


def test_each_item_that_raises_has_its_own_traceback(hub: FakeHub, pool: Pool) -> None:
    results = list(pool.map(picky, range(2_000), return_exceptions=True, chunksize=50))
    bad = [place for place, result in enumerate(results) if isinstance(result, Exception)]
    assert bad == list(range(0, 2_000, 100))
    assert isinstance(results[0], JobFailed)
    assert isinstance(results[0], ZeroDivisionError)
    assert "in picky" in (results[0].remote_error or "")
    assert sum(sizes(hub)) == 2_000  # no item ran twice
    with pytest.raises(ZeroDivisionError):
        list(pool.map(picky, range(1, 500), chunksize=50))


def test_only_single_items_are_retried(hub: FakeHub, pool: Pool) -> None:
    list(pool.map(picky, range(200), return_exceptions=True, chunksize=50, retries=3))
    again = [job for job in hub.jobs.values() if job["item"].bundled == 1]
    assert [job["request"].retries for job in again] == [2, 2]
    assert {job["request"].retries for job in hub.jobs.values() if job["item"].bundled > 1} == {0}


def test_each_item_carries_its_share_of_the_budget(hub: FakeHub, pool: Pool) -> None:
    list(pool.map(double, range(95), chunksize=10, budget=95))
    budgets = {job["item"].bundled: job["request"].budget / len(job["request"].items) for job in hub.jobs.values()}
    assert budgets == {10: 10_000_000, 5: 5_000_000}


def test_items_are_not_bundled_with_a_compare_function(hub: FakeHub, pool: Pool) -> None:
    list(pool.map(double, range(500), compare=lambda one, other: one == other, verify="quorum:2"))
    assert set(sizes(hub)) == {1}


def test_items_that_save_or_move_are_not_bundled(hub: FakeHub, pool: Pool) -> None:
    """Items of a bundle would find each other's checkpoints."""
    list(pool.map(double, range(500), checkpoints=True))
    assert set(sizes(hub)) == {1}
    hub.jobs.clear()
    list(pool.map(double_or_move, range(500), chunksize=50))
    assert set(sizes(hub)) == {1}


# ---------------------------------------------------------------- failed bundles


@pytest.mark.parametrize("reason", [Reason.SIGNAL, Reason.TIMEOUT, Reason.OUT_OF_MEMORY])
def test_only_the_faulty_items_fail(hub: FakeHub, pool: Pool, reason: Reason) -> None:
    fail_bundles_with(hub, lambda number: number in (300, 301, 950), reason)
    results = list(pool.map(double, range(1_000), return_exceptions=True, chunksize=500))
    bad = {place: result for place, result in enumerate(results) if isinstance(result, Exception)}
    assert {place: error.reason for place, error in bad.items()} == dict.fromkeys((300, 301, 950), reason)
    assert [r for r in results if not isinstance(r, Exception)] == [2 * n for n in range(1_000) if n not in bad]


def test_a_failure_that_all_items_share_is_not_split(hub: FakeHub, pool: Pool) -> None:
    fail_bundles_with(hub, lambda number: True, Reason.BAD_JOB)
    results = list(pool.map(double, range(100), return_exceptions=True, chunksize=50))
    assert {type(result) for result in results} == {JobFailed}
    assert len(hub.jobs) == 2


@pytest.mark.soak
def test_items_that_write_outputs_are_not_bundled_any_more(hub: FakeHub, pool: Pool) -> None:
    end_bundles(hub, JobState.FAILED, Reason.EXCEPTION, error=bundles.WROTE_OUTPUTS)
    assert list(pool.map(double, range(3_000))) == [2 * n for n in range(3_000)]
    late = list(hub.jobs.values())[-500:]
    assert {job["item"].bundled for job in late} == {1}


@pytest.mark.parametrize("text", ["[]", "7", '[[0,1],[0,2],["x",3]]', "{}", "[[0,1"])
def test_a_result_that_does_not_fit_its_bundle_is_requested_again_item_by_item(
    hub: FakeHub, pool: Pool, text: str
) -> None:
    """So a lying node cannot deliver a result for the wrong item."""
    end_bundles(hub, JobState.SUCCEEDED, Reason.COMPLETED, result=text)
    assert list(pool.map(double, range(40), chunksize=20)) == [2 * n for n in range(40)]


def test_an_unreadable_result_does_not_affect_the_others_in_its_bundle(hub: FakeHub, pool: Pool) -> None:
    real = hub.run

    def run(job_id: str) -> None:
        real(job_id)
        if hub.jobs[job_id]["item"].bundled == 3:
            results = hub.results[hub.jobs[job_id]["group_id"]]
            text = '[[0,1],[0,{"$pickle":"gASVCg=="}],[0,3]]'
            results[-1] = results[-1].model_copy(update={"result": text})

    hub.run = run  # type: ignore[method-assign]
    first, second, third = pool.map(double, range(3), chunksize=3, return_exceptions=True)
    assert (first, third) == (1, 3)
    assert isinstance(second, ResultUnreadable)


# ---------------------------------------------------------------- reading results later


def test_items_are_found_later_by_their_numbers(hub: FakeHub, pool: Pool) -> None:
    """Including those with arguments in an artifact, and those resent because they raised or their bundle failed."""
    fail_bundles_with(hub, lambda number: number == 150)
    items: list[Any] = list(range(200))
    items[60] = LargeNumber(60)
    run = pool.map(picky, items, return_exceptions=True, chunksize=50, retries=1)
    results = list(run)
    keys = [job["item"].key for job in hub.jobs.values()]
    assert len(keys) == len(set(keys)), "keys are unique within a group"
    assert {"0-49", "60", "61-110", "100", "150"} <= set(keys)
    assert run.key_prefix == ""
    good = {str(place): value for place, value in enumerate(results) if not isinstance(value, Exception)}
    assert len(good) == 197
    assert dict(pool.groups.collector(run.group_id or "").values()) == good


def test_maps_in_one_group_have_different_keys(hub: FakeHub, pool: Pool) -> None:
    group = pool.groups.create("shared").id
    runs = [pool.map(double, range(size), group=group, chunksize=10) for size in (25, 30)]
    expected = {f"{run.key_prefix}{place}": value for run in runs for place, value in enumerate(list(run))}
    assert len(expected) == 55
    assert dict(pool.groups.collector(group).values()) == expected


# ---------------------------------------------------------------- limits on memory


@pytest.mark.soak
def test_items_are_read_lazily_and_memory_stays_bounded(hub: FakeHub, pool: Pool) -> None:
    read = 0

    def million() -> Iterator[int]:
        nonlocal read
        for number in range(1_000_000):
            read += 1
            yield number

    with pool.map(double, million()) as run:
        assert read == mapping.IN_FLIGHT_MAX
        for taken in range(30_000):
            assert next(run) == 2 * taken
            assert read <= taken + mapping.IN_FLIGHT_MAX
        held = len(run._by_index) + len(run._sizes) + len(run._feed._tasks)
        assert held <= 2 * mapping.IN_FLIGHT_MAX
        assert len(hub.replies) < 2_000
    assert read < 50_000


def test_large_arguments_limit_the_number_of_items_in_flight(
    hub: FakeHub, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapping, "HELD_BYTES_MAX", 1_000_000)
    hub.hold = True
    read = 0

    def blobs() -> Iterator[bytes]:
        nonlocal read
        for _ in range(10_000):
            read += 1
            yield bytes(50_000)

    run = pool.map(len, blobs())
    assert read == 20
    hub.release()
    assert next(run) == 50_000
    run.close()


def test_no_bundle_exceeds_the_size_of_a_message(hub: FakeHub, pool: Pool) -> None:
    assert list(pool.map(len, [bytes(3_000)] * 2_000)) == [3_000] * 2_000
    longest = max(len(job["item"].payload) * 3 // 4 for job in hub.jobs.values())
    assert 3 * 3_000 < longest <= BUNDLE_BYTES_MAX


# ---------------------------------------------------------------- leaving early


def test_leaving_a_map_does_not_cancel_other_jobs_of_its_group(hub: FakeHub, pool: Pool) -> None:
    group = pool.groups.create("mine").id
    hub.hold = True
    other = pool.submit(double, 4, group=group)
    run = pool.map(double, range(10), group=group, chunksize=5)
    assert pool.flush()
    run.close()
    with hub.lock:
        cancelled = lambda: sum(j["state"] is JobState.CANCELLED for j in hub.jobs.values())  # noqa: E731
        assert hub.lock.wait_for(lambda: cancelled() == 2, SOON_S)
    hub.release()
    assert other.result(SOON_S) == 8
    assert list(pool.map(double, range(10), group=group)) == [2 * n for n in range(10)]


def test_a_bundle_that_fails_while_closing_ends_as_cancelled(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    run = pool.map(double, range(40), chunksize=20, return_exceptions=True)
    assert pool.flush()
    session = run._session
    with session.lock:
        session._closing = True
    for job in run._feed.unanswered:
        run._feed._split(job)
    assert isinstance(run.take(SOON_S), JobCancelled)


def test_a_timeout_loses_no_result(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    run = pool.map(double, range(3))
    with pytest.raises(TimeoutError):
        run.take(0.05)
    hub.release()
    assert list(run) == [0, 2, 4]
