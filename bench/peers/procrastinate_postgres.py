"""procrastinate on PostgreSQL: two worker processes with eight tasks in flight each, submitted in batches.

More tasks in flight than slots, and few statements, are both in its favour. A call is complete when its row says so,
because procrastinate keeps no results.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import procrastinate
import psycopg

from bench.peers.measure import SLOTS, Measured, emit, measure, requested_sizes
from bench.peers.procrastinate_tasks import DATABASE, app, noop, start_process

IN_FLIGHT = 8
BATCH = 500
POLL_S = 0.02
POLL_ONE_S = 0.001
DONE_S = 60.0

OPEN = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
FAILED = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'failed'"
STATUS = "SELECT status::text FROM procrastinate_jobs WHERE id = %s"


class Procrastinate:
    """A synchronous interface. Everything runs in one event loop that lives as long as the measurement."""

    def __init__(self, runner: asyncio.Runner, connection: psycopg.AsyncConnection[Any]) -> None:
        self._runner = runner
        self._connection = connection

    def calls(self, count: int) -> None:
        self._runner.run(asyncio.wait_for(self._many(noop, count), DONE_S))

    def processes(self, count: int) -> None:
        self._runner.run(asyncio.wait_for(self._many(start_process, count), DONE_S))

    def call(self) -> None:
        self._runner.run(asyncio.wait_for(self._one(), DONE_S))

    async def _many(self, task: Any, count: int) -> None:
        for start in range(0, count, BATCH):
            numbers = range(start, min(count, start + BATCH))
            await task.batch_defer_async(*({"number": number} for number in numbers))
        while await self._value(OPEN):  # noqa: ASYNC110 - the rows change in other processes
            await asyncio.sleep(POLL_S)
        if failed := await self._value(FAILED):
            raise RuntimeError(f"{failed} tasks failed")

    async def _one(self) -> None:
        job = await noop.defer_async(number=1)
        while (status := await self._value(STATUS, job)) != "succeeded":
            if status == "failed":
                raise RuntimeError("the task failed")
            await asyncio.sleep(POLL_ONE_S)

    async def _value(self, query: str, *arguments: object) -> Any:
        row = await (await self._connection.execute(query, arguments)).fetchone()
        return row[0] if row else None


@contextmanager
def workers() -> Iterator[None]:
    command = [sys.executable, "-m", "procrastinate", "--app", "bench.peers.procrastinate_tasks.app"]
    options = ["worker", "--concurrency", str(IN_FLIGHT)]
    running = [subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL) for _ in range(SLOTS)]
    try:
        yield
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def connect() -> psycopg.AsyncConnection[Any]:
    await app.open_async()
    await app.schema_manager.apply_schema_async()
    return await psycopg.AsyncConnection.connect(os.environ[DATABASE], autocommit=True)


async def disconnect(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.close()
    await app.close_async()


def main() -> None:
    measured = Measured(name=f"procrastinate {procrastinate.__version__}, PostgreSQL", on_disk=True)
    with asyncio.Runner() as runner:
        connection = runner.run(connect())
        with workers():
            system = Procrastinate(runner, connection)
            system.call()
            emit(measure(system, measured, requested_sizes()))
        runner.run(disconnect(connection))


if __name__ == "__main__":
    main()
