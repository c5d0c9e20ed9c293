"""The training example as a job of a pool, with a real card and a torch that the machine has."""

from __future__ import annotations

import json
import os
from pathlib import Path

from bench.gpu import SCRIPT, Torch, pool_with_torch
from computepool.core.jobs.lifecycle import TERMINAL
from computepool.testing.waiting import wait_until

TORCH = os.environ["COMPUTEPOOL_TORCH"]


def test_the_training_example_learns_and_shows_what_it_uses(tmp_path: Path) -> None:
    with pool_with_torch(Torch(Path(TORCH))) as (real, options):
        client = real.client()
        future = client.run(SCRIPT, ["--steps", "1500", "--every", "100"], wait=False, **options)
        progress, seen = set(), set()

        def ended() -> bool:
            job = client.jobs.get(future.job_id)
            progress.add(job.progress)
            now = [attempt.now for attempt in client.jobs.usage(future.job_id).attempts if attempt.now is not None]
            seen.update((one.gpu_percent, one.vram_mb) for one in now)
            return job.state in TERMINAL

        wait_until(ended, 90, "the training ends")
        outcome = future.result(10)
        print(outcome.output, sorted(progress - {None}), seen)
        found = json.loads(next(path for path in outcome.download(tmp_path)).read_text())
        assert found["loss"] < 2.0
        assert len(progress - {None}) > 1
        assert any((percent or 0) > 20 and (vram or 0) > 500 for percent, vram in seen)
        usage = client.jobs.usage(future.job_id)
        assert max(usage.attempts[-1].gpu_percent or [0]) > 20
