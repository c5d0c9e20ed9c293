"""The hub's CPU time per job, as the number of jobs in its database grows.

The finished jobs are copies of real ones, inserted into the database file while the hub is stopped.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from urllib.request import Request, urlopen

from bench.processes import agent_process, cpu_s, hub_process
from bench.table import Figure
from computepool.hub.db.dialect import sqlite_file
from computepool.sdk import Pool, connect
from computepool.testing.processes import HubProcess

#: Finished jobs in the database.
FINISHED = (1_000, 100_000, 1_000_000)
#: Jobs that wait the whole time, because no node meets their requirements.
QUEUED = 100_000
FUNCTIONS = 3_000
FLAT_PERCENT = 20
_SUBMIT_AT_ONCE = 1_000

_JOB = "{0}.job_id || '-' || copies.n"
#: By table, the columns that differ in a copied row; `copies.n` is the number of the copy.
_COPIED: dict[str, dict[str, str]] = {
    "jobs": {"id": "jobs.id || '-' || copies.n", "group_id": "NULL", "hub_job": "NULL"},
    "attempts": {
        "id": "attempts.job_id || '-' || copies.n || '-' || attempts.number",
        "job_id": _JOB.format("attempts"),
    },
    "events": {"seq": "NULL", "job_id": _JOB.format("events"), "group_id": "NULL"},
    "transfers": {
        "seq": "(SELECT max(seq) FROM transfers) + row_number() OVER ()",
        "tx_key": "transfers.tx_key || '-' || copies.n",
        "job_id": _JOB.format("transfers"),
    },
}


def noop(_number: int) -> None:
    return None


def _cost_us(hub: HubProcess, pool: Pool) -> float:
    list(pool.map(noop, range(500), progress=False, chunksize=1))
    before = cpu_s(hub.pid)
    assert list(pool.map(noop, range(FUNCTIONS), progress=False, chunksize=1)) == [None] * FUNCTIONS
    return (cpu_s(hub.pid) - before) / FUNCTIONS * 1e6


def _queue(hub: HubProcess) -> None:
    spec = {"kind": "command", "name": "waits", "argv": ["true"], "needs": {"tags": ["nobody-has-it"]}}
    for start in range(0, QUEUED, _SUBMIT_AT_ONCE):
        items: list[dict[str, str]] = [{}] * min(_SUBMIT_AT_ONCE, QUEUED - start)
        headers = {
            "Authorization": f"Bearer {hub.first.admin_key}",
            "Content-Type": "application/json",
            "Idempotency-Key": f"growth-{start}",
        }
        body = json.dumps({"spec": spec, "items": items}).encode()
        with urlopen(Request(f"{hub.url}/api/v1/jobs", data=body, headers=headers), timeout=120) as answer:
            answer.read()


def _finished(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM jobs WHERE state = 'succeeded'").fetchone()[0])


def _multiply(hub: HubProcess, wanted: int) -> None:
    """Copy finished jobs until there are `wanted`."""
    file = sqlite_file(hub.settings.url)
    assert file is not None
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN")
        have = _finished(connection)
        templates = min(have, 1_000)
        copies = (wanted - have) // templates
        first = int(connection.execute("SELECT count(*) FROM jobs").fetchone()[0])
        chosen = f"SELECT id FROM jobs WHERE state = 'succeeded' AND group_id IS NOT NULL ORDER BY id LIMIT {templates}"
        connection.execute(f"CREATE TEMP TABLE chosen AS {chosen}")
        numbers = (
            f"WITH copies(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM copies WHERE n < {first + copies - 1})"
        )
        connection.execute(f"CREATE TEMP TABLE copies AS {numbers} SELECT n FROM copies")
        for table, changed in _COPIED.items():
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            values = ", ".join(changed.get(column, f"{table}.{column}") for column in columns)
            named = "id" if table == "jobs" else "job_id"
            connection.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM copies, {table} "
                f"WHERE {table}.{named} IN (SELECT id FROM chosen)"
            )
        connection.execute("COMMIT")


def run() -> list[Figure]:
    figures: list[Figure] = []
    with (
        hub_process(log_level="warning") as hub,
        agent_process(hub),
        connect(hub.url, hub.first.admin_key, retry_for=120) as pool,
    ):
        list(pool.map(noop, range(FINISHED[0]), progress=False, chunksize=1))
        for wanted in FINISHED:
            if wanted > FINISHED[0]:
                hub.stop(60)
                _multiply(hub, wanted)
                hub.start()
            figures.append(_figure(f"{wanted:,} finished jobs", _cost_us(hub, pool), figures))
        _queue(hub)
        figures.append(_figure(f"and {QUEUED:,} queued", _cost_us(hub, pool), figures))
    return figures


def _figure(where: str, cost_us: float, before: list[Figure]) -> Figure:
    target = before[0].value * (1 + FLAT_PERCENT / 100) if before else None
    return Figure(f"hub CPU for each job, {where}", cost_us, "µs", target=target, lower_is_better=True)
