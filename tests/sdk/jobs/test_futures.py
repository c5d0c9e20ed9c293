"""Futures: jobs are batched, and neither lost nor duplicated, whatever happens to the connection."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, wait

import numpy as np
import pytest

from computepool import JobCancelled, JobFailed, Pool, connect
from computepool.core.jobs.lifecycle import JobState
from computepool.protocol.jobs.jobs import PAYLOAD_MAX
from computepool.sdk import BadRequest, ComputePoolError, Forbidden, HubUnreachable, ResultUnreadable, Unauthenticated
from computepool.sdk.client.session import GroupSession
from tests.sdk.fake_hub import FakeHub, Refusal

SOON_S = 60


def double(number: int) -> int:
    return number * 2


def test_a_function_runs_and_returns_its_value(pool: Pool) -> None:
    assert pool.submit(double, 21).result(SOON_S) == 42
    assert pool.submit(pow, 2, kwargs={"exp": 5}).result(SOON_S) == 32
    assert pool.options(cores=2).submit(pow, 2, exp=6).result(SOON_S) == 64


def test_options_become_the_spec(hub: FakeHub, pool: Pool) -> None:
    pool.submit(double, 1, vram=16, cores=2, ram="512MB", tier="rtx-4090", retries=2, timeout="2m").result(SOON_S)
    request = hub.jobs["job_000002"]["request"]
    needs = request.spec.needs
    assert (needs.vram_mb, needs.cores, needs.ram_mb, needs.tiers) == (16_000, 2, 512, ["rtx-4090"])
    assert needs.python == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert (request.retries, request.spec.timeout_s, request.spec.name) == (2, 120, "double")


@pytest.mark.soak
def test_a_loop_of_submits_needs_few_requests(hub: FakeHub, pool: Pool) -> None:
    futures = [pool.submit(double, number) for number in range(3000)]
    assert [future.result(SOON_S) for future in futures] == [2 * number for number in range(3000)]
    assert hub.count("POST", "/groups") == 1
    assert hub.count("POST", "/jobs") < 60
    assert max(hub.batches) <= 1000
    assert hub.groups["grp_1"].kind == "session"


def test_different_options_do_not_share_a_batch(hub: FakeHub, pool: Pool) -> None:
    futures = [pool.submit(double, n, cores=1 + n % 2) for n in range(10)]
    assert [future.result(SOON_S) for future in futures] == [2 * n for n in range(10)]
    assert {len(job["request"].items) for job in hub.jobs.values()} == {1}


@pytest.mark.parametrize("fault", ["drop", "reset"])
def test_lost_requests_and_replies_neither_lose_nor_duplicate_a_job(hub: FakeHub, pool: Pool, fault: str) -> None:
    turns: dict[str, int] = {}

    def every_other(method: str, path: str) -> str | None:
        turns[path] = turns.get(path, 0) + 1
        return fault if turns[path] % 2 else None

    hub.fault = every_other
    futures = [pool.submit(double, number) for number in range(100)]
    assert [future.result(SOON_S) for future in futures] == [2 * number for number in range(100)]
    assert len(hub.jobs) == 100
    assert len({future.job_id for future in futures}) == 100


def test_a_job_submitted_while_an_idle_poll_breaks_is_not_lost(hub: FakeHub, pool: Pool) -> None:
    """After a result the receiver keeps polling; when that poll breaks, a new job may depend on it."""
    assert pool.submit(double, 1).result(SOON_S) == 2
    with hub.lock:
        assert hub.lock.wait_for(lambda: hub.requests[-1][2].get("after") == "1", SOON_S)
    hub.hold = True
    future = pool.submit(double, 2)
    assert future.job_id
    breaks = iter(["reset"])
    hub.fault = lambda method, path: next(breaks, None) if path.endswith("/results") else None
    hub.end_polls("drop")
    hub.release()
    assert future.result(SOON_S) == 4


def test_a_busy_hub_is_retried(hub: FakeHub, pool: Pool) -> None:
    answers = iter([503, 429, 503])

    def busy(method: str, path: str) -> None:
        status = next(answers, None)
        if status is not None:
            raise Refusal(status, {503: "unavailable", 429: "rate_limited"}[status])

    hub.fault = busy
    assert pool.submit(double, 1).result(SOON_S) == 2
    assert len(hub.jobs) == 1


def test_a_result_that_arrives_before_the_job_id_is_kept(hub: FakeHub, pool: Pool) -> None:
    """The reply to the submission is lost, so the result arrives before the repeated reply."""
    hub.hold = True
    waiting = pool.submit(double, 1)
    assert waiting.job_id  # the receiver polls the group from now on
    hub.hold = False
    lost = iter([True])

    def lose_until_delivered(method: str, path: str) -> str | None:
        if method != "POST" or path != "/jobs":
            return None
        if next(lost, None):
            return "drop"
        with hub.lock:  # repeat the reply only after the result was delivered
            assert hub.lock.wait_for(lambda: any(q.get("after") == "1" for _, _, q in hub.requests), SOON_S)
        return None

    hub.fault = lose_until_delivered
    assert pool.submit(double, 4).result(SOON_S) == 8
    hub.release()
    assert waiting.result(SOON_S) == 2


def test_a_refused_submission_fails_its_futures_with_the_hubs_error(hub: FakeHub, pool: Pool) -> None:
    def refuse(method: str, path: str) -> None:
        if path == "/jobs":
            raise Refusal(403, "forbidden", "Your account may not submit.")

    hub.fault = refuse
    future = pool.submit(double, 1)
    with pytest.raises(Forbidden, match="may not submit"):
        future.result(SOON_S)
    with pytest.raises(Forbidden):
        _ = future.job_id


def test_closing_reports_refused_jobs_whose_futures_nobody_read(hub: FakeHub, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(method: str, path: str) -> None:
        if path == "/jobs":
            raise Refusal(403, "forbidden", "Your account may not submit.")

    hub.fault = refuse
    pool = connect(hub.url, "cp_test")
    read, unread = pool.submit(double, 1), pool.submit(double, 2)
    assert isinstance(read.exception(SOON_S), Forbidden)
    pool.close()
    assert unread.done()
    assert "1 job was not accepted: Your account may not submit." in caplog.text


def test_a_revoked_key_fails_open_futures(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    future = pool.submit(double, 1)
    assert future.job_id

    def revoked(method: str, path: str) -> None:
        raise Refusal(401, "unauthenticated", "The key was revoked.")

    hub.fault = revoked
    hub.end_polls()
    with pytest.raises(Unauthenticated, match="revoked"):
        future.result(SOON_S)


def test_a_failed_job_has_a_reason_and_a_remote_traceback(pool: Pool) -> None:
    def broken(number: int) -> float:
        return number / 0

    future = pool.submit(broken, 1)
    with pytest.raises(JobFailed, match="division by zero") as caught:
        future.result(SOON_S)
    assert caught.value.reason == "exception"
    assert caught.value.job_id == future.job_id
    assert "ZeroDivisionError" in (caught.value.remote_error or "")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.job_id, str(copy)) == (caught.value.job_id, str(caught.value))


def test_cancelling_a_queued_job_notifies_all_waiters(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    future = pool.submit(double, 1)
    assert future.job_id
    notified: list[bool] = []
    future.add_done_callback(lambda done: notified.append(done.cancelled()))
    assert future.cancel()
    assert future.cancelled()
    assert notified == [True]
    with pytest.raises(JobCancelled):
        future.result(SOON_S)
    with pytest.raises(CancelledError):
        future.exception(SOON_S)
    assert wait([future], SOON_S).done == {future}


def test_a_timeout_says_that_the_job_continues(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    future = pool.submit(double, 1)
    with pytest.raises(TimeoutError, match=f"{future.job_id} is not finished after 0.01 s; it was not cancelled"):
        future.result(0.01)
    hub.release()
    assert future.result(SOON_S) == 2


def test_a_job_cancelled_elsewhere_cancels_its_future(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    future = pool.submit(double, 1)
    pool.jobs.cancel(future.job_id)
    with pytest.raises(JobCancelled):
        future.result(SOON_S)
    assert future.cancelled()


def test_a_finished_job_cannot_be_cancelled(pool: Pool) -> None:
    future = pool.submit(double, 1)
    assert future.result(SOON_S) == 2
    assert future.cancel() is False


def test_a_job_that_was_not_sent_is_cancelled_locally(hub: FakeHub, pool: Pool) -> None:
    go, arrived = threading.Event(), threading.Event()

    def slow(method: str, path: str) -> None:
        if path == "/jobs":
            arrived.set()
            go.wait(SOON_S)

    hub.fault = slow
    first = pool.submit(double, 1)
    assert arrived.wait(SOON_S)
    second = pool.submit(double, 2)
    assert second.cancel()
    go.set()
    assert first.result(SOON_S) == 2
    assert len(hub.jobs) == 1


def test_large_arguments_and_results_become_artifacts(hub: FakeHub, pool: Pool) -> None:
    data = os.urandom(PAYLOAD_MAX + 1)
    assert pool.submit(bytes.__add__, data, b"!").result(SOON_S) == data + b"!"
    assert len(hub.blobs) == 2
    array = np.arange(100_000)
    assert np.array_equal(pool.submit(np.negative, array).result(SOON_S), -array)


class Own:
    pass


def test_a_result_that_needs_pickle_is_refused_unless_allowed(pool: Pool) -> None:
    with pytest.raises(JobFailed, match="Own cannot be sent"):
        pool.submit(Own).result(SOON_S)
    future = pool.submit(Own, allow_pickle=True)
    assert type(future.result(SOON_S)).__name__ == "Own"
    with pytest.raises(ResultUnreadable, match="allow_pickle"):
        connect(pool.transport.url, "cp_other").future(future.job_id).result(SOON_S)


@pytest.mark.soak
def test_another_process_gets_a_result_by_job_id(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    job_id = pool.submit(double, 21).job_id
    code = "import sys, computepool; print(computepool.connect(sys.argv[1], 'k').future(sys.argv[2]).result(60))"
    other = subprocess.Popen([sys.executable, "-c", code, hub.url, job_id], stdout=subprocess.PIPE, text=True)
    with hub.lock:
        assert hub.lock.wait_for(lambda: hub.count("GET", f"/jobs/{job_id}/result"), SOON_S)
    hub.release()
    assert other.communicate(timeout=60)[0] == "42\n"


def test_futures_attach_to_finished_jobs_and_to_jobs_without_a_group(pool: Pool) -> None:
    done = pool.submit(double, 3)
    assert done.result(SOON_S) == 6
    with connect(pool.transport.url, "cp_other") as other:
        again = other.future(done.job_id)
        assert again.result(SOON_S) == 6
        assert other.future(done.job_id).result(SOON_S) == 6
    reply = pool.jobs.submit(pool.options().program(["echo", "hello"]))
    assert pool.future(reply.job_ids[0]).result(SOON_S).exit_code == 0


def test_wrap_future_accepts_a_job_future(pool: Pool) -> None:
    async def one() -> int:
        value: int = await asyncio.wrap_future(pool.submit(double, 5))
        return value

    assert asyncio.run(one()) == 10


def test_a_program_that_exits_after_submitting_loses_no_job(hub: FakeHub) -> None:
    code = (
        "import computepool, sys; p = computepool.connect(sys.argv[1], 'k'); [p.submit(pow, 2, n) for n in range(50)]"
    )
    subprocess.run([sys.executable, "-c", code, hub.url], check=True, timeout=90)
    assert len(hub.jobs) == 50


def test_a_web_page_instead_of_a_reply_counts_as_an_outage(hub: FakeHub, pool: Pool) -> None:
    paths = ("/groups", "/jobs", "/results")
    answered: list[str] = []

    def fault(method: str, path: str) -> str | None:
        place = "/" + path.rpartition("/")[2]
        if place not in paths or place in answered:
            return None
        answered.append(place)
        return "page"

    hub.fault = fault
    assert pool.submit(double, 3).result(SOON_S) == 6
    assert sorted(answered) == sorted(paths)
    assert len(hub.jobs) == 1


def test_an_error_in_a_background_thread_fails_all_open_futures(
    hub: FakeHub, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: GroupSession, page: object) -> None:
        raise KeyError("unforeseen")

    hub.hold = True
    monkeypatch.setattr(GroupSession, "_deliver", broken)
    future = pool.submit(double, 1)
    hub.release()
    with pytest.raises(ComputePoolError, match="unforeseen"):
        future.result(SOON_S)


def test_no_exception_in_a_callback_ends_the_receiving_thread(pool: Pool) -> None:
    called: list[object] = []

    for error in (SystemExit, KeyboardInterrupt, ZeroDivisionError):

        def raising(future: object, error: type[BaseException] = error) -> None:
            raise error

        future = pool.submit(double, 2)
        future.add_done_callback(raising)
        future.add_done_callback(called.append)
        assert future.result(SOON_S) == 4
    assert pool.submit(double, 3).result(SOON_S) == 6
    assert len(called) == 3


class _Leaves:
    def __reduce__(self) -> tuple[object, ...]:
        return sys.exit, ("unpickled",)


def test_a_pickle_that_exits_when_it_is_loaded_is_unreadable(pool: Pool) -> None:
    trusting = pool.options(allow_pickle=True)
    with pytest.raises(ResultUnreadable, match="unpickled"):
        trusting.submit(_Leaves).result(SOON_S)
    assert pool.submit(double, 3).result(SOON_S) == 6


def test_closing_reports_the_jobs_that_were_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    pool = connect("http://127.0.0.1:9", "cp_test")  # nobody listens there
    pool.submit(double, 1)
    pool.session().close(0.1)
    assert "1 job could not be sent to the hub at http://127.0.0.1:9 before the program closed" in caplog.text


def test_closing_fails_open_futures_and_refuses_new_ones(hub: FakeHub) -> None:
    hub.hold = True
    pool = connect(hub.url, "cp_test")
    future = pool.submit(double, 1)
    pool.close()
    with pytest.raises(HubUnreachable, match="The job keeps running"):
        future.result(SOON_S)
    with pytest.raises(RuntimeError, match="close"):
        pool.submit(double, 1)


def test_an_unknown_or_invalid_option_is_refused_with_a_hint(hub: FakeHub, pool: Pool) -> None:
    with pytest.raises(TypeError, match="did you mean 'vram'"):
        pool.submit(double, 1, vrm=16)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="kwargs="):
        pool.submit(double, number=1)  # type: ignore[call-arg]
    with pytest.raises(BadRequest, match="ram: 'lots' is not valid"):
        pool.submit(double, 1, ram="lots")
    with pytest.raises(BadRequest, match=r"cores: must be at least 0\.001"):
        pool.submit(double, 1, cores=-1)
    with pytest.raises(BadRequest, match="ram: must be at most 67108864 MB"):
        pool.submit(double, 1, ram="99999GB")
    with pytest.raises(BadRequest, match=r"timeout: must be more than 0$"):
        pool.submit(double, 1, timeout=0)
    with pytest.raises(BadRequest, match="impossible: must be 'queue' or 'refuse'"):
        pool.submit(double, 1, impossible="maybe")
    with pytest.raises(BadRequest, match="env: 'A-B' is not a valid name"):
        pool.submit(double, 1, env={"A-B": "1"})
    with pytest.raises(BadRequest, match="isolation"):
        pool.submit(double, 1, isolation="prayer")
    assert not hub.requests


def test_after_takes_futures(hub: FakeHub, pool: Pool) -> None:
    first = pool.submit(double, 1)
    second = pool.submit(double, 2, after=[first])
    assert second.result(SOON_S) == 4
    assert hub.jobs[second.job_id]["request"].after == [first.job_id]


def test_a_command_returns_its_outcome_or_a_future(hub: FakeHub, pool: Pool, tmp_path: object) -> None:
    outcome = pool.command(["echo", 1])
    assert (outcome.exit_code, outcome.output) == (0, "echo echo 1\n")
    with pytest.raises(JobFailed, match="exit code 1"):
        pool.command(["false"])
    future = pool.command(["echo", "later"], wait=False)
    assert future.result(SOON_S).exit_code == 0
    with pytest.raises(BadRequest, match="as a list"):
        pool.command("echo hello")
    with pytest.raises(BadRequest, match=r"cannot read nowhere\.py"):
        pool.run("nowhere.py")


def test_slices_share_a_group(hub: FakeHub, pool: Pool) -> None:
    futures = pool.slices(__file__, 4, args=["x"])
    assert [future.result(SOON_S).exit_code for future in futures] == [0] * 4
    groups = {hub.jobs[future.job_id]["group_id"] for future in futures}
    assert [hub.groups[group].kind for group in groups] == ["slices"]


def _in_child(pool: Pool) -> None:
    try:
        pool.submit(double, 1)
    except RuntimeError as error:
        os._exit(7 if "forked" in str(error) else 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_told_to_connect_again(pool: Pool) -> None:
    pool.submit(double, 1).result(SOON_S)
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(pool,))
    child.start()
    child.join(SOON_S)
    assert child.exitcode == 7


def test_the_repr_of_a_future_shows_the_last_known_state(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True
    future = pool.submit(double, 1)
    assert future.job_id
    assert repr(future) == f"<JobFuture {future.job_id} submitted>"
    assert not future.running()
    assert repr(future) == f"<JobFuture {future.job_id} queued>"
    with hub.lock:
        hub.jobs[future.job_id]["state"] = JobState.RUNNING
    assert future.running()
    assert repr(future) == f"<JobFuture {future.job_id} running>"
    future._seen = JobState.RUNNING, time.monotonic() - 12.5
    assert repr(future) == f"<JobFuture {future.job_id} running 12 s ago>"
    with hub.lock:
        hub.run(future.job_id)
    assert future.result(SOON_S) == 2
    assert not future.running()
    assert repr(future) == f"<JobFuture {future.job_id} succeeded>"


def test_the_timeout_of_an_unsent_job_says_that_it_was_not_sent(hub: FakeHub, pool: Pool) -> None:
    hub.fault = lambda method, path: "reset" if path == "/jobs" else None
    future = pool.submit(double, 1)
    assert repr(future) == "<JobFuture (no id) not submitted yet>"
    assert not future.running()
    with pytest.raises(TimeoutError, match=f"has not reached the hub at {hub.url} after 0.01 s"):
        future.result(0.01)
    hub.fault = lambda method, path: None
    assert future.result(SOON_S) == 2
