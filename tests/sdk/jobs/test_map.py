"""map: in order, bounded, cancelled when left."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from computepool import JobFailed, Pool, connect
from computepool.core.jobs.lifecycle import JobState
from tests.sdk.fake_hub import FakeHub


def inverse(number: int) -> float:
    return 1 / number


def test_results_come_in_order_through_a_group_of_their_own(hub: FakeHub, pool: Pool) -> None:
    assert list(pool.map(divmod, range(2500), [7] * 2500)) == [divmod(n, 7) for n in range(2500)]
    assert [group.kind for group in hub.groups.values()] == ["map"]
    assert hub.count("POST", "/groups/") == 0  # nothing left to cancel


def test_an_empty_map_asks_the_hub_nothing(hub: FakeHub, pool: Pool) -> None:
    assert list(pool.map(inverse, [])) == []
    assert not hub.requests


def test_items_are_read_only_as_fast_as_results_are_taken(pool: Pool) -> None:
    read = 0

    def items() -> Iterator[int]:
        nonlocal read
        for number in range(1, 1000):
            read += 1
            yield number

    run = pool.map(inverse, items(), in_flight_max=10)
    assert read == 10
    assert [next(run) for _ in range(5)] == [1 / n for n in range(1, 6)]
    assert read == 14  # one for each result taken before the last
    run.close()


def test_a_failing_item_raises_in_its_place_and_cancels_the_rest(hub: FakeHub, pool: Pool) -> None:
    run = pool.map(inverse, [1, 2, 0, 4])
    assert [next(run), next(run)] == [1, 0.5]
    with pytest.raises(JobFailed, match="division by zero"):
        next(run)
    with pytest.raises(StopIteration):
        next(run)


def test_failures_can_be_taken_as_values(pool: Pool) -> None:
    first, second, third = pool.map(inverse, [1, 0, 4], return_exceptions=True)
    assert (first, third) == (1, 0.25)
    assert isinstance(second, JobFailed)


def test_leaving_the_loop_cancels_what_is_open(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    for _ in range(1):
        run = pool.map(inverse, range(1, 50))
        assert pool.flush()
        with hub.lock:
            hub.run("job_000002")
        for value in run:
            assert value == 1
            break
        del run
    with hub.lock:
        assert hub.lock.wait_for(
            lambda: sum(job["state"] is JobState.CANCELLED for job in hub.jobs.values()) == 48, 10
        )


def test_closing_the_pool_right_after_leaving_still_cancels(hub: FakeHub) -> None:
    hub.hold = True
    arrived = threading.Event()

    def slow(method: str, path: str) -> None:
        if path.endswith("/cancel"):
            arrived.wait(0.3)  # long enough for a close that does not wait to be over first

    hub.fault = slow
    with connect(hub.url, "cp_test") as pool:
        run = pool.map(inverse, range(1, 50))
        assert pool.flush()
        run.close()
    assert hub.count("POST", "/groups/grp_1/cancel") == 1
    assert all(job["state"] is JobState.CANCELLED for job in hub.jobs.values())


LEFT = """
import sys, computepool
pool = computepool.connect({url!r}, "cp_test")
run = pool.map(abs, range(50), progress=False)
assert pool.flush()
print("open", flush=True)
sys.stdin.readline()
{how}
"""


@pytest.mark.soak
@pytest.mark.parametrize("how", ["raise KeyboardInterrupt", "pool.close()", ""])
def test_a_map_that_is_left_open_says_once_that_its_jobs_go_on(hub: FakeHub, how: str) -> None:
    hub.hold = True
    program = [sys.executable, "-c", LEFT.format(url=hub.url, how=how)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(program, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "open\n"
        with hub.lock:
            hub.run("job_000002")
            open_ = sum(job["state"] is JobState.QUEUED for job in hub.jobs.values())
        _, err = process.communicate("\n", timeout=60)
    said = [line for line in err.splitlines() if "pool group cancel" in line]
    assert said in (
        [f"{open_} jobs of a map keep running. To cancel: pool group cancel grp_1"],
        [
            f"{open_ + 1} jobs of a map keep running. To cancel: pool group cancel grp_1"
        ],  # it had not heard of one
    )
    assert sum(job["state"] is JobState.QUEUED for job in hub.jobs.values()) == open_


def test_a_map_that_was_taken_whole_or_cancelled_says_nothing(
    hub: FakeHub, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(hub.url, "cp_test") as pool:
        assert list(pool.map(inverse, [1, 2])) == [1, 0.5]
        pool.submit(inverse, 1).result()
    hub.hold = True
    with connect(hub.url, "cp_test") as pool:
        run = pool.map(inverse, range(1, 50))
        assert pool.flush()
        run.close()
        pool.submit(inverse, 1)  # submitted and left on purpose
        assert pool.flush()
    assert "keep running" not in caplog.text


def test_a_bar_is_drawn_on_a_terminal_only(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, shown in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        list(pool.map(inverse, [1, 2, 4]))
        assert ("3/3" in stream.getvalue()) is shown


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_reading_an_item_raises_ends_the_map(pool: Pool, error: type[BaseException]) -> None:
    def items() -> Iterator[int]:
        yield from range(7)
        raise error

    run = pool.map(abs, items(), progress=False, in_flight_max=4)
    with pytest.raises(error):
        list(run)
    assert next(run, "over") == "over"


def test_a_map_that_is_forgotten_anywhere_is_cancelled(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    runs = [pool.map(abs, range(3), progress=False)]
    pool.flush()

    def forget(lock: threading.Lock) -> None:
        with lock:  # as the collector of garbage may, in a thread of the session's
            runs.clear()

    thread = threading.Thread(target=forget, args=(runs[0]._session.lock,), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    with hub.lock:
        assert hub.lock.wait_for(lambda: hub.count("POST", "/groups/"), 10)


def test_a_bar_that_cannot_be_drawn_costs_no_result(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    run = pool.map(abs, range(-100, 0), progress=True, in_flight_max=10)
    monkeypatch.setattr(sys, "stderr", Gone())
    monkeypatch.setattr(run._bar._drawn, "draw", lambda done: sys.stderr.write("x"))
    assert list(run) == list(range(100, 0, -1))
