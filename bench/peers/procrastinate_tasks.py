"""The tasks of procrastinate's workers."""

from __future__ import annotations

import asyncio
import os

import procrastinate

from bench.peers.measure import TRUE

#: The environment variable with the database's address.
DATABASE = "BENCH_POSTGRES_URL"
CONNECTIONS_MAX = 8

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=os.environ[DATABASE], min_size=1, max_size=CONNECTIONS_MAX)
)


@app.task(name="noop")  # type: ignore[untyped-decorator]
async def noop(number: int) -> int:
    return number


@app.task(name="start_process")  # type: ignore[untyped-decorator]
async def start_process(number: int) -> int:
    process = await asyncio.create_subprocess_exec(TRUE, stdin=asyncio.subprocess.DEVNULL)
    await process.wait()
    return number
