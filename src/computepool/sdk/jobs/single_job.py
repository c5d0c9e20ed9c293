"""A job that belongs to no group: its result is waited for by itself."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from computepool.sdk.errors import ComputePoolError
from computepool.sdk.jobs.futures import JobFuture, Reader

if TYPE_CHECKING:
    from computepool.sdk.pool import Pool


class SingleJob:
    def __init__(self, pool: Pool, job_id: str) -> None:
        self.pool = pool
        self._job_id = job_id

    def future(self, read: Reader) -> JobFuture:
        future = JobFuture(self, read)
        future.assign(self._job_id)
        threading.Thread(
            target=self._wait, args=(future,), name="computepool-single-job", daemon=True
        ).start()
        return future

    def wait_for_id(self, future: JobFuture) -> None:
        return None

    def withdraw(self, future: JobFuture) -> bool:
        return False

    def _wait(self, future: JobFuture) -> None:
        try:
            result = self.pool.jobs.result(self._job_id)
        except ComputePoolError as error:
            future.fail(error)
        else:
            future.finish(result)
