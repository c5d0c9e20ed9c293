"""The time to place a job, compared with a plain loop over a dict of nodes.

The plain loop is the simplest thing that works: for every node, add 10 points for enough VRAM and 5 for enough cores, and
keep the best. It knows two requirements and no load. Our allocator is measured with every gate and every score term, on a
fleet of many kinds of nodes, of which one changes every few placements.

Times are CPU time of this thread, because placement never waits and other programs should not count.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from bench.table import Figure
from computepool.core.fleet.fleet import Fleet
from computepool.core.isolation import Level
from computepool.core.money.market import Market
from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import PriceTable
from computepool.core.placement.allocator import Placement, place
from computepool.core.placement.backlog import Backlog
from computepool.core.placement.explain import explain
from computepool.core.resources import Capacity, Gpu, NodeProfile, Requirements, Shape

SIZES = (500, 5_000, 100_000)
BATCH = 100
ROUNDS_PER_CHANGE = 10
SINGLE_P99_US_MAX = 1_000.0
BATCH_US_MAX = 20.0
TAKE_US_MAX = 1_000.0
CEILING = 24 * CREDIT

CARDS = (("rtx-4090", 24_000), ("rtx-3090", 24_000), ("rtx-3060", 12_000), ("h100", 80_000), ("t4", 16_000))
TAGS = ("linux", "gpu", "fast", "laptop", "office", "lab")

#: Everything that a job can require.
ALL_GATES = Requirements(
    cpu_milli=4_000,
    ram_mb=4_000,
    disk_mb=1_000,
    vram_mb=12_000,
    tiers=frozenset({"rtx-4090", "rtx-3090", "rtx-3060"}),
    regions=frozenset({"in", "eu"}),
    tags=frozenset({"linux"}),
    prefer_tags=frozenset({"fast", "lab"}),
    exclude_tags=frozenset({"laptop"}),
    properties=frozenset({("os", "debian")}),
    exclude_nodes=frozenset({"node-7"}),
    mesh_version="1",
    pythons=frozenset({"3.11"}),
    isolation=Level.NAMESPACE,
)
#: The requirements that the plain loop knows.
TWO_GATES = Requirements(cpu_milli=8_000, vram_mb=16_000)


def profiles(count: int) -> list[NodeProfile]:
    choose = random.Random(7)
    found = []
    for number in range(count):
        tier, vram_mb = choose.choice(CARDS)
        cards = (Gpu(name=tier, tier=tier, vram_mb=vram_mb),) * choose.choice((0, 1, 1, 1, 2, 4))
        capacity = Capacity(
            cpu_milli=choose.choice((4, 8, 16, 32, 64)) * 1_000,
            ram_mb=choose.choice((8, 16, 64, 128)) * 1_000,
            disk_mb=choose.choice((50, 500)) * 1_000,
            gpus=cards,
        )
        found.append(
            NodeProfile(
                node_id=f"node-{number}",
                name=f"host-{number}",
                owner=f"account-{number % 1_000}",
                capacity=capacity,
                region=choose.choice(("in", "de", "us", "gb")),
                tags=frozenset(choose.sample(TAGS, 2)),
                properties=(("os", choose.choice(("debian", "ubuntu"))),),
                mesh_version="1",
                python=choose.choice(("3.11", "3.12")),
                level=choose.choice(list(Level)),
                trusted=frozenset({"*"}) if choose.random() < 0.1 else frozenset(),
            )
        )
    return found


def plain_loop(nodes: dict[str, dict[str, float]], min_vram: float, min_cores: float) -> str | None:
    """The first version that everybody writes."""
    best, best_score = None, 0.0
    for node_id, capacity in nodes.items():
        score = 0.0
        if capacity["gpu_vram"] >= min_vram:
            score += 10.0
        if capacity["cpu_cores"] >= min_cores:
            score += 5.0
        if score > best_score:
            best, best_score = node_id, score
    return best


def plain_nodes(fleet: list[NodeProfile]) -> dict[str, dict[str, float]]:
    return {
        profile.node_id: {
            "gpu_vram": max((gpu.vram_mb / 1_000 for gpu in profile.capacity.gpus), default=0.0),
            "cpu_cores": profile.capacity.cpu_milli / 1_000,
        }
        for profile in fleet
    }


def timed_us(action: Callable[[], object], *, times: int) -> list[float]:
    action()
    spent = []
    for _ in range(times):
        start = time.thread_time()
        action()
        spent.append((time.thread_time() - start) * 1e6)
    return sorted(spent)


class Steady:
    """Places jobs continuously: releases what was placed, and occasionally changes a node's reliability."""

    def __init__(self, fleet: Fleet, needs: Requirements) -> None:
        self._fleet = fleet
        # The ceiling pays for some nodes only, as the price meets the floors of some nodes only.
        self._shape = Shape(needs, "account-1", ceiling=CEILING)
        self._nodes = [profile.node_id for profile in fleet]
        self._choose = random.Random(3)
        self._held: list[Placement] = []
        self._rounds = 0

    def disturb(self) -> None:
        for placement in self._held:
            self._fleet.release(placement.node_id, placement.reservation)
        self._held = []
        self._rounds += 1
        if self._rounds % ROUNDS_PER_CHANGE == 0:
            self._fleet.set_reliability(self._choose.choice(self._nodes), self._choose.random())

    def place(self, count: int) -> int:
        self._held = place(self._fleet, self._shape, count)
        return len(self._held)

    def measure_us(self, count: int, *, times: int) -> list[float]:
        """Microseconds per job."""
        spent = []
        for _ in range(times + 1):
            self.disturb()
            start = time.thread_time()
            placed = self.place(count)
            if placed:
                spent.append((time.thread_time() - start) * 1e6 / placed)
        return sorted(spent[1:])

    @property
    def placed(self) -> int:
        return len(self._held)

    def measure_new_shape_us(self, *, times: int) -> list[float]:
        spent = []
        for _ in range(times):
            self.disturb()
            self._fleet.rankings.clear()
            start = time.thread_time()
            self.place(1)
            spent.append((time.thread_time() - start) * 1e6)
        return sorted(spent)


def at_most(name: str, value_us: float, target_us: float) -> Figure:
    return Figure(name, value_us, "µs", target_us, lower_is_better=True)


def quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


def at_size(count: int) -> list[Figure]:
    nodes = profiles(count)
    fleet = Fleet()
    fleet.set_prices(Market(PriceTable()))
    for number, profile in enumerate(nodes):
        fleet.upsert(profile)
        fleet.set_floor(profile.node_id, (number % 4) * 8 * CREDIT)
    plain = plain_nodes(nodes)
    loop = timed_us(lambda: plain_loop(plain, 16, 8), times=30 if count > 50_000 else 200)
    two = Steady(fleet, TWO_GATES).measure_us(1, times=1_000)
    every = Steady(fleet, ALL_GATES).measure_us(1, times=1_000)
    new = Steady(fleet, ALL_GATES).measure_new_shape_us(times=200)
    batching = Steady(fleet, ALL_GATES)
    batch, fitting = batching.measure_us(BATCH, times=100), batching.placed
    batch_two = Steady(fleet, TWO_GATES).measure_us(BATCH, times=100)
    where = f"{count:,} nodes"
    ratio = f"{quantile(loop, 0.5) / quantile(two, 0.5):.0f} times faster than the plain loop"
    return [
        Figure(f"plain loop, {where}, p50", quantile(loop, 0.5), "µs"),
        Figure(f"two gates, {where}, p50", quantile(two, 0.5), "µs", note=ratio),
        Figure(f"all gates, {where}, p50", quantile(every, 0.5), "µs"),
        at_most(f"all gates, {where}, p99", quantile(every, 0.99), SINGLE_P99_US_MAX),
        Figure(f"all gates, first job of a shape, {where}, p50", quantile(new, 0.5), "µs"),
        Figure(f"all gates, first job of a shape, {where}, p99", quantile(new, 0.99), "µs"),
        at_most(f"batch of {BATCH}, two gates, {where}, a job", quantile(batch_two, 0.5), BATCH_US_MAX),
        at_most(f"batch of {BATCH}, all gates, {where}, a job", quantile(batch, 0.5), BATCH_US_MAX)
        if fitting == BATCH
        else Figure(f"batch of {fitting} (all that fit), all gates, {where}, a job", quantile(batch, 0.5), "µs"),
    ]


def explaining(count: int) -> Figure:
    fleet = Fleet()
    for profile in profiles(count):
        fleet.upsert(profile)
    shape = Shape(Requirements(vram_mb=96_000, cpu_milli=128_000), "account-1")
    spent = timed_us(lambda: explain(fleet, shape), times=20)
    return Figure(f"explain with a pair of changes, {count:,} nodes, p50", quantile(spent, 0.5) / 1e3, "ms")


def long_queue(jobs: int) -> Figure:
    """A round of dispatch with a long queue and two free slots."""
    fleet, backlog = Fleet(), Backlog()
    capacity = Capacity(cpu_milli=2_000, ram_mb=8_000, disk_mb=8_000)
    fleet.upsert(NodeProfile(node_id="n", name="n", owner="o", capacity=capacity, level=Level.NAMESPACE))
    shape = Shape(Requirements(), "account-1")
    for number in range(jobs):
        backlog.add(f"job-{number}", shape, age_key=f"{number:09}")
    spent = []
    for _ in range(1_000):
        start = time.thread_time()
        placed = backlog.take(fleet, 1_000)
        spent.append((time.thread_time() - start) * 1e6)
        for _, placement in placed:
            fleet.release(placement.node_id, placement.reservation)
    name = f"a round of dispatch, {jobs:,} queued, 2 slots, p99"
    return at_most(name, quantile(sorted(spent), 0.99), TAKE_US_MAX)


def run() -> list[Figure]:
    figures = [figure for count in SIZES for figure in at_size(count)]
    return [*figures, explaining(5_000), long_queue(100_000)]
