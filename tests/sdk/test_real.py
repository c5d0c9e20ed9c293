"""The SDK with a real hub and a real node, through the death of the hub."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from computepool import JobFailed, Pool, connect, job_slice, progress
from computepool.cli.local.folders import hub_folder
from computepool.hub.main import bootstrap
from computepool.hub.settings import Settings
from computepool.sdk.client.config import load_config
from computepool.testing.processes import free_port

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


class Machine:
    """A hub and a node as separate processes, so that each can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.env = {**os.environ, "COMPUTEPOOL_CONFIG": str(folder / "config.json")}
        self.key = ""
        self.hub: subprocess.Popen[str] | None = None
        self.node: subprocess.Popen[str] | None = None

    def start_hub(self) -> None:
        self.hub = self._start("hub", "start", "--port", str(self.port))

    def start_node(self, code: str) -> None:
        self.node = self._start("node", "start", "--hub", self.url, "--code", code)

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        with (self.folder / f"{arguments[0]}.log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "computepool.cli", *arguments, "--data", str(self.folder)],
                env=self.env, stdout=log, stderr=log, text=True,
            )  # fmt: skip

    def stop(self) -> None:
        for process in (self.node, self.hub):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(20)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    folder = Path(tempfile.mkdtemp(prefix="computepool-sdk-"))
    folder.chmod(0o755)
    made = Machine(folder)
    try:
        first = bootstrap(Settings(data_dir=hub_folder(folder)))
        made.key = first.admin_key
        made.start_hub()
        made.start_node(first.enrol_code)
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def pool(machine: Machine) -> Iterator[Pool]:
    with connect(machine.url, machine.key, retry_for=60) as pool:
        end = time.monotonic() + 90
        while not any(node.online for node in pool.nodes.list()):
            assert time.monotonic() < end, "the node did not come"
            time.sleep(0.1)
        yield pool


def described(number: int) -> dict[int, object]:
    progress(0.5)
    return {number: job_slice(), 0: {date(2026, 11, number), b"bytes"}}


def test_functions_values_and_errors(pool: Pool) -> None:
    assert pool.submit(described, 3).result(60) == {3: (0, 1), 0: {date(2026, 11, 3), b"bytes"}}

    def broken() -> None:
        raise ValueError("on purpose")

    with pytest.raises(JobFailed, match="ValueError: on purpose"):
        pool.submit(broken).result(60)


@pytest.mark.soak
def test_thousands_of_futures(pool: Pool) -> None:
    futures = [pool.submit(pow, number, 2) for number in range(2000)]
    assert [future.result(120) for future in futures] == [number**2 for number in range(2000)]


def test_large_arguments_results_and_files(pool: Pool, tmp_path: Path) -> None:
    data = os.urandom(1_000_000)
    assert pool.submit(bytes.__add__, data, b"!").result(60) == data + b"!"
    (tmp_path / "in.bin").write_bytes(data)
    script = tmp_path / "copy.py"
    script.write_text(
        "import os, shutil\nos.makedirs('outputs', exist_ok=True)\nshutil.copy('in.bin', 'outputs/out.bin')\n"
    )
    outcome = pool.run(script, inputs=[tmp_path / "in.bin"])
    assert [path.read_bytes() for path in outcome.download(tmp_path / "back")] == [data]


def test_cancel_stops_a_running_job(pool: Pool) -> None:
    future = pool.command(["sleep", "1000"], wait=False)
    end = time.monotonic() + 60
    while pool.jobs.get(future.job_id).state != "running":
        assert time.monotonic() < end
        time.sleep(0.05)
    assert future.cancel()
    assert pool.jobs.wait(future.job_id, timeout=30).state == "cancelled"


def test_reattach_from_another_connection(pool: Pool, machine: Machine) -> None:
    future = pool.submit(pow, 2, 20)
    job_id = future.job_id
    with connect(machine.url, machine.key) as other:
        assert other.future(job_id).result(60) == 2**20
        assert other.jobs.wait(job_id, timeout=30).state == "succeeded"


@pytest.mark.soak
def test_looking_around(pool: Pool) -> None:
    job_id = pool.submit(pow, 2, 3).job_id
    pool.jobs.wait(job_id, timeout=60)
    changes = [event.after for event in pool.events(job_id=job_id)]
    assert (changes[0], changes[-1]) == ("queued", "succeeded")
    followed = pool.events(follow=True, job_id=job_id)
    assert [next(followed).seq for _ in range(2)] == sorted(e.seq for e in pool.events(job_id=job_id))[:2]
    node = pool.nodes.list(mine=True)[0]
    assert pool.nodes.find(node.name).id == pool.nodes.find(node.id).id == node.id
    group_id = pool.jobs.get(job_id).group_id or ""
    assert group_id in {group.id for group in pool.groups.list(kind="session")}
    assert job_id in {result.job_id for result in pool.groups.results(group_id, follow=True)}
    assert [job.id for job in pool.jobs.list(group_id=group_id, state="succeeded", limit=1)]
    assert pool.jobs.preview(pool.options(cores=1).needs).hosts[0].ok
    assert pool.jobs.queue().nodes[0].online


@pytest.mark.soak
def test_a_search_of_events_ends_also_where_something_happens_all_the_time(pool: Pool) -> None:
    asked = 0
    get = pool.transport.get

    def busy(path: str, *args: Any, **kwargs: Any) -> Any:
        nonlocal asked
        if path == "/events":
            asked += 1
            assert asked < 10, "it goes on as long as others do something"
            assert pool.submit(pow, 2, asked).job_id
        return get(path, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool.transport, "get", busy)
        assert list(pool.events(action="zz")) == []


def slow_square(number: int) -> int:
    time.sleep(0.02)
    return number**2


@pytest.mark.soak
def test_a_map_survives_the_death_of_the_hub(pool: Pool, machine: Machine) -> None:
    """Killed while jobs are being submitted, run and reported; nothing lost, nothing submitted twice."""
    run = pool.map(slow_square, range(400), in_flight_max=200)
    results = [next(run) for _ in range(20)]
    assert machine.hub is not None
    machine.hub.send_signal(signal.SIGKILL)
    machine.hub.wait(10)
    machine.start_hub()
    results += run
    assert results == [number**2 for number in range(400)]
    group = pool.groups.get(run.group_id or "")
    assert (group.total, group.counts["succeeded"]) == (400, 400)


def test_nothing_here_used_the_persons_own_config(machine: Machine) -> None:
    assert load_config().hub != machine.url
