"""Real jobs submit jobs and send messages to their collector, in every sandbox that runs here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import computepool
from computepool import ComputeJob, ComputeJobState, submit_compute_job_group
from computepool.sdk.pool import Pool
from tests.faults.conftest import MakePool

pytestmark = pytest.mark.process
PATIENCE_S = 120.0


def square(number: int) -> int:
    return number * number


def sum_of_squares(count: int) -> dict[str, Any]:
    """A job that has the squares made by others."""
    pool = computepool.connect()
    computepool.send_to_collector({"asks for": count})
    first = pool.submit(square, 100)
    total = sum(pool.map(square, range(count)))
    computepool.send_to_collector({"total": total})
    return {"total": total, "first": first.result(timeout=60)}


SCRIPT = """
import computepool
pool = computepool.connect()
print(pool.command(["/bin/echo", "hello"]).result()["exit_code"])
print(sorted(pool.map(abs, [-1, -2])))
"""


@dataclass
class PartState(ComputeJobState):
    number: int = 0


class Part(ComputeJob[PartState]):
    def build_result_payload(self) -> dict[str, Any]:
        return {"twice": 2 * self.state.number}

    def run_compute_job(self) -> None:
        self.state.number += 1


class Whole(ComputeJob[ComputeJobState]):
    """Submits a group from inside, as a program outside would."""

    def run_compute_job(self) -> None:
        states = [PartState(job_key="a", number=1), PartState(job_key="b", number=2)]
        group = submit_compute_job_group(computepool.connect(), Part, states)  # type: ignore[arg-type]
        self.parts = {key: report["twice"] for key, report in group.drain().items()}  # type: ignore[call-overload]

    def build_result_payload(self) -> dict[str, Any]:
        return self.parts


@pytest.fixture(params=["process", "namespace", "gvisor"])
def sam(request: pytest.FixtureRequest, make_pool: MakePool) -> Pool:
    pool = make_pool("sqlite", verify="none", signup_grant=10**12)
    sam = pool.account("sam", "submitter", "provider")
    # What a stranger's node submits always asks for a sandbox.
    owner = sam if request.param == "process" else pool.account("pia", "provider")
    pool.start_agent(owner=owner, name="lent", trusted=("*",), sandbox=request.param, cores=4)
    return sam


def test_a_function_submits_jobs_and_sends_messages_to_its_collector(sam: Pool) -> None:
    group = sam.groups.create("nested")
    call = sam.options(children=20, group="nested", ram="512MB").submit(sum_of_squares, 5)
    assert call.result(timeout=PATIENCE_S) == {"total": 30, "first": 10_000}
    told = list(sam.groups.collector(group.id).messages())
    assert [message.value for message in told] == [{"asks for": 5}, {"total": 30}]
    assert {(message.job_id, message.attempt) for message in told} == {(call.job_id, 1)}
    summary = sam.groups.collector(group.id).summary()
    assert (summary.message_count, summary.messages) == (2, told)
    assert len(sam.jobs.get(call.job_id).children) == 6


@pytest.mark.soak
@pytest.mark.parametrize("sam", ["process"], indirect=True)
def test_a_script_and_a_class_submit_from_inside(sam: Pool, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(SCRIPT)
    done = sam.options(children=5, ram="512MB").run(script)
    assert sam.jobs.log_text(done.job_id) == "0\n[1, 2]\n"
    future = sam.options(children=5, ram="512MB").submit_job(Whole, ComputeJobState())
    assert future.result(timeout=PATIENCE_S).payload == {"a": 4, "b": 6}
