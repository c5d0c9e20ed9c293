"""Jobs end to end: submitted, made durable, leased, run on a local node with two slots, reported, and back at the client."""

from __future__ import annotations

import statistics
import time

from bench.processes import agent_process, cpu_s, hub_process
from bench.table import Figure
from computepool.sdk import Pool, connect
from computepool.testing.postgres import PostgresServer, PostgresUnavailable, postgres_bin

FUNCTIONS = 10_000
COMMANDS = 1_500
BOXED_COMMANDS = 600
SINGLES = 300
FUNCTIONS_NAME = "no-op functions, durable, end to end"
HUB_TARGET_US = 220.0


def noop(_number: int) -> None:
    return None


def _functions(
    pool: Pool, hub_pid: int, agent_pid: int, *, name: str = FUNCTIONS_NAME, target: float = 3_000
) -> list[Figure]:
    list(pool.map(noop, range(500), progress=False, chunksize=1))
    before = cpu_s(hub_pid), cpu_s(agent_pid), time.process_time()
    began = time.perf_counter()
    results = list(pool.map(noop, range(FUNCTIONS), progress=False, chunksize=1))
    took = time.perf_counter() - began
    assert results == [None] * FUNCTIONS
    spent = cpu_s(hub_pid) - before[0], cpu_s(agent_pid) - before[1], time.process_time() - before[2]
    each = ", ".join(
        f"{who} {cost / FUNCTIONS * 1e6:.0f}" for who, cost in zip(("hub", "agent", "client"), spent, strict=True)
    )
    hub_us = spent[0] / FUNCTIONS * 1e6
    return [
        Figure(name, FUNCTIONS / took, "/s", target=target, note=f"CPU µs each: {each}"),
        Figure(f"hub CPU for each of the {name}", hub_us, "µs", target=HUB_TARGET_US, lower_is_better=True),
    ]


def _singles(pool: Pool) -> list[Figure]:
    times = []
    for number in range(SINGLES):
        began = time.perf_counter()
        pool.submit(noop, number).result(timeout=30)
        times.append((time.perf_counter() - began) * 1e3)
        time.sleep(0.02)
    return [
        Figure("one function on an idle pool, p50", statistics.median(times), "ms", target=7, lower_is_better=True),
        Figure(
            "one function on an idle pool, p99",
            statistics.quantiles(times, n=100, method="inclusive")[98],  # as for the peers
            "ms",
            target=15,
            lower_is_better=True,
        ),
    ]


def _commands(pool: Pool, count: int, name: str, *, target: float) -> list[Figure]:
    for future in [pool.command(["/bin/true"], wait=False) for _ in range(20)]:
        future.result(timeout=60)
    began = time.perf_counter()
    futures = [pool.command(["/bin/true"], wait=False) for _ in range(count)]
    for future in futures:
        future.result(timeout=120)
    return [Figure(name, count / (time.perf_counter() - began), "/s", target=target)]


def run() -> list[Figure]:
    return [*_boxed(), *_plain(), *_postgres()]


def _boxed() -> list[Figure]:
    with (
        hub_process(log_level="warning") as hub,
        agent_process(hub) as agent,
        connect(hub.url, hub.first.admin_key) as pool,
    ):
        return [
            *_functions(pool, hub.pid, agent),
            *_singles(pool),
            *_commands(pool, BOXED_COMMANDS, "commands (/bin/true) in bubblewrap, durable", target=230),
        ]


def _plain() -> list[Figure]:
    with (
        hub_process(log_level="warning") as hub,
        agent_process(hub, sandbox="process"),
        connect(hub.url, hub.first.admin_key) as pool,
    ):
        return _commands(pool, COMMANDS, "commands (/bin/true) as plain processes, durable", target=900)


def _postgres() -> list[Figure]:
    """Empty if PostgreSQL is not installed."""
    try:
        postgres_bin()
    except PostgresUnavailable:
        return []
    with (
        PostgresServer(durable=True) as server,
        hub_process(log_level="warning", database_url=server.fresh_database()) as hub,
        agent_process(hub) as agent,
        connect(hub.url, hub.first.admin_key) as pool,
    ):
        name = "no-op functions, durable on PostgreSQL"
        return _functions(pool, hub.pid, agent, name=name, target=1_500)
