"""`pool logs` of a job without output says why there is none."""

from __future__ import annotations

import pytest

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.protocol.jobs.views import LogChunk
from tests.cli.conftest import Run
from tests.cli.test_commands import pool_process
from tests.sdk.fake_hub import FakeHub


def queued(hub: FakeHub, run: Run) -> str:
    hub.hold = True
    return run("submit", "--", "true").out.strip()


@pytest.mark.parametrize("command", [("logs",), ("jobs", "logs"), ("jobs", "logs", "--json")])
def test_the_wait_of_a_queued_job_is_explained(hub: FakeHub, run: Run, command: tuple[str, ...]) -> None:
    job_id = queued(hub, run)
    done = run(*command, job_id)
    assert (done.code, done.out) == (0, "")
    assert done.err == f"{job_id} queued: Waiting: no node is connected.\n"


def test_the_output_of_an_earlier_attempt_is_printed_first(hub: FakeHub, run: Run) -> None:
    job_id = queued(hub, run)
    hub.jobs[job_id]["logs"] = [LogChunk(seq=1, attempt_id="att_1", stream="stdout", text="before\n")]
    done = run("logs", job_id)
    assert done.out == "before\n"
    assert "queued: Waiting" in done.err


@pytest.mark.parametrize(("state", "words"), [(JobState.RUNNING, "no output yet."), (JobState.FAILED, "no output.")])
def test_a_job_without_output_is_explained(hub: FakeHub, run: Run, state: JobState, words: str) -> None:
    job_id = queued(hub, run)
    hub.jobs[job_id]["state"] = state
    done = run("logs", job_id)
    assert (done.out, done.err) == ("", f"{job_id} {state}: {words}\n")


@pytest.mark.soak
def test_following_waits_for_the_job_to_start(hub: FakeHub, run: Run) -> None:
    job_id = queued(hub, run)
    with pool_process("logs", "-f", job_id) as watcher:
        assert watcher.stderr is not None
        assert watcher.stderr.readline() == f"{job_id} queued: Waiting: no node is connected.\n"
        hub.release()
        out, err = watcher.communicate(timeout=60)
    assert (watcher.returncode, out) == (0, "true true\n")
    assert err == f"{job_id} succeeded.\n"


@pytest.mark.soak
def test_following_a_job_without_output_says_when_it_started(hub: FakeHub, run: Run) -> None:
    job_id = queued(hub, run)
    with pool_process("logs", "-f", job_id) as watcher:
        assert watcher.stderr is not None
        assert " queued" in watcher.stderr.readline()
        with hub.lock:
            hub.jobs[job_id]["state"] = JobState.RUNNING
            hub.lock.notify_all()
        assert watcher.stderr.readline() == f"{job_id} running.\n"
        with hub.lock:
            hub.finish(job_id, JobState.SUCCEEDED, Reason.COMPLETED, exit_code=0)
        _, err = watcher.communicate(timeout=60)
    assert err.endswith("no output.\n")
