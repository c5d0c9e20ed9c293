"""Volumes with a real hub, a real agent and real jobs in bubblewrap."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from computepool.core.errors import Conflict
from computepool.sdk.errors import JobFailed
from computepool.sdk.pool import Pool
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until

pytestmark = pytest.mark.process


def _append(name: str, text: str) -> list[str]:
    import os

    folder = os.environ["COMPUTEPOOL_VOLUME_DATA"]
    with open(f"{folder}/{name}", "a") as file:
        file.write(text)
    return sorted(os.listdir(folder))


_append.__module__ = "__main__"  # pickled by value, as a function of a script would be


def _shell(client: Pool, command: str, *, mount: str = "data:/data") -> str:
    return client.command(["sh", "-c", command], volumes=mount).output


@pytest.mark.parametrize("level", ["process", "namespace"])
def test_a_volume_outlives_its_jobs(real: RealPool, tmp_path: Path, level: str) -> None:
    real.start_agent(sandbox=level)
    client = real.client()
    big = random.Random(1).randbytes(3_000_000)
    (tmp_path / "in" / "d").mkdir(parents=True)
    (tmp_path / "in" / "d" / "big").write_bytes(big)
    client.volumes.create("data")
    assert client.volumes.put("data", tmp_path / "in").version.number == 1

    _shell(client, 'cd "$COMPUTEPOOL_VOLUME_DATA" && echo one > made && ln -s d/big link')
    assert client.submit(_append, "made", "two\n", volumes="data:/data").result(60) == ["d", "link", "made"]
    if level != "process":
        with pytest.raises(JobFailed, match="Read-only"):
            _shell(client, "echo three > /data/made", mount="data:/data:ro")
    with pytest.raises(JobFailed):
        _shell(client, 'echo three > "$COMPUTEPOOL_VOLUME_DATA/made"; exit 1')
    client.volumes.get("data", tmp_path / "out")
    assert (tmp_path / "out" / "made").read_text() == "one\ntwo\n"
    assert (tmp_path / "out" / "link").read_bytes() == big
    versions = list(client.volumes.versions("data"))
    assert [(one.number, one.is_head, one.conflict) for one in versions] == [
        (3, True, None),
        (2, False, None),
        (1, False, None),
    ]
    client.volumes.get("data", tmp_path / "first", version=1)
    assert sorted(path.name for path in (tmp_path / "first").iterdir()) == ["d"]
    assert real.broken_rules() == []


def test_two_jobs_write_one_volume_at_once_and_nothing_is_lost(real: RealPool, tmp_path: Path) -> None:
    real.start_agent(cores=4)
    client, marks = real.client(), real.shared_folder("marks")
    client.volumes.create("data")
    futures = [client.submit(_wait_and_write, str(marks), text, volumes="data:/data") for text in ("a", "b")]
    wait_until(lambda: len(list(marks.iterdir())) == 2, 60, "both run")
    with pytest.raises(Conflict, match="still uses data"):
        client.volumes.remove("data")
    (marks / "go").touch()
    for future in futures:
        future.result(120)
    second, first = client.volumes.versions("data")
    assert (first.is_head, first.conflict, second.is_head) == (True, None, False)
    assert second.conflict == "version 2 started from 0, but the head is 1"
    found = set()
    for number in (1, 2):
        client.volumes.get("data", tmp_path / str(number), version=number)
        found.add((tmp_path / str(number) / "text").read_text())
    assert found == {"a", "b"}
    assert client.volumes.rollback("data", 2).head == 2
    client.volumes.remove("data")
    assert client.artifacts.storage().bytes < 100_000


def _wait_and_write(marks: str, text: str) -> None:
    """Wait for the other job, so that both start from the same version."""
    import os
    import time

    with open(f"{marks}/{text}", "w"):
        end = time.monotonic() + 60
    while not os.path.exists(f"{marks}/go") and time.monotonic() < end:
        time.sleep(0.05)
    with open(os.environ["COMPUTEPOOL_VOLUME_DATA"] + "/text", "w") as file:
        file.write(text)


_wait_and_write.__module__ = "__main__"


def test_an_agent_that_is_killed_publishes_nothing_and_the_next_attempt_once(real: RealPool, tmp_path: Path) -> None:
    agent = real.start_agent()
    client, marks = real.client(), real.shared_folder("marks")
    client.volumes.create("data")
    future = client.submit(_write_and_wait, str(marks), volumes="data:/data", retries=0)
    wait_until(lambda: len(list(marks.iterdir())) == 1, 60, "it wrote")
    agent.kill()
    (marks / "go").touch()
    agent.start()
    future.result(120)
    [version] = client.volumes.versions("data")
    assert (version.number, version.parent, version.is_head) == (1, 0, True)
    client.volumes.get("data", tmp_path / "out")
    assert (tmp_path / "out" / "text").read_text() == "written\n", "the first attempt left nothing"
    assert real.broken_rules() == []


def _write_and_wait(marks: str) -> None:
    import os
    import time

    with open(os.environ["COMPUTEPOOL_VOLUME_DATA"] + "/text", "a") as file:
        file.write("written\n")
    # A name of its own: another attempt may run as another user.
    with open(f"{marks}/wrote-{os.getpid()}-{os.urandom(4).hex()}", "w"):
        end = time.monotonic() + 60
    while not os.path.exists(f"{marks}/go") and time.monotonic() < end:
        time.sleep(0.05)


_write_and_wait.__module__ = "__main__"
