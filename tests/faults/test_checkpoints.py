"""A job that outlives its nodes: one is killed, one stops, the third finishes it; each owner is paid for its part."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from computepool.cli.main import app
from computepool.core.jobs.lifecycle import JobState
from computepool.testing.processes import FAST_AGENT
from computepool.testing.waiting import wait_until
from tests.faults.conftest import MakePool

pytestmark = pytest.mark.process

STEPS = 20


def work(steps: int) -> tuple[int, int]:
    import os
    import time

    import computepool

    # The first two attempts never finish, however late the test ends them.
    most = steps if os.environ["COMPUTEPOOL_ATTEMPT"] == "3" else steps - 1
    place = computepool.restored()
    done = begun = int((place / "done").read_text()) if place else 0
    while done < steps:
        time.sleep(0.04)
        done = min(done + 1, most)
        Path("done").write_text(str(done))
        computepool.checkpoint("done", progress=done / steps)
    return begun, done


work.__module__ = "__main__"  # pickled by value, as a function of a script would be


def test_a_job_outlives_its_nodes_and_all_owners_are_paid(
    make_pool: MakePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The test waits for the end of one lease; a shorter one may also end while the machine is busy.
    pool = make_pool(verify="none", checkpoint_gap_s=0.01, lease_min_s=15, self_fence_s=1)
    sam = pool.account("sam", "submitter")
    owners = [pool.account(name, "provider") for name in ("ann", "ben", "cat")]
    limits = replace(FAST_AGENT, checkpoint_gap_s=0.1)
    settled = {"sandbox": "namespace", "cores": 1, "limits": limits}

    first = pool.start_agent(owner=owners[0], **settled)
    future = sam.submit(work, STEPS, timeout="5m")
    job_id = future.job_id

    def saved_by(attempt: int) -> bool:
        kept = sam.jobs.get(job_id).checkpoint
        return kept is not None and kept.attempt == attempt and (kept.progress or 0) > 0.1

    wait_until(lambda: saved_by(1), 60, "the first node has saved something")
    monkeypatch.setenv("COMPUTEPOOL_HUB", pool.hubs[0].url)
    monkeypatch.setenv("COMPUTEPOOL_KEY", pool.admin_key)
    shown = CliRunner().invoke(app, ["jobs", "show", job_id])
    assert re.search(r"checkpoint\s.*%, 1 file, .*, by attempt 1", shown.output), shown.output
    fetched = CliRunner().invoke(app, ["jobs", "checkpoint", job_id, "--out", str(tmp_path)])
    assert (fetched.exit_code, fetched.output[:6]) == (0, "saved "), fetched.output
    assert 0 < int((tmp_path / "done").read_text()) < STEPS
    first.kill()
    second = pool.start_agent(owner=owners[1], **settled)
    wait_until(lambda: saved_by(2), 60, "the second node went on from there, and saved more")
    assert second.stop(40) == 0
    pool.start_agent(owner=owners[2], **settled)
    begun, done = future.result(60)
    assert 0.1 * STEPS < begun < done == STEPS

    ended = sam.jobs.get(job_id)
    assert (ended.state, ended.checkpoint) == (JobState.SUCCEEDED, None)
    assert [try_.state for try_ in ended.tries] == ["expired", "returned", "succeeded"]
    assert [try_.resumed for try_ in ended.tries] == [None, 1, 2]
    charges = [try_.charge or 0 for try_ in ended.tries]
    assert min(charges) > 0
    assert ended.charge == sum(charges) <= ended.hold
    # No more than the time between lease and end, by the hub's clock.
    for try_ in ended.tries:
        assert (try_.billed_ms or 0) <= (try_.finished_at_ms or 0) - try_.leased_at_ms
    earned = [owner.credits().maturing for owner in owners]
    assert [0 < amount <= charge for amount, charge in zip(earned, charges, strict=True)] == [True] * 3
