"""Secrets from end to end: jobs get them, and they are readable nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from computepool import JobFailed, Pool
from computepool.testing.processes import AgentProcess, RealPool
from computepool.testing.waiting import wait_until
from tests.acceptance.test_sealing import holding
from tests.faults.conftest import MakePool

pytestmark = pytest.mark.process
VALUE = "correct-horse-battery-staple"
OTHER = "another-horse-entirely"

SCRIPT = """
import os, sys, time, pathlib
value = os.environ["TOKEN"]
print("the value is " + value + " as given")
print("length", len(value), flush=True)
for letter in value:
    sys.stderr.write(letter); sys.stderr.flush(); time.sleep(0.002)
pathlib.Path("go").exists()
sys.exit("failed with " + value)
"""


@pytest.fixture
def real(make_pool: MakePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealPool:
    monkeypatch.setenv("COMPUTEPOOL_CONFIG", str(tmp_path / "config" / "config.json"))
    return make_pool()


@pytest.fixture
def agent(real: RealPool) -> AgentProcess:
    return real.start_agent(sandbox="namespace")


def length(name: str) -> int:
    import os

    print("printed", os.environ[name])
    return len(os.environ[name])


def variables(_: int) -> list[str]:
    import os

    return sorted(name for name in os.environ if name.startswith("TOKEN"))


def wrong(item: int) -> None:
    import os

    raise ValueError(f"item {item} has {os.environ['TOKEN']}")


def text_of(client: Pool, job_id: str) -> str:
    return "".join(chunk.text for chunk in client.jobs.logs(job_id))


def command_lines() -> str:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


def test_a_secret_reaches_its_job_and_nothing_else(real: RealPool, agent: AgentProcess, tmp_path: Path) -> None:
    client = real.client()
    client.secrets.set("TOKEN", VALUE)
    script = tmp_path / "show.py"
    script.write_text(SCRIPT)
    with pytest.raises(JobFailed, match=r"failed with \*\*\*") as failed:
        client.run(script, secrets=["TOKEN"])
    log = text_of(client, failed.value.job_id)
    assert "the value is *** as given\n" in log
    assert f"length {len(VALUE)}\n" in log
    assert client.submit(length, "OTHER", secrets=["TOKEN=OTHER"]).result(60) == len(VALUE)
    with pytest.raises(JobFailed, match=r"item 1 has \*\*\*"):
        client.submit(wrong, 1, secrets=["TOKEN"]).result(60)
    errors = client.map(wrong, range(3), chunksize=3, secrets=["TOKEN"], return_exceptions=True)
    assert [str(error).count("***") for error in errors] == [1, 1, 1]
    _see_no_command_line(client, tmp_path)
    # A worker that had the secret serves no job without it; and a new value reaches the next job.
    assert client.submit(variables, 0).result(60) == []
    client.secrets.set("TOKEN", OTHER)
    assert client.submit(length, "TOKEN", secrets=["TOKEN"]).result(60) == len(OTHER)
    _remove_it_before_the_start(client, agent.node_id)
    events = [event.action for event in client.events()]
    assert events.count("secret.used") >= 5
    agent.stop()
    for value in (VALUE, OTHER):
        assert holding(tmp_path, value) == []
        assert value not in str(list(client.events()))


def _see_no_command_line(client: Pool, tmp_path: Path) -> None:
    future = client.command(["sleep", "60"], secrets=["TOKEN"], wait=False)
    wait_until(lambda: client.jobs.get(future.job_id).state == "running", timeout_s=30)
    assert VALUE not in command_lines()
    client.jobs.cancel(future.job_id)


def _remove_it_before_the_start(client: Pool, node_id: str) -> None:
    client.nodes.pause(node_id)
    future = client.submit(length, "TOKEN", secrets={"TOKEN": "TOKEN"})
    wait_until(lambda: bool(future.job_id), timeout_s=20)
    client.secrets.remove("TOKEN")
    client.nodes.resume(node_id)
    with pytest.raises(JobFailed, match="The secret TOKEN does not exist any more"):
        future.result(60)
    assert client.nodes.get(node_id).consecutive_faults == 0
    assert client.submit(pow, 2, 10).result(60) == 1024


@pytest.mark.soak
def test_the_command_line(real: RealPool, agent: AgentProcess, tmp_path: Path) -> None:
    environment = {**os.environ, "COMPUTEPOOL_HUB": real.hubs[0].url, "COMPUTEPOOL_KEY": real.admin_key}

    def pool(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "computepool.cli", *words]
        return subprocess.run(
            command, input=given, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    assert pool("secrets", "set", "TOKEN", given=f"{VALUE}\n").returncode == 0
    shown = pool("secrets", "list")
    assert "TOKEN" in shown.stdout
    assert VALUE not in shown.stdout
    ran = pool("submit", "--secret", "TOKEN=T", "--wait", "--", "sh", "-c", 'printf %s "$T" | wc -c; echo "$T"')
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{len(VALUE)}\n***\n"
    refused = pool("submit", "--secret", "MISSING", "--", "true")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "You have no secret MISSING; store it with `pool secrets set MISSING`." in refused.stderr
    assert pool("secrets", "remove", "TOKEN").returncode == 0
    assert pool("secrets", "remove", "TOKEN").returncode == 2
