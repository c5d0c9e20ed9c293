"""Bundles on a real node: whatever one item does, the others have their results."""

from __future__ import annotations

from typing import Any

import pytest

from computepool import JobFailed, outputs
from computepool.core.jobs import Reason
from computepool.testing.processes import RealPool

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

ENDS = {
    11: Reason.SIGNAL,
    42: Reason.TIMEOUT,
    43: Reason.OUT_OF_MEMORY,
    70: Reason.EXCEPTION,
    71: Reason.EXCEPTION,
}


def misbehaving(number: int) -> Any:
    import os
    import time

    if number == 11:
        os.kill(os.getpid(), 9)
    if number == 42:
        time.sleep(60)
    if number == 43:
        raise MemoryError
    if number == 70:
        raise KeyError(number)
    if number == 71:
        return object()
    return number


def writing(number: int) -> int:
    if number % 40 == 0:
        (outputs() / "note.txt").write_text(str(number))
    return number


def test_only_the_guilty_items_fail() -> None:
    with RealPool() as real:
        real.start_hub()
        real.start_agent()
        pool = real.client()
        results = list(
            pool.map(
                misbehaving,
                range(100),
                chunksize=50,
                timeout=2,
                retries=1,
                return_exceptions=True,
                progress=False,
            )
        )
        bad = {place: result for place, result in enumerate(results) if isinstance(result, JobFailed)}
        assert {place: error.reason for place, error in bad.items()} == ENDS
        assert isinstance(bad[70], KeyError)
        assert [result for result in results if not isinstance(result, JobFailed)] == [
            number for number in range(100) if number not in ENDS
        ]

        run = pool.map(writing, range(120), chunksize=60, progress=False)
        assert list(run) == list(range(120))
        jobs = [pool.jobs.get(job.id) for job in pool.jobs.list(group_id=run.group_id, limit=500)]
        files = [job.outputs for job in jobs if job.outputs]
        assert [len(names) for names in files] == [1, 1, 1]
