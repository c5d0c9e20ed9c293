"""`pool up` as a person runs it: real processes, real sandbox, the CLI beside it, and a clean end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from computepool.testing.processes import free_port

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[2]
READY_S = 90


def until(done: Callable[[], object], timeout_s: float = 30, what: str = "it") -> None:
    end = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < end, f"{what} did not happen in {timeout_s} s"
        time.sleep(0.05)


@dataclass
class Up:
    folder: Path
    port: int
    env: dict[str, str]
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, folder: Path, *arguments: str) -> Up:
        port = free_port()
        env = {name: value for name, value in os.environ.items() if not name.startswith("COMPUTEPOOL_")}
        env |= {"COMPUTEPOOL_CONFIG": str(folder / "config.json"), "PYTHONUNBUFFERED": "1"}
        output = (folder / "up.out").open("w")
        process = subprocess.Popen(
            [sys.executable, "-m", "computepool.cli", "up", "--port", str(port), "--data", str(folder / "data"), *arguments],
            stdout=output, stderr=output, env=env, text=True,
        )  # fmt: skip
        output.close()
        return cls(folder, port, env, process)

    def printed(self) -> str:
        return (self.folder / "up.out").read_text()

    def wait_ready(self) -> None:
        until(
            lambda: "Ctrl-C stops everything" in self.printed() or self.process.poll() is not None,
            READY_S,
            "pool up",
        )
        assert self.process.poll() is None, self.printed()

    def pool(self, *arguments: object, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "computepool.cli", *map(str, arguments)],
            env=self.env, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=self.folder,
        )  # fmt: skip

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self, number: int = signal.SIGTERM) -> float:
        start = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(30)
        return time.monotonic() - start


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Short and open to other users: as root, jobs run under a uid of their own and must be able to get there."""
    import shutil
    import tempfile

    path = Path(tempfile.mkdtemp(prefix="computepool-up-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def up(folder: Path) -> Iterator[Up]:
    started = Up.start(folder)
    try:
        started.wait_ready()
        yield started
    finally:
        if started.process.poll() is None:
            started.stop()


@pytest.mark.soak
def test_it_says_what_to_do_next(up: Up) -> None:
    printed = up.printed()
    assert f"ComputePool is running at http://127.0.0.1:{up.port}" in printed
    assert re.search(rf"http://127\.0\.0\.1:{up.port}/signin\?code=\w+", printed)
    assert "submit examples/hello.py --wait" in printed
    assert "This machine offers" in printed


@pytest.mark.soak
def test_the_code_is_not_on_a_command_line(up: Up) -> None:
    for child in up.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            assert "--code" not in child.cmdline()


def test_hello(up: Up) -> None:
    done = up.pool("submit", ROOT / "examples/hello.py", "--out", "results")
    assert done.returncode == 0, done.stderr
    assert "Hello from job job_" in done.stdout
    assert (up.folder / "results/hello.txt").read_text() == "Hello, pool!\n"


@pytest.mark.soak
def test_a_failing_job_fails_the_command_with_its_output(up: Up) -> None:
    done = up.pool("submit", "--wait", "--", "sh", "-c", "echo out; echo oops >&2; exit 7")
    assert done.returncode == 1
    assert done.stdout == "out\n"
    assert "oops" in done.stderr
    assert "exit code 7" in done.stderr


@pytest.mark.soak
def test_a_stdin_free_look_around(up: Up) -> None:
    job_id = up.pool("submit", "--", "echo", "look").stdout.strip()
    assert up.pool("jobs", "wait", job_id).returncode == 0
    node = json.loads(up.pool("nodes", "--json").stdout)[0]
    detail = json.loads(up.pool("jobs", "show", job_id, "--json").stdout)
    assert (detail["state"], detail["node_id"]) == ("succeeded", node["id"])
    assert up.pool("jobs", "logs", "-f", job_id).stdout == "look\n"
    assert json.loads(up.pool("jobs", "queue", "--json").stdout)["nodes"][0]["online"]
    events = up.pool("events", "--job", job_id, "--json").stdout.splitlines()
    assert [json.loads(line)["after"] for line in events][-1] == "succeeded"
    assert "admin" in up.pool("whoami").stdout


@pytest.mark.soak
def test_why_names_the_gates_and_the_smallest_change(up: Up) -> None:
    job_id = up.pool("submit", "--vram", "16", "--", "true").stdout.strip()
    answer = json.loads(up.pool("jobs", "why", job_id, "--json").stdout)
    assert answer["unsatisfiable"]
    assert any(gate["failing"] == 1 and gate["gate"] == "gpu" for gate in answer["gates"])
    assert answer["changes"]
    plain = up.pool("jobs", "why", job_id).stdout
    assert "VRAM" in plain
    preview = json.loads(up.pool("jobs", "hosts", "--cores", "1", "--json").stdout)
    assert preview["hosts"][0]["ok"]
    assert up.pool("jobs", "cancel", job_id).stdout == f"{job_id} cancelled\n"


@pytest.mark.soak
def test_the_node_is_seen_paused_and_resumed(up: Up) -> None:
    data = ["--data", up.folder / "data"]
    status = json.loads(up.pool("node", "status", *data, "--json").stdout)
    assert status["connected"]
    assert up.pool("node", "pause", *data).returncode == 0
    assert json.loads(up.pool("node", "status", *data, "--json").stdout)["state"] == "paused"
    assert up.pool("node", "resume", *data).returncode == 0
    name = json.loads(up.pool("nodes", "--json").stdout)[0]["name"]
    assert up.pool("node", "pause", name).stdout.startswith(f"{name}: The node is paused")
    assert "paused" not in up.pool("node", "resume", name).stdout
    assert up.pool("node", "why", *data).returncode == 0


@pytest.mark.soak
def test_the_hubs_database_keeps_its_rules(up: Up) -> None:
    done = up.pool("hub", "check", "--data", up.folder / "data")
    assert (done.returncode, done.stdout) == (0, "All checks passed.\n"), done.stderr


@pytest.mark.soak
def test_the_sign_in_link_works_once(up: Up) -> None:
    link = re.search(r"http://\S+/signin\?code=\w+", up.printed())
    assert link is not None
    other = {**up.env, "COMPUTEPOOL_CONFIG": str(up.folder / "other.json")}
    command = [sys.executable, "-m", "computepool.cli", "login", link[0]]
    first = subprocess.run(command, env=other, capture_output=True, text=True, check=False)
    assert (first.returncode, "as admin" in first.stdout) == (0, True), first.stderr
    again = subprocess.run(command, env=other, capture_output=True, text=True, check=False)
    assert again.returncode in (2, 4)
    assert again.stderr.count("\n") == 1


@pytest.mark.soak
def test_keys_and_accounts(up: Up) -> None:
    account = up.pool("accounts", "create", "ann", "--role", "submitter").stdout.strip()
    key = up.pool("keys", "create", "anns", "--account", account, "--expires", "1h").stdout.strip()
    as_ann = Up(up.folder, up.port, {**up.env, "COMPUTEPOOL_KEY": key}, up.process)
    assert "ann (submitter)" in as_ann.pool("whoami").stdout
    assert as_ann.pool("accounts", "list").returncode == 4
    assert as_ann.pool("submit", "--wait", "--", "true").returncode == 0
    key_id = json.loads(as_ann.pool("keys", "list", "--json").stdout)[0]["id"]
    assert up.pool("keys", "revoke", key_id).returncode == 0
    assert as_ann.pool("whoami").returncode == 4


@pytest.mark.soak
def test_a_second_one_on_the_same_port_is_a_sentence(up: Up, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "computepool.cli", "up", "--port", str(up.port), "--data", str(tmp_path)]
    done = subprocess.run(command, env=up.env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert (
        done.stderr
        == f"Cannot listen on 127.0.0.1:{up.port}: Address already in use. Choose another port with --port.\n"
    )


@pytest.mark.soak
def test_a_second_one_on_the_same_data_is_a_sentence(up: Up) -> None:
    command = [
        sys.executable,
        "-m",
        "computepool.cli",
        "up",
        "--port",
        str(free_port()),
        "--data",
        str(up.folder / "data"),
    ]
    other = {**up.env, "COMPUTEPOOL_CONFIG": str(up.folder / "second.json")}
    done = subprocess.run(command, env=other, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert up.pool("nodes").returncode == 0


@pytest.mark.soak
def test_it_stops_cleanly_and_starts_again_where_it_was(up: Up) -> None:
    job_id = up.pool("submit", "--", "sleep", "100").stdout.strip()
    until(lambda: json.loads(up.pool("jobs", "show", job_id, "--json").stdout)["state"] == "running")
    children = up.children()
    assert len(children) >= 2
    took_s = up.stop(signal.SIGINT)
    assert took_s < 25
    assert up.process.returncode == 0, up.printed()
    assert up.printed().endswith("Stopped.\n")
    until(lambda: not any(child.is_running() for child in children), 20, "the end of all children")
    again = Up.start(up.folder)
    try:
        again.wait_ready()
        assert json.loads(again.pool("nodes", "--json").stdout)[0]["online"]
        assert len(json.loads(again.pool("nodes", "--json").stdout)) == 1  # the same node, not a new one
        assert any(job["id"] == job_id for job in json.loads(again.pool("jobs", "list", "--json").stdout))
    finally:
        children = again.children()
        again.process.kill()  # and even SIGKILL leaves nothing behind
        again.process.wait(10)
    until(lambda: not any(child.is_running() for child in children), 20, "the end of orphans")
