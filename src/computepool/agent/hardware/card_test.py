"""Tests whether a job in this node's sandbox can use the cards, before any card is lent."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from computepool.agent.execution.job_environment import JobEnvironment
from computepool.agent.hardware.gpus import DetectedCard
from computepool.agent.sandbox.base import Limits, Sandbox, SandboxError
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.scratch import remove_tree

#: The first contact with a card that slept may take seconds.
_WAIT_S = 20.0
_LIMITS = Limits(memory_mb=4096, wall_s=_WAIT_S)
_SAID_MAX = 2_000
#: Exit code 0 only if the driver finds as many cards as the job was given.
_SCRIPT = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
code, count = driver.cuInit(0), ctypes.c_int()
driver.cuDeviceGetCount(ctypes.byref(count))
sys.exit(0 if (code, count.value) == (0, int(sys.argv[1])) else f"cuInit answered {code}, {count.value} cards seen")
"""


def reason_against(
    sandbox: Sandbox, runtime: Runtime | None, cards: Sequence[DetectedCard], *, work_dir: Path
) -> str:
    """Why jobs cannot use the cards at this level; empty if they can. Only NVIDIA cards are tested."""
    nvidia = [card for card in cards if card.maker == "nvidia"]
    if not nvidia:
        return ""
    job_environment = JobEnvironment(sandbox, runtime, nvidia)
    workdir = Path(tempfile.mkdtemp(prefix="cards-", dir=work_dir))
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.fchmod(writer, 0o622)
    try:
        policy = job_environment.policy(workdir, limits=_LIMITS, env={}, cards=range(len(nvidia)))
        argv = ["python3", "-c", _SCRIPT, str(len(nvidia))]
        process = sandbox.spawn(argv, workdir=workdir, limits=_LIMITS, policy=policy, stderr=writer)
        os.close(writer)
        writer = -1
        try:
            ended = process.wait(_WAIT_S)
            if ended is not None and ended.ok:
                return ""
            if ended is None:
                return f"the card did not answer within {_WAIT_S:g} s"
            process.close()
            said = os.read(reader, _SAID_MAX).decode(errors="replace").strip().splitlines()
            return said[-1] if said else ended.detail or f"the test ended with {ended.status} {ended.code}"
        finally:
            process.close()
    except SandboxError as error:
        return str(error)
    finally:
        for descriptor in (reader, writer):
            if descriptor >= 0:
                os.close(descriptor)
        remove_tree(workdir)
