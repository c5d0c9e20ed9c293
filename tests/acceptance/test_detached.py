"""Three hosts of a mesh and a submitter that leaves: everything is killed once, and the files still arrive at home.

The hosts are `pool host`, the submitter is examples/detached_group.py, all of them processes as people start them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from computepool import ComputeJob, ComputeJobState, Pool, connect
from computepool.testing.processes import FAST_HUB, free_port, shared_cache
from computepool.testing.waiting import wait_until
from tests.faults.jobprocesses import wait_gone

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]
START_S = 90


class Mesh:
    """Hosts on one machine that share nothing but the loopback interface."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("COMPUTEPOOL_")}
        self.env |= {
            "COMPUTEPOOL_CONFIG": str(folder / "config.json"),
            "COMPUTEPOOL_DATA": str(folder / "laptop"),
            "PYTHONUNBUFFERED": "1",
        }
        self.env |= {f"COMPUTEPOOL_{name.upper()}": str(value) for name, value in FAST_HUB.items()}
        self.env["COMPUTEPOOL_LEASE_MIN_S"] = "3"  # a host is lost for good
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._code = ""

    def start_first(self) -> None:
        """Hub and home. Started again, it needs its name alone."""
        fresh = ["--port", str(self.port), "--mesh-version", "analysis", "--tag", "laptop"]
        self._start("laptop", *([] if self._code else fresh))
        said = self.wait_for("laptop", r"--code (\S+)")
        self._code = self._code or said

    def start(self, name: str, *tags: str) -> None:
        peer = ["--peer", f"http://127.0.0.1:{self.port}", "--code", self._code]
        tagged = [word for tag in tags for word in ("--tag", tag)]
        self._start(name, *peer, "--mesh-version", "analysis", *tagged, "--data", str(self.folder / name))

    def _start(self, name: str, *options: str) -> None:
        log = self.log(name)
        log.write_text("")
        node = self.home if name == "laptop" else self.folder / name / "node"
        if not node.exists():
            node.mkdir(parents=True, mode=0o755)
            (node / "cache").symlink_to(shared_cache())
        program = [sys.executable, "-m", "computepool.cli", "host", "--name", name]
        lent = ["--sandbox", "process", "--cores", "2"]
        with log.open("a") as output:
            self._running[name] = subprocess.Popen(
                [*program, *lent, *options],
                env=self.env,
                cwd=self.folder,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def home(self) -> Path:
        """The folder of the laptop's node, where the laptop would have it by itself."""
        return self.folder / "laptop" / "hosts" / "laptop" / "node"

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def wait_for(self, name: str, pattern: str) -> str:
        def said() -> re.Match[str] | None:
            assert self._running[name].poll() is None, self.log(name).read_text()
            return re.search(pattern, self.log(name).read_text())

        return wait_until(said, START_S, f"{name} says {pattern}").group(1)  # type: ignore[union-attr]

    def kill(self, name: str) -> None:
        """kill -9 for all of its processes: the machine lost its power."""
        process = self._running.pop(name)
        with contextlib.suppress(psutil.NoSuchProcess):
            everything = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            for one in everything:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            wait_gone(everything, 60)
        process.wait(60)

    def submit(self, *options: str) -> tuple[subprocess.Popen[str], str]:
        """The example, until it has said the group's id."""
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / "detached_group.py"), *options],
            env=self.env, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        assert re.match(r"grp_\w+: 3 jobs; results go to laptop", line), line + process.stdout.read()
        return process, line.partition(":")[0]

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)


@pytest.fixture(scope="module")
def mesh() -> Iterator[Mesh]:
    folder = Path(tempfile.mkdtemp(prefix="computepool-mesh-", dir="/tmp"))
    folder.chmod(0o755)
    made = Mesh(folder)
    try:
        made.start_first()
        made.start("linux-a", "linux")
        made.start("gpu-a", "linux", "gpu")
        for name in ("linux-a", "gpu-a"):
            made.wait_for(name, r"(is a host of)")
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def pool(mesh: Mesh) -> Iterator[Pool]:
    """As a second terminal at the laptop would have it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COMPUTEPOOL_CONFIG", mesh.env["COMPUTEPOOL_CONFIG"])
        with connect() as client:
            yield client


def where(pool: Pool, group_id: str) -> dict[str, str | None]:
    """On which host each job runs now."""
    return {job.key or "": job.node_name for job in pool.jobs.list(group_id=group_id, state="running")}


class Idle(ComputeJob[ComputeJobState]):
    def run_compute_job(self) -> None:
        self.report_compute_success({})


@pytest.mark.soak
def test_hosts_can_be_excluded_by_url(pool: Pool) -> None:
    """As `pool host` told it when it started."""
    url = pool.nodes.find("gpu-a").profile.url
    free = pool.submit_job(Idle, ComputeJobState(required_host_tags=("gpu",)))
    assert pool.jobs.wait(free.job_id, timeout=60).node_name == "gpu-a"
    kept_off = ComputeJobState(required_host_tags=("gpu",), excluded_host_urls=(f"{url}/",))
    future = pool.submit_job(Idle, kept_off)
    why = future.why()
    assert (why.state, why.eligible_now) == ("queued", 0), url
    assert future.cancel()


def test_results_reach_home_although_submitter_worker_and_hub_are_killed(mesh: Mesh, pool: Pool) -> None:
    submitter, group_id = mesh.submit("--seconds", "6")
    submitter.kill()
    submitter.communicate()

    lost = wait_until(lambda: where(pool, group_id).get("bundle-a"), 60, "one of them runs")
    assert lost is not None
    mesh.kill(lost)
    mesh.kill("laptop")
    mesh.start_first()

    summary = pool.groups.collector(group_id).drain(120)
    assert (summary.succeeded, summary.failed, summary.total) == (3, 0, 3)
    outcomes = [(item.key, pool.groups.read(item)) for item in pool.groups.items(group_id)]
    assert sorted(outcomes) == [
        ("bundle-a", {"words": 9}), ("bundle-b", {"words": 9}), ("bundle-c", {"words": 8})
    ]  # fmt: skip
    tries = {
        job.key: [attempt.node_name for attempt in pool.jobs.get(job.id).tries]
        for job in pool.jobs.list(group_id=group_id)
    }
    nodes = {name for names in tries.values() for name in names}
    assert nodes <= {"linux-a", "gpu-a"}, "home does not compute unless it is asked to"
    assert lost in tries["bundle-a"]
    assert len(tries["bundle-a"]) > 1, "it was begun again elsewhere"
    check_home(mesh, pool, group_id)


def check_home(mesh: Mesh, pool: Pool, group_id: str) -> None:
    """Every file is in the home node's folder, byte by byte what the hub has."""
    home = wait_until(
        lambda: (view := pool.groups.get(group_id).home).state == "arrived" and view, 60, "everything is at home"
    )
    folder = mesh.home / (home.folder or "")
    outputs = {output.digest for item in pool.groups.items(group_id) for output in item.outputs}
    assert (home.node_name, home.items, home.files) == ("laptop", 3, 3)
    found = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in folder.rglob("*.db")}
    assert found.keys() == outputs
    rose = next(path for path in found.values() if path.name == "bundle-c.db")
    with contextlib.closing(sqlite3.connect(rose)) as database:
        assert dict(database.execute("select word, times from words")) == {"a": 3, "is": 2, "rose": 3}
    assert json.loads((folder / "summary.json").read_text())["id"] == group_id
