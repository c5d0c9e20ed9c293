"""Job classes that resume from a checkpoint after a lost host, or move to another host."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from computepool import ComputeJob, ComputeJobState, JobFailed, Pool
from computepool.testing.processes import FAST_AGENT, AgentProcess, RealPool
from computepool.testing.waiting import wait_until
from tests.sdk.conftest import NODE

pytestmark = pytest.mark.process
OTHER = "second"


@dataclass
class Part:
    name: str


@dataclass
class TripState(ComputeJobState):
    to: str = ""
    step: int = 0
    seen: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)


class Trip(ComputeJob[TripState]):
    def run_compute_job(self) -> None:
        self.state.seen.append("run")
        self.state.parts.append(Part("made on the way"))
        for name in ("moved.txt", "copied.txt"):
            path = self.work_dir() / name
            path.write_text(f"{name} of the first host")
            self.register_file(path, name=f"in/{name}", mode="move" if name == "moved.txt" else "copy")
        (self.work_dir() / "left.txt").write_text("not registered")
        self.dispatch_to(self.state.to)

    def on_arrival(self) -> None:
        self.state.seen.append("arrival")
        folder = self.work_dir()
        files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
        parts = [part.name for part in self.state.parts if type(part) is Part]
        self.report_compute_artifact(
            files["in/moved.txt"], result={"seen": self.state.seen, "files": sorted(files), "parts": parts}
        )


class Nowhere(ComputeJob[TripState]):
    def run_compute_job(self) -> None:
        self.dispatch_to("anywhere")


class TooLate(Trip):
    def run_compute_job(self) -> None:
        self.report_compute_success({})
        self.dispatch_to("anywhere")


class Long(ComputeJob[TripState]):
    """Saves at step 3 of its first attempt, which then never ends."""

    def run_compute_job(self) -> None:
        path = self.work_dir() / "rows.txt"
        self.state.seen.append(f"from {self.state.step}, {'with' if path.exists() else 'without'} its file")
        resumed = self.state.step > 0
        path.write_text("rows" if not path.exists() else path.read_text() + " and more")
        self.register_file(path)
        self.state.step = 3
        if not resumed:
            print("saved", self.checkpoint(0.3), flush=True)
            path.write_text("changed after the checkpoint")
            self.state.step = 100
            time.sleep(600)
        self.report_compute_artifact(path, result={"seen": self.state.seen, "step": self.state.step})


@pytest.fixture(scope="module")
def other(class_pool: RealPool) -> Iterator[AgentProcess]:
    limits = dataclasses.replace(FAST_AGENT, checkpoint_gap_s=0.1)
    agent = class_pool.start_agent(name=OTHER, tags=("roomy",), limits=limits)
    yield agent
    agent.end()


@pytest.fixture
def pool(class_pool: RealPool, other: AgentProcess) -> Pool:
    assert other.alive
    return class_pool.client()


def hosts(pool: Pool, job_id: str) -> list[tuple[str, str]]:
    return [(attempt.node_name, attempt.state) for attempt in pool.jobs.get(job_id).tries]


def test_the_state_and_registered_files_move_with_the_job(pool: Pool, tmp_path: Path) -> None:
    """Tags and exclusions do not apply to a host that the job itself names."""
    state = TripState(to=OTHER, required_host_tags=("linux",), excluded_host_names=(OTHER,))
    future = pool.submit_job(Trip, state)
    report = future.result(60)
    expected: dict[str, Any] = {
        "seen": ["run", "arrival"],
        "files": ["in/copied.txt", "in/moved.txt"],
        "parts": ["made on the way"],
    }
    assert report.payload == expected
    assert [path.read_text() for path in report.download(tmp_path)] == ["moved.txt of the first host"]
    assert hosts(pool, future.job_id) == [(NODE, "moved"), (OTHER, "succeeded")]
    assert pool.jobs.get(future.job_id).retries == 0, "a move does not use up a retry"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("job_class", "words"), [(Nowhere, "has no on_arrival"), (TooLate, "a move would lose its report")]
)
def test_an_impossible_move_is_refused(pool: Pool, job_class: Any, words: str) -> None:
    with pytest.raises(JobFailed, match=words):
        pool.submit_job(job_class, TripState()).result(60)


@pytest.mark.soak
def test_a_job_resumes_from_its_checkpoint_after_a_lost_host(pool: Pool, other: AgentProcess, tmp_path: Path) -> None:
    future = pool.submit_job(Long, TripState(preferred_host_tags=("roomy",)), exclude_tags="linux")
    wait_until(lambda: "saved True" in future.logs(), 60, "it has saved")
    wait_until(lambda: pool.jobs.get(future.job_id).checkpoint is not None, 60, "the hub has it")
    other.restart()
    report = future.result(60)
    assert report.payload == {"seen": ["from 0, without its file", "from 3, with its file"], "step": 3}
    assert [path.read_text() for path in report.download(tmp_path)] == ["rows and more"]
    assert len(hosts(pool, future.job_id)) == 2
