"""Results of real nodes that differ slightly are confirmed if the submitter's comparison says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from computepool.cli.options import comparison
from tests.faults.conftest import MakePool

pytestmark = [pytest.mark.process, pytest.mark.soak]

PATIENCE_S = 60.0
QUORUM = "quorum:2"


def almost(question: float) -> float:
    """Another one on each node: the folder that it runs in has the name of the node."""
    return question + len(os.getcwd()) * 1e-9


def test_results_that_differ_a_little_are_confirmed(make_pool: MakePool, tmp_path: Path) -> None:
    pool = make_pool("sqlite", signup_grant=10**12)
    for owner in ("olga", "ottokar", "odysseus"):
        pool.start_agent(owner=pool.account(owner, "provider"), name=f"node-of-{owner}", trusted=("*",))
    sam = pool.account("sam", "submitter")
    near = 1e-6

    by_function = sam.submit(almost, 1.0, verify=QUORUM, compare=lambda a, b: abs(a - b) < near)
    assert abs(by_function.result(timeout=PATIENCE_S) - 1.0) < near
    job = sam.jobs.get(by_function.job_id)
    assert (job.verdict, job.compare, [run.state for run in job.tries]) == (
        "confirmed",
        "function",
        ["succeeded", "succeeded"],
    )

    by_tolerance = sam.submit(almost, 1.0, verify=QUORUM, compare="tolerance:1e-6")
    by_tolerance.result(timeout=PATIENCE_S)
    assert sam.jobs.get(by_tolerance.job_id).verdict == "confirmed"

    # What a program prints, within a tolerance, and by a function of a file, as the command line takes it.
    (tmp_path / "same.py").write_text("def words(a, b):\n    return a.split()[0] == b.split()[0]\n")
    prints = ["/bin/sh", "-c", "echo near 0.5000000${#PWD}"]
    for compare in ("tolerance:1e-5", comparison(f"{tmp_path}/same.py:words")):
        outcome = sam.command(prints, verify=QUORUM, compare=compare, timeout="60s")  # type: ignore[arg-type]
        assert sam.jobs.get(outcome.job_id).verdict == "confirmed"

    for node in sam.nodes.list():
        assert node.reputation is not None
        assert node.reputation.violation_count == 0
    assert pool.broken_rules() == []
