"""A machine that sleeps past its lease: the results of its jobs arrive whole, or the jobs run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from computepool.core.jobs.lifecycle import LIVE_ATTEMPT, AttemptState, JobState
from computepool.protocol.jobs.views import JobDetail
from computepool.protocol.sealing import OUTPUT, About
from computepool.sdk.files import sealing
from computepool.sdk.jobs.futures import JobFuture
from computepool.sdk.pool import Pool
from computepool.testing.processes import FAST_AGENT, AgentProcess, RealPool
from computepool.testing.waiting import wait_until
from tests.faults.conftest import MakePool
from tests.faults.jobprocesses import freeze_machine, jobs_of, thaw_machine
from tests.faults.proxy import ChaosProxy

pytestmark = [pytest.mark.process, pytest.mark.soak]

LEASE_S = 6
#: By step: the request that is on its way at that moment, if any, and the number of such requests.
STEPS = {
    "before start": ("GET /api/v1/artifacts/", 1),
    "running": ("", 0),
    "after exit": ("", 0),
    "in the upload": ("PUT /api/v1/artifacts/", 3),
    "before the report": ("POST /api/v1/complete", 1),
}
SCRIPT = """
import os, pathlib, sys, time
marks, outputs = pathlib.Path(sys.argv[1]), pathlib.Path(os.environ["COMPUTEPOOL_OUTPUTS"])
print("begun", flush=True)
(outputs / "first").write_text("one")
(marks / f"{sys.argv[2]}.{os.environ['COMPUTEPOOL_ATTEMPT']}").touch()
while not (marks / "go").exists():
    time.sleep(0.02)
(outputs / "folder").mkdir()
(outputs / "folder" / "second").write_text("two" * 1000)
print("ended")
"""
FILES = {"first": b"one", "folder/second": b"two" * 1000}
LONG = ["value"] * 40_000  #: too long for a report, so it is sent as a file


def work(marks: str, name: str) -> list[str]:
    import os
    import time
    from pathlib import Path

    import computepool

    print("begun", flush=True)
    outputs = computepool.outputs()
    (outputs / "first").write_text("one")
    Path(marks, f"{name}.{os.environ['COMPUTEPOOL_ATTEMPT']}").touch()
    while not Path(marks, "go").exists():
        time.sleep(0.02)
    (outputs / "folder").mkdir()
    (outputs / "folder" / "second").write_text("two" * 1000)
    print("ended")
    return ["value"] * 40_000


def count(marks: str, steps: int) -> list[int]:
    """Two files that belong together: they must be restored from the same step."""
    import time
    from pathlib import Path

    import computepool

    place = computepool.restored()
    found = [int((place / name).read_text()) for name in ("one", "two")] if place else [0, 0]
    if found[0] != found[1]:
        raise ValueError(f"half a checkpoint: {found}")
    for done in range(found[0] + 1, steps + 1):
        for name in ("one", "two"):
            Path(name).write_text(str(done))
        while not computepool.checkpoint("one", "two", progress=done / steps):
            time.sleep(0.02)
        while done < steps and not Path(marks, f"go-{done}").exists():
            time.sleep(0.02)
    return [found[0], steps]


for function in (work, count):
    function.__module__ = "__main__"  # pickled by value, as a function of a script would be


@dataclass
class Sleeper:
    """A node with its jobs, its connection to the hub, and the folder through which its jobs are controlled."""

    step: str
    marks: Path
    agent: AgentProcess
    proxy: ChaosProxy
    futures: dict[str, JobFuture] = field(default_factory=dict)

    def go(self) -> None:
        (self.marks / "go").touch()

    def started(self) -> bool:
        return all((self.marks / f"{name}.1").exists() for name in self.futures)

    def scripts_ended(self) -> bool:
        return not jobs_of(self.agent, "python3", "sleeps.py")

    def wake(self) -> None:
        """Earlier connections are gone by then."""
        self.proxy.heal()
        thaw_machine(self.agent)


MakeSleeper = Callable[..., Sleeper]


@pytest.fixture
def make_sleeper() -> Iterator[MakeSleeper]:
    """They end before their pool and their connection to it."""
    made: list[Sleeper] = []

    def make(pool: RealPool, step: str, **config: Any) -> Sleeper:
        number = len(made)
        marks = pool.shared_folder(f"marks-{number}")
        proxy = ChaosProxy(pool.hubs[0].port, seed=number)
        agent = pool.start_agent(url=proxy.url, name=f"sleeper-{number}", online=False, **config)
        made.append(Sleeper(step, marks, agent, proxy))
        return made[-1]

    yield make
    for sleeper in made:
        sleeper.wake()
        sleeper.agent.end()
        sleeper.proxy.close()


@pytest.fixture
def pool(make_pool: MakePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealPool:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    sealing.init()
    return make_pool(lease_min_s=LEASE_S, checkpoint_gap_s=0.01)


def submit(client: Pool, sleeper: Sleeper, tmp_path: Path, *, group: str) -> None:
    """A script, the same with what it makes sealed, and a function with a long result."""
    script, data = tmp_path / "sleeps.py", tmp_path / f"input-{sleeper.agent.name}"
    script.write_text(SCRIPT)
    data.write_text(str(data))  # unique, so no cache has it
    for name in ("script", "sealed"):
        sleeper.futures[name] = client.run(
            script, [sleeper.marks, name], wait=False, seal=name == "sealed", tags=sleeper.agent.name, cores=0.1,
            inputs=[data], group=group,
        )  # fmt: skip
    sleeper.futures["function"] = client.submit(
        work, str(sleeper.marks), "function", tags=sleeper.agent.name, cores=0.1, inputs=[data], group=group
    )


def fall_asleep(sleeper: Sleeper, *, whole: bool) -> None:
    """Freeze the agent alone, or the whole machine, when its jobs are at the step."""
    request, number = STEPS[sleeper.step]
    if sleeper.step != "before start":
        wait_until(sleeper.started, 60, f"{sleeper.step}: the jobs run")
        sleeper.proxy.hold = request
    if number:
        sleeper.go()
        wait_until(lambda: sleeper.proxy.held >= number, 60, f"{sleeper.step} is reached")
    sleeper.agent.freeze()
    if sleeper.step == "after exit":
        sleeper.go()
        wait_until(sleeper.scripts_ended, 60, "the scripts end")
    if whole:
        freeze_machine(sleeper.agent)


def check_whole(client: Pool, future: JobFuture) -> None:
    job = client.jobs.wait(future.job_id, timeout=90)
    assert job.state is JobState.SUCCEEDED, (job.reason, job.error)
    assert [one.state for one in job.tries].count("succeeded") == 1
    assert {output.name for output in job.outputs} == FILES.keys(), [(one.state, one.reason) for one in job.tries]
    for output in job.outputs:
        about = None if job.spec.seal_to is None else About(job.id, OUTPUT, output.name)
        assert client.artifacts.get_bytes(output.digest, about=about) == FILES[output.name]
    assert printed(client, job) == ["begun", "ended"]


def printed(client: Pool, job: JobDetail) -> list[str]:
    [accepted] = [one.id for one in job.tries if one.state == "succeeded"]
    return "".join(chunk.text for chunk in client.jobs.logs(job.id) if chunk.attempt_id == accepted).split()


def submit_all(client: Pool, sleepers: list[Sleeper], tmp_path: Path, *, group: str) -> list[JobFuture]:
    for sleeper in sleepers:
        if sleeper.step == "before start":
            sleeper.proxy.hold = STEPS[sleeper.step][0]
        submit(client, sleeper, tmp_path, group=group)
    return [future for sleeper in sleepers for future in sleeper.futures.values()]


def wait_for_first_tries(client: Pool, futures: list[JobFuture], *, reported: bool) -> None:
    """Wait until they are over for the hub, or with `reported` also for their nodes."""
    not_yet = {*LIVE_ATTEMPT, AttemptState.EXPIRED} if reported else LIVE_ATTEMPT

    def are_over() -> bool:
        return all(client.jobs.get(future.job_id).tries[0].state not in not_yet for future in futures)

    wait_until(are_over, 90, "the nodes have reported" if reported else "the leases have run out")


@pytest.mark.parametrize("frozen", ["machine", "agent", "replaced"])
def test_results_arrive_whole_or_the_job_runs_again(
    pool: RealPool, make_sleeper: MakeSleeper, tmp_path: Path, frozen: str
) -> None:
    """`replaced`: another node ran the jobs meanwhile. The home node of their group also sleeps, while it fetches results."""
    sleepers = [make_sleeper(pool, step, tags=(f"sleeper-{number}",)) for number, step in enumerate(STEPS)]
    names = tuple(one.agent.name for one in sleepers)
    home = make_sleeper(pool, "fetching", tags=names if frozen == "replaced" else ())
    for one in (*sleepers, home):
        pool.wait_online(one.agent)
    client = pool.client()
    client.nodes.pause(home.agent.node_id)
    group = client.groups.create("sleepers", home=home.agent.node_id, return_home=True)
    futures = submit_all(client, sleepers, tmp_path, group=group.id)
    for sleeper in sleepers:
        fall_asleep(sleeper, whole=frozen != "agent")
    wait_for_first_tries(client, futures, reported=False)
    if frozen == "replaced":
        for sleeper in sleepers:
            sleeper.go()
        client.nodes.resume(home.agent.node_id)
        for future in futures:
            check_whole(client, future)
    else:
        home.proxy.hold = "GET /api/v1/artifacts/"
    for sleeper in sleepers:
        sleeper.wake()
        sleeper.go()
    wait_for_first_tries(client, futures, reported=True)
    for future in futures:
        check_whole(client, future)
    assert [sleeper.futures["function"].result(30) == LONG for sleeper in sleepers] == [True] * len(sleepers)
    _check_home(client, home, group.id, files=len(futures) * len(FILES), asleep=frozen != "replaced")


def _check_home(client: Pool, home: Sleeper, group_id: str, *, files: int, asleep: bool) -> None:
    if asleep:
        wait_until(lambda: home.proxy.held, 60, "the group is being fetched")
        freeze_machine(home.agent)
        wait_until(lambda: not client.nodes.get(home.agent.node_id).online, 60, "the hub misses it")
        home.wake()
    wait_until(lambda: client.groups.get(group_id).home.state == "arrived", 90, "the group is at home")
    [folder] = home.agent.config.data_dir.glob(f"home/sleepers-{group_id}")
    made = [path for path in folder.rglob("*") if path.name in ("first", "second")]
    assert len(made) == files


@pytest.mark.parametrize("request_held", ["PUT /api/v1/artifacts/", "POST /api/v1/checkpoint"])
def test_a_checkpoint_is_whole_or_absent(pool: RealPool, make_sleeper: MakeSleeper, request_held: str) -> None:
    sleeper = make_sleeper(pool, "saving", limits=replace(FAST_AGENT, checkpoint_gap_s=0.05))
    pool.wait_online(sleeper.agent)
    client = pool.client()
    future = client.submit(count, str(sleeper.marks), 3, cores=0.1)
    wait_until(lambda: client.jobs.get(future.job_id).checkpoint, 60, "the first step is saved")
    sleeper.proxy.hold = request_held
    (sleeper.marks / "go-1").touch()
    wait_until(lambda: sleeper.proxy.held, 60, "the next one is on its way")
    freeze_machine(sleeper.agent)
    wait_for_first_tries(client, [future], reported=False)
    sleeper.wake()
    (sleeper.marks / "go-2").touch()
    begun, ended = future.result(90)
    assert 1 <= begun <= ended == 3
    assert client.jobs.get(future.job_id).attempts > 1
