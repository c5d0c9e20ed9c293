"""Tiny items of one map, end to end: several per job, made durable, run in two slots, with every result at the client.

For comparison, the same with one job per item: only that number may be compared with systems that run one task per item.
"""

from __future__ import annotations

import time

from bench.processes import agent_process, cpu_s, hub_process
from bench.table import Figure
from computepool.sdk import Pool, connect

ITEMS = 10_000
SINGLES = 3_000
ROUNDS = 3


def square(number: int) -> int:
    return number * number


def _rate(pool: Pool, items: int, *, chunksize: int | None) -> float:
    """Items per second, from the call to the last result, in a separate group."""
    began = time.perf_counter()
    results = list(pool.map(square, range(items), progress=False, chunksize=chunksize))
    took = time.perf_counter() - began
    assert results == [number * number for number in range(items)]
    return items / took


def run() -> list[Figure]:
    with (
        hub_process(log_level="warning") as hub,
        agent_process(hub) as agent,
        connect(hub.url, hub.first.admin_key) as pool,
    ):
        _rate(pool, 50, chunksize=1)  # warms up the workers, as for the peers
        before = cpu_s(hub.pid), cpu_s(agent), time.process_time()
        rates = sorted(_rate(pool, ITEMS, chunksize=None) for _ in range(ROUNDS))
        spent = cpu_s(hub.pid) - before[0], cpu_s(agent) - before[1], time.process_time() - before[2]
        jobs = pool.jobs.list(group_id=pool.groups.list(limit=1)[0].id, limit=ITEMS)
        single = _rate(pool, SINGLES, chunksize=1)
    each = ", ".join(
        f"{who} {cost / ITEMS / ROUNDS * 1e6:.0f}" for who, cost in zip(("hub", "agent", "client"), spent, strict=True)
    )
    note = f"{rates[0]:,.0f}–{rates[-1]:,.0f}; in {len(jobs)} jobs; CPU µs an item: {each}"
    return [
        Figure("tiny items of a map, several to a job, durable", rates[len(rates) // 2], "/s", target=3_000, note=note),
        Figure("the same with one job for each item", single, "/s"),
    ]
