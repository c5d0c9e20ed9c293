"""Jobs that share a card by memory, with a real card: the limit, neighbours, and what idle workers leave behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from computepool.agent.hardware import gpus
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.core.errors import ComputePoolError
from computepool.core.jobs.lifecycle import JobState
from computepool.sdk import JobFailed
from computepool.sdk.pool import Pool
from computepool.testing.processes import RealPool
from computepool.testing.waiting import wait_until
from tests.gpu import memory_job
from tests.gpu.conftest import MEASURING

JOB = Path(memory_job.__file__)
NEEDS: dict[str, Any] = {"ram": "4GB", "verify": "none", "name": "memory"}
KEEPS_S = 60
CARD = gpus.find_cards()[0]


@pytest.fixture(scope="module")
def client(ground: Path, runtime: Runtime) -> Iterator[Pool]:
    with RealPool(cache=ground / "cache", **{**MEASURING, "measure_every_s": 0}) as real:
        real.start_hub()
        real.start_agent(sandbox="namespace", gpus=True, cores=8)
        yield real.client()


def test_a_job_that_takes_more_than_it_asked_for_is_ended(client: Pool) -> None:
    with pytest.raises(JobFailed) as failed:
        client.run(JOB, [6_000, KEEPS_S], vram="2GB", **NEEDS)
    print(failed.value)
    assert "more than the 2000 MB that it asked for" in str(failed.value)
    assert "--vram" in str(failed.value)
    assert failed.value.reason == "out_of_memory"


def test_a_function_that_takes_more_than_it_asked_for_is_ended(client: Pool) -> None:
    def greedy(source: str) -> None:
        import time

        names: dict[str, Any] = {"__name__": "taking"}
        exec(source, names)
        names["take"](6_000)
        time.sleep(60)

    with pytest.raises(JobFailed, match="more than the 2000 MB"):
        client.submit(greedy, JOB.read_text(), vram="2GB", ram="4GB", verify="none").result(120)


def test_a_job_within_its_share_runs_to_its_end(client: Pool) -> None:
    outcome = client.run(JOB, [1_000, 4], vram="4GB", **NEEDS)
    assert json.loads(outcome.output)["taken_mb"] == 1_000


def test_a_job_that_asked_for_whole_cards_has_no_limit(client: Pool) -> None:
    outcome = client.run(JOB, [min(20_000, CARD.vram_mb // 2), 4], gpus=1, **NEEDS)
    assert json.loads(outcome.output)["total_mb"] > 0


def test_conditions_on_the_driver_and_the_card_choose_the_node(client: Pool) -> None:
    profile = client.nodes.list()[0].profile
    print(profile.driver, profile.cuda, [gpu.compute_capability for gpu in profile.gpus])
    needs: dict[str, Any] = {"cuda": ">=11.0", "driver": ">=400,<9999", "compute_capability": "5.0"}
    assert json.loads(client.run(JOB, [0, 0], **needs, **NEEDS).output)["total_mb"] > 0
    with pytest.raises(ComputePoolError, match="CUDA >=99"):
        client.run(JOB, [0, 0], cuda=">=99", impossible="refuse", **NEEDS)


def test_jobs_share_the_card_and_the_greedy_one_alone_is_ended(client: Pool) -> None:
    good = client.run(JOB, [1_000, KEEPS_S], wait=False, vram="4GB", **NEEDS)
    wait_until(lambda: "taken_mb" in client.jobs.log_text(good.job_id), 60, "the first job has its memory")
    greedy = client.run(JOB, [6_000, KEEPS_S], wait=False, vram="2GB", **NEEDS)
    whole = client.run(JOB, [0, 0], wait=False, gpus=1, **NEEDS)
    assert client.jobs.wait(greedy.job_id, timeout=60).state is JobState.FAILED
    assert client.jobs.get(good.job_id).state is JobState.RUNNING
    assert "GPU" in whole.why().sentence  # a whole card is not free meanwhile
    good.cancel()
    assert json.loads(whole.result(60).output)["taken_mb"] == 0


def test_an_idle_worker_leaves_the_card_to_the_next_job(client: Pool) -> None:
    def keep(source: str) -> int:
        import sys
        import types

        module = types.ModuleType("memory_job_kept")
        exec(source, module.__dict__)
        sys.modules["memory_job_kept"] = module  # so that the worker keeps the memory after the call
        return int(module.take(5_000)["taken_mb"])

    assert client.submit(keep, JOB.read_text(), vram="8GB", ram="4GB", verify="none").result(120) == 5_000
    found = json.loads(client.run(JOB, [0, 0], gpus=1, **NEEDS).output)
    print(found)
    assert found["free_mb"] > found["total_mb"] - 3_000
