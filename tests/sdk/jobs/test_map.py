"""`pool.map`: results in order, a bounded number of items in flight, and cancellation on leaving."""

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


def test_a_map_yields_results_in_order_from_its_own_group(hub: FakeHub, pool: Pool) -> None:
    assert list(pool.map(divmod, range(2500), [7] * 2500)) == [divmod(n, 7) for n in range(2500)]
    assert [group.kind for group in hub.groups.values()] == ["map"]
    assert hub.count("POST", "/groups/") == 0  # nothing left to cancel


def test_an_empty_map_sends_no_request(hub: FakeHub, pool: Pool) -> None:
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


def test_leaving_the_loop_cancels_unfinished_jobs(hub: FakeHub, pool: Pool) -> None:
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
        assert hub.lock.wait_for(lambda: sum(job["state"] is JobState.CANCELLED for job in hub.jobs.values()) == 48, 60)


def test_closing_the_pool_waits_for_the_cancellation_of_a_map(hub: FakeHub) -> None:
    hub.hold = True
    arrived = threading.Event()

    def slow(method: str, path: str) -> None:
        if path.endswith("/cancel"):
            arrived.wait(0.3)  # longer than a close() that does not wait

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
def test_a_map_left_open_at_exit_warns_once_that_its_jobs_continue(hub: FakeHub, how: str) -> None:
    hub.hold = True
    program = [sys.executable, "-c", LEFT.format(url=hub.url, how=how)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(program, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "open\n"
        with hub.lock:
            hub.run("job_000002")
            open_ = sum(job["state"] is JobState.QUEUED for job in hub.jobs.values())
        _, err = process.communicate("\n", timeout=60)
    warnings = [line for line in err.splitlines() if "pool group cancel" in line]
    assert warnings in (
        [f"{open_} jobs of a map keep running. To cancel: pool group cancel grp_1"],
        [
            f"{open_ + 1} jobs of a map keep running. To cancel: pool group cancel grp_1"
        ],  # one result was not received in time
    )
    assert sum(job["state"] is JobState.QUEUED for job in hub.jobs.values()) == open_


def test_a_finished_or_cancelled_map_does_not_warn(hub: FakeHub, caplog: pytest.LogCaptureFixture) -> None:
    with connect(hub.url, "cp_test") as pool:
        assert list(pool.map(inverse, [1, 2])) == [1, 0.5]
        pool.submit(inverse, 1).result()
    hub.hold = True
    with connect(hub.url, "cp_test") as pool:
        run = pool.map(inverse, range(1, 50))
        assert pool.flush()
        run.close()
        pool.submit(inverse, 1)  # single jobs may be left open on purpose
        assert pool.flush()
    assert "keep running" not in caplog.text


def test_the_progress_bar_is_drawn_only_on_a_terminal(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, shown in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        list(pool.map(inverse, [1, 2, 4]))
        assert ("3/3" in stream.getvalue()) is shown


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_while_reading_items_ends_the_map(pool: Pool, error: type[BaseException]) -> None:
    def items() -> Iterator[int]:
        yield from range(7)
        raise error

    run = pool.map(abs, items(), progress=False, in_flight_max=4)
    with pytest.raises(error):
        list(run)
    assert next(run, "over") == "over"


def test_a_map_that_is_garbage_collected_is_cancelled(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    runs = [pool.map(abs, range(3), progress=False)]
    pool.flush()

    def forget(lock: threading.Lock) -> None:
        with lock:  # as if the garbage collector ran in a thread of the session
            runs.clear()

    thread = threading.Thread(target=forget, args=(runs[0]._session.lock,), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    with hub.lock:
        assert hub.lock.wait_for(lambda: hub.count("POST", "/groups/"), 60)


def test_a_broken_terminal_loses_no_result(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    run = pool.map(abs, range(-100, 0), progress=True, in_flight_max=10)
    monkeypatch.setattr(sys, "stderr", Gone())
    monkeypatch.setattr(run._bar._drawn, "draw", lambda done: sys.stderr.write("x"))
    assert list(run) == list(range(100, 0, -1))
