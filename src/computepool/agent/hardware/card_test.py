"""Tests, before any GPU is lent, whether a job in this node's sandbox can use it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from computepool.agent.execution.job_environment import JobEnvironment
from computepool.agent.hardware.cards import DetectedCard
from computepool.agent.sandbox.base import Limits
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.scratch import remove_tree
from computepool.agent.sandbox.selftest.selftest import failure

#: A card that sleeps may take seconds to answer.
_LIMITS = Limits(memory_mb=4096, wall_s=20)
#: Exit code 0 only if the driver finds as many cards as the job was given.
_SCRIPT = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
code, count = driver.cuInit(0), ctypes.c_int()
driver.cuDeviceGetCount(ctypes.byref(count))
sys.exit(0 if (code, count.value) == (0, int(sys.argv[1])) else f"cuInit answered {code}, {count.value} cards seen")
"""


def reason_against(sandbox: Sandbox, runtime: Runtime, cards: Sequence[DetectedCard], *, work_dir: Path) -> str:
    """Why jobs cannot use the cards in this sandbox; empty if they can. Tests only NVIDIA cards."""
    nvidia = [card for card in cards if card.maker == "nvidia"]
    whole = [card for card in nvidia if not card.is_part]
    # A program finds several whole cards, but only one MIG device.
    tried = ([whole] if whole else []) + [[card] for card in nvidia if card.is_part]
    reasons = (_reason_against(sandbox, runtime, each, work_dir=work_dir) for each in tried)
    return next(filter(None, reasons), "")


def _reason_against(sandbox: Sandbox, runtime: Runtime, nvidia: Sequence[DetectedCard], *, work_dir: Path) -> str:
    job_environment = JobEnvironment(sandbox, runtime, nvidia)
    workdir = Path(tempfile.mkdtemp(prefix="cards-", dir=work_dir))
    try:
        policy = job_environment.policy(workdir, limits=_LIMITS, env={}, cards=range(len(nvidia)))
        argv = ["python3", "-c", _SCRIPT, str(len(nvidia))]
        reason = failure(sandbox, argv, workdir=workdir, limits=_LIMITS, policy=policy)
        return reason.rpartition("\n")[2]
    finally:
        remove_tree(workdir)
