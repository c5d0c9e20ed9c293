"""The fence: a job and all that it started end at its deadline, even if the agent hangs."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from computepool.agent.clock import AgentClock
from computepool.agent.sandbox.base import SandboxPolicy, Status
from computepool.agent.sandbox.fence import Fence
from computepool.agent.sandbox.sandbox import Sandbox
from tests.sandbox.running import eventually, is_alive, run, started

#: A daemon in a session of its own, and the job itself; both have the given name.
WITH_DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv("/bin/sleep", [sys.argv[1], "300"])
    os._exit(0)
os.execv("/bin/sleep", [sys.argv[1], "300"])
"""


@pytest.fixture
def fence() -> Iterator[Fence]:
    made = Fence()
    yield made
    made.close()


@pytest.mark.soak
def test_a_launcher_ends_its_job_at_the_deadline(sandbox: Sandbox, fence: Fence, ground: Path) -> None:
    """Nothing calls `wait` or `patrol` meanwhile, as when the agent hangs."""
    marker = f"fenced-{secrets.token_hex(8)}"
    argv = ["python3", "-I", "-c", WITH_DAEMON, marker]
    fence.set_deadline(AgentClock().boot_time() + 3600)
    with started(sandbox, argv, policy=SandboxPolicy(fence=fence.fd)) as job:
        assert eventually(lambda: is_alive(marker, ground))
        fence.set_deadline(AgentClock().boot_time())
        assert eventually(lambda: not is_alive(marker, ground))
        assert job.end().exit.status is Status.LEASE_LOST
    # The slot is usable again, and with a later deadline jobs run.
    fence.set_deadline(AgentClock().boot_time() + 3600)
    assert run(sandbox, ["true"], policy=SandboxPolicy(fence=fence.fd)).exit.ok


def test_a_job_that_starts_after_the_deadline_ends_at_once(sandbox: Sandbox, fence: Fence) -> None:
    fence.set_deadline(AgentClock().boot_time() - 1)
    ended = run(sandbox, ["sleep", "300"], policy=SandboxPolicy(fence=fence.fd)).exit
    assert ended.status is Status.LEASE_LOST


def test_what_no_lease_is_about_runs_on(process: Sandbox, fence: Fence) -> None:
    fence.set_deadline(AgentClock().boot_time() - 1)
    assert run(process, ["sleep", "0.1"]).exit.ok
    fence.set_deadline(0)  # no hub has spoken yet
    assert run(process, ["sleep", "0.1"], policy=SandboxPolicy(fence=fence.fd)).exit.ok


def test_the_fence_counts_time_asleep() -> None:
    assert abs(AgentClock().boot_time() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 60


def test_a_launcher_cannot_move_the_deadline(fence: Fence) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(fence.fd, b"\xff" * 8, 0)
    assert os.fstat(fence.fd).st_mode & 0o777 == 0o600
