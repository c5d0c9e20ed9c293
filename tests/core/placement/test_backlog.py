"""Who is next: priority strictly first, accounts in turn, oldest first, and nobody blocked by a job that fits nowhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from computepool.core.fleet.fleet import Fleet
from computepool.core.isolation import Level
from computepool.core.placement import backlog as backlog_module, fair_queue as lines_module
from computepool.core.placement.allocator import Search
from computepool.core.placement.backlog import SHAPES_FAILED_MAX, SHAPES_RETRIED_MAX, Backlog
from computepool.core.placement.fair_queue import cost_of
from computepool.core.resources import Capacity, NodeProfile, Requirements, Shape

SMALL = Requirements(cpu_milli=1_000, ram_mb=0, disk_mb=0)
HOPELESS = Requirements(cpu_milli=1_000, gpus=1)


def fleet_of(slots: int, nodes: int = 1) -> Fleet:
    fleet = Fleet()
    for number in range(nodes):
        capacity = Capacity(cpu_milli=slots * 1_000, ram_mb=1_000_000, disk_mb=1_000_000)
        profile = NodeProfile(node_id=f"n{number}", name="n", owner="o", capacity=capacity, level=Level.NAMESPACE)
        fleet.upsert(profile)
    return fleet


def filled(jobs: Iterable[tuple[str, str]], wanted: Requirements = SMALL) -> Backlog:
    """Jobs as (id, account), oldest first."""
    backlog = Backlog()
    for number, (job_id, account) in enumerate(jobs):
        backlog.add(job_id, Shape(wanted, account), age_key=f"{number:06}")
    return backlog


def taken(backlog: Backlog, fleet: Fleet, limit: int = 1_000) -> list[str]:
    return [job_id for job_id, _ in backlog.take(fleet, limit)]


def test_an_empty_backlog_gives_nothing() -> None:
    assert Backlog().take(fleet_of(4), 10) == []
    assert Backlog().next_due_ms() is None


def test_oldest_first_whatever_the_order_of_adding() -> None:
    backlog = Backlog()
    for age in (3, 1, 2):
        backlog.add(f"j{age}", Shape(SMALL, "ann"), age_key=str(age))
    assert taken(backlog, fleet_of(9)) == ["j1", "j2", "j3"]


def test_jobs_of_different_shapes_keep_their_age_order() -> None:
    backlog = Backlog()
    for age in range(6):
        wanted = Requirements(cpu_milli=1_000, ram_mb=age % 2, disk_mb=0)
        backlog.add(f"j{age}", Shape(wanted, "ann"), age_key=str(age))
    assert taken(backlog, fleet_of(9)) == [f"j{age}" for age in range(6)]


def test_an_older_job_that_comes_later_goes_first() -> None:
    backlog = Backlog()
    other = Requirements(cpu_milli=1_000, ram_mb=1, disk_mb=0)
    backlog.add("j5", Shape(SMALL, "ann"), age_key="5")
    backlog.add("j3", Shape(other, "ann"), age_key="3")
    backlog.add("j1", Shape(SMALL, "ann"), age_key="1")
    assert taken(backlog, fleet_of(9)) == ["j1", "j3", "j5"]


def test_priority_is_strictly_first() -> None:
    backlog = filled([("low", "ann"), ("low2", "bob")])
    for number in range(3):
        backlog.add(f"high{number}", Shape(SMALL, "eve"), priority=5, age_key=f"9{number}")
    assert taken(backlog, fleet_of(9)) == ["high0", "high1", "high2", "low", "low2"]


@pytest.mark.soak
@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=40), st.integers(1, 5))
def test_two_accounts_alternate_whatever_their_backlogs(arrivals: list[str], limit: int) -> None:
    waiting = Counter(arrivals)
    backlog = filled((f"{account}{number}", account) for number, account in enumerate(arrivals))
    served: list[str] = []
    while batch := taken(backlog, fleet_of(100), limit):
        served += [job_id[0] for job_id in batch]
    assert Counter(served) == waiting
    both = 2 * min(waiting["a"], waiting["b"])
    assert all(first != second for first, second in zip(served[:both:2], served[1:both:2], strict=True))
    assert len(set(served[both:])) <= 1


def test_a_newcomer_takes_turns_at_once_but_gets_no_arrears() -> None:
    backlog = filled((f"a{number}", "ann") for number in range(40))
    fleet = fleet_of(100)
    assert len(taken(backlog, fleet, 20)) == 20
    for number in range(10):
        backlog.add(f"b{number}", Shape(SMALL, "bob"), age_key=f"9{number}")
    assert Counter(job_id[0] for job_id in taken(backlog, fleet, 8)) == {"a": 4, "b": 4}


def test_waiting_saves_nothing_up() -> None:
    """An account whose jobs could not start for a while gets its share from then on, not the share it missed."""
    backlog = filled((f"a{number}", "ann") for number in range(60))
    for number in range(20):
        backlog.add(f"b{number}", Shape(Requirements(cpu_milli=1_000, tags=frozenset({"x"})), "bob"), age_key="0")
    fleet = fleet_of(30)
    assert len(taken(backlog, fleet)) == 30
    fleet.upsert(
        NodeProfile(
            node_id="late",
            name="late",
            owner="o",
            capacity=Capacity(cpu_milli=20_000, ram_mb=100_000, disk_mb=100_000),
            tags=frozenset({"x"}),
            level=Level.NAMESPACE,
        )
    )
    counts = Counter(job_id[0] for job_id in taken(backlog, fleet, 10))
    assert counts == {"a": 5, "b": 5}


def test_an_account_that_comes_back_is_no_better_off_than_a_new_one() -> None:
    backlog = filled([("a0", "ann"), *((f"b{number}", "bob") for number in range(20))])
    fleet = fleet_of(100)
    assert len(taken(backlog, fleet, 10)) == 10
    backlog.add("a1", Shape(SMALL, "ann"), age_key="8")
    backlog.add("e0", Shape(SMALL, "eve"), age_key="9")
    assert [job_id[0] for job_id in taken(backlog, fleet, 3)] == ["e", "a", "b"]


def test_an_account_that_asks_one_at_a_time_does_not_jump_the_queue() -> None:
    backlog = filled((f"a{number}", "ann") for number in range(20))
    fleet = fleet_of(100)
    served = []
    for number in range(20):
        if not any(f"b{earlier}" in backlog for earlier in range(number)):
            backlog.add(f"b{number}", Shape(SMALL, "bob"), age_key="9")
        served += [job_id[0] for job_id in taken(backlog, fleet, 1)]
    assert abs(served.count("a") - served.count("b")) <= 1


def test_a_large_job_uses_up_more_of_the_share() -> None:
    backlog = filled((f"a{number}", "ann") for number in range(20))
    for number in range(20):
        backlog.add(f"b{number}", Shape(Requirements(cpu_milli=4_000), "bob"), age_key=f"{number:06}")
    counts = Counter(job_id[0] for job_id in taken(backlog, fleet_of(1_000), 20))
    assert counts == {"a": 16, "b": 4}


@pytest.mark.parametrize(
    ("wanted", "cost"),
    [
        (Requirements(cpu_milli=0, ram_mb=0), 1),
        (Requirements(cpu_milli=2_000), 2_000),
        (Requirements(cpu_milli=1_000, ram_mb=64_000), 16_000),
        (Requirements(cpu_milli=1_000, vram_mb=8_000), 8_000),
        (Requirements(cpu_milli=1_000, gpus=2), 16_000),
    ],
)
def test_a_job_costs_its_dominant_resource(wanted: Requirements, cost: int) -> None:
    assert cost_of(wanted) == cost


def test_a_job_that_fits_nowhere_blocks_nobody() -> None:
    backlog = Backlog()
    backlog.add("gpu", Shape(HOPELESS, "ann"), priority=9, age_key="0")
    backlog.add("fine", Shape(SMALL, "ann"), age_key="1")
    backlog.add("other", Shape(SMALL, "bob"), age_key="2")
    assert taken(backlog, fleet_of(4)) == ["fine", "other"]
    assert list(backlog.shapes().values()) == [1]


def test_it_starts_as_soon_as_it_fits() -> None:
    backlog = filled([("first", "ann"), ("second", "ann")])
    fleet = fleet_of(1)
    ((_, placement),) = backlog.take(fleet, 10)
    assert not taken(backlog, fleet)
    assert not backlog.can_take_more(fleet)
    fleet.release(placement.node_id, placement.reservation)
    assert backlog.can_take_more(fleet)
    assert taken(backlog, fleet) == ["second"]


def test_no_shape_starves_behind_hopeless_ones() -> None:
    """More hopeless shapes of high priority than one round may try: the others still get their try."""
    backlog = Backlog()
    hopeless = 5 * SHAPES_FAILED_MAX
    for number in range(hopeless):
        shape = Shape(Requirements(gpus=1, ram_mb=number), "ann")
        backlog.add(f"h{number}", shape, priority=9, age_key=f"{number:06}")
    backlog.add("fine", Shape(SMALL, "bob"), age_key="1")
    fleet = fleet_of(4)
    rounds = 0
    while "fine" in backlog:
        assert backlog.can_take_more(fleet)
        backlog.take(fleet, 10)
        rounds += 1
        assert rounds <= hopeless // SHAPES_FAILED_MAX + 1
    assert not backlog.can_take_more(fleet)


def test_hopeless_shapes_are_all_tried_again_when_something_changes() -> None:
    backlog = Backlog()
    count = 3 * SHAPES_FAILED_MAX
    for number in range(count):
        shape = Shape(Requirements(cpu_milli=1_000, ram_mb=number, tags=frozenset({"late"})), "ann")
        backlog.add(f"h{number}", shape, priority=number % 5, age_key=f"{number:06}")
    fleet = fleet_of(4)
    while backlog.can_take_more(fleet):
        assert not taken(backlog, fleet)
    fleet.upsert(
        NodeProfile(
            node_id="late",
            name="late",
            owner="o",
            capacity=Capacity(cpu_milli=10**9, ram_mb=10**8, disk_mb=10**9),
            tags=frozenset({"late"}),
            level=Level.NAMESPACE,
        )
    )
    rounds = 0
    while backlog.can_take_more(fleet):
        assert taken(backlog, fleet)
        rounds += 1
    assert not len(backlog)
    assert rounds <= count // SHAPES_RETRIED_MAX + 1


def test_a_round_looks_at_the_fleet_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    class CountedSearch(Search):
        def __init__(self, fleet: Fleet, shape: Shape, expected: int, **options: Any) -> None:
            looks.append(shape)
            super().__init__(fleet, shape, expected, **options)

    monkeypatch.setattr(backlog_module, "Search", CountedSearch)
    backlog = Backlog()
    for number in range(5 * SHAPES_FAILED_MAX):
        backlog.add(f"h{number}", Shape(Requirements(gpus=1, ram_mb=number), "ann"), age_key=f"{number:06}")
    fleet = fleet_of(4)
    while backlog.can_take_more(fleet):
        looks.clear()
        backlog.take(fleet, 10)
        assert len(looks) <= SHAPES_FAILED_MAX
    looks.clear()
    backlog.take(fleet, 10)
    assert not looks, "nothing came free, so nothing is tried again"


def test_what_fits_nowhere_and_goes_away_is_forgotten() -> None:
    backlog, fleet = Backlog(), fleet_of(4)
    for number in range(10):
        backlog.add(f"h{number}", Shape(Requirements(gpus=1, ram_mb=number), "ann"), age_key="0")
    backlog.take(fleet, 10)
    for number in range(10):
        backlog.remove(f"h{number}")
    assert not backlog._parked
    assert not backlog._queue.shapes
    fleet.set_available("n0", False)
    fleet.set_available("n0", True)
    assert not backlog.can_take_more(fleet)


def test_limit() -> None:
    backlog = filled((f"j{number}", "ann") for number in range(5))
    fleet = fleet_of(9)
    assert len(taken(backlog, fleet, 2)) == 2
    assert backlog.can_take_more(fleet)
    assert len(taken(backlog, fleet, 2)) == 2
    assert len(taken(backlog, fleet, 2)) == 1
    assert not backlog.can_take_more(fleet)


def test_delayed_jobs_come_back_at_their_time_and_age() -> None:
    backlog = filled([("a", "ann"), ("b", "ann"), ("c", "ann")])
    assert backlog.delay("a", 1_000)
    assert backlog.delay("b", 3_000)
    assert backlog.delay("b", 2_000)
    assert not backlog.delay("ghost", 1)
    assert (len(backlog), backlog.delayed, backlog.next_due_ms()) == (3, 2, 1_000)
    assert backlog.position("a") is None
    assert [backlog.ready_at_ms(job_id) for job_id in ("b", "c", "ghost")] == [2_000, None, None]
    assert backlog.release_due(999) == 0
    assert backlog.release_due(1_000) == 1
    assert backlog.next_due_ms() == 2_000
    assert taken(backlog, fleet_of(9)) == ["a", "c"]
    assert backlog.remove("b")
    assert backlog.next_due_ms() is None
    assert backlog.release_due(9_999) == 0
    assert backlog.delayed == 0


def test_restore_puts_a_job_back_to_its_place_and_repays_its_account() -> None:
    backlog = filled([("a0", "ann"), ("a1", "ann"), ("b0", "bob"), ("b1", "bob")])
    fleet = fleet_of(9)
    ((job_id, placement),) = backlog.take(fleet, 1)
    assert job_id == "a0"
    assert job_id not in backlog
    assert backlog.shape_of(job_id) == Shape(SMALL, "ann")
    fleet.release(placement.node_id, placement.reservation)
    assert backlog.restore("a0")
    assert not backlog.restore("a0")
    assert taken(backlog, fleet, 4)[:3].count("a0") == 1
    assert len(backlog) == 0


def test_a_restored_job_was_never_paid_for() -> None:
    backlog = filled((f"a{number}", "ann") for number in range(4))
    fleet = fleet_of(3)
    for job_id, placement in backlog.take(fleet, 9):
        fleet.release(placement.node_id, placement.reservation)
        backlog.restore(job_id)
    backlog.add("b0", Shape(SMALL, "bob"), age_key="9")
    assert taken(backlog, fleet) == ["a0", "b0", "a1"]


def test_what_was_removed_is_not_restored() -> None:
    backlog = filled([("a", "ann")])
    backlog.take(fleet_of(1), 1)
    assert not backlog.remove("a"), "it was not waiting any more"
    assert not backlog.restore("a")
    with pytest.raises(KeyError):
        backlog.shape_of("a")


def test_taken_jobs_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_module, "TAKEN_MAX", 2)
    backlog = filled((f"j{number}", "ann") for number in range(4))
    taken(backlog, fleet_of(9))
    assert [backlog.restore(f"j{number}") for number in range(4)] == [False, False, True, True]


def test_take_like_follows_priority_and_age_and_is_paid_for() -> None:
    backlog = filled((f"a{number}", "ann") for number in range(6))
    backlog.add("urgent", Shape(SMALL, "ann"), priority=1, age_key="9")
    for number in range(6):
        backlog.add(f"b{number}", Shape(SMALL, "bob"), age_key=f"9{number}")
    assert backlog.take_like(Shape(SMALL, "ann"), 3) == ["urgent", "a0", "a1"]
    assert taken(backlog, fleet_of(9), 4) == ["b0", "b1", "b2", "a2"], "bob catches up first"
    assert backlog.take_like(Shape(SMALL, "ann"), 99) == ["a3", "a4", "a5"]
    assert backlog.take_like(Shape(SMALL, "ann"), 1) == []
    assert backlog.take_like(Shape(HOPELESS, "nobody"), 1) == []


def test_adding_again_moves_the_job() -> None:
    backlog = filled([("a", "ann"), ("b", "ann")])
    backlog.add("a", Shape(SMALL, "ann", avoid_node="n0"), age_key="9")
    assert len(backlog) == 2
    assert taken(backlog, fleet_of(9, nodes=2)) == ["b", "a"]


def test_position() -> None:
    backlog = filled([("a0", "ann"), ("a1", "ann"), ("a2", "ann"), ("b0", "bob")])
    backlog.add("high", Shape(HOPELESS, "eve"), priority=1, age_key="9")
    assert backlog.position("high") == 0
    assert backlog.position("a0") == 1
    assert backlog.position("a1") == 3  # high, a0, b0
    assert backlog.position("ghost") is None


def test_idle_accounts_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "ACCOUNTS_SWEEP_MIN", 8)
    backlog, fleet = filled([("hopeless", "eve")], HOPELESS), fleet_of(10_000)
    for number in range(200):
        backlog.add(f"j{number}", Shape(SMALL, f"account{number}"), age_key=f"{number:06}")
        backlog.take(fleet, 1)
    assert len(backlog._queue._accounts) < 30


def test_the_heaps_stay_small_where_nobody_looks() -> None:
    """A low priority that is never reached must not collect dead entries."""
    backlog, fleet = Backlog(), fleet_of(100_000)
    backlog.add("low", Shape(SMALL, "ann"), age_key="0")
    for number in range(2_000):
        backlog.add(f"j{number}", Shape(SMALL, "ann"), priority=1, age_key="1")
        backlog.add("come-and-go", Shape(SMALL, "bob"), age_key="1")
        backlog.take(fleet, 1)
        backlog.remove("come-and-go")
    level = backlog._queue._levels[0]
    assert len(level.heap) < 200
    assert all(len(queue.heap) < 200 for queue in level.queues.values())


class Model:
    """The rules of order, a second time: a plain list looked through from end to end for every job."""

    def __init__(self) -> None:
        self.jobs: dict[str, tuple[int, str, str, int, Shape]] = {}  # priority, account, age, number, shape
        self.service: dict[str, int] = {}
        self.turn: dict[str, int] = {}
        self.lines: dict[tuple[int, str], int] = {}  # when the account began to wait at the priority
        self.clock = self.turns = self.numbers = 0

    def add(self, job_id: str, shape: Shape, priority: int, age: str) -> None:
        account = shape.account
        if not any(job[1] == account for job in self.jobs.values()):
            self.service[account] = max(self.service.get(account, 0), self.clock)
        self.numbers += 1
        if not any(job[:2] == (priority, account) for job in self.jobs.values()):
            self.lines[priority, account] = self.numbers
        self.jobs[job_id] = priority, account, age, self.numbers, shape

    def take(self, slots: int, limit: int) -> list[str]:
        order: list[str] = []
        while len(order) < min(slots, limit):
            able = {job_id: job for job_id, job in self.jobs.items() if not job[4].requirements.gpus}
            if not able:
                break
            top = max(job[0] for job in able.values())
            level = {job_id: job for job_id, job in able.items() if job[0] == top}
            order.append(self._serve(level, top))
        return order

    def _serve(self, level: dict[str, tuple[int, str, str, int, Shape]], priority: int) -> str:
        account = min(
            {job[1] for job in level.values()},
            key=lambda name: (self.service[name], self.turn.get(name, 0), self.lines[priority, name]),
        )
        job_id = min((job[2], job[3], job_id) for job_id, job in level.items() if job[1] == account)[2]
        self.turns += 1
        self.clock = max(self.clock, self.service[account])
        self.service[account] = self.clock + cost_of(self.jobs[job_id][4].requirements)
        self.turn[account] = self.turns
        self.remove(job_id)
        return job_id

    def remove(self, job_id: str) -> bool:
        known = self.jobs.pop(job_id, None) is not None
        if not self.jobs:
            self.service.clear()
            self.turn.clear()
        return known


class BacklogMachine(RuleBasedStateMachine):
    """Random histories: the backlog serves as the model does."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog, self.model, self.fleet = Backlog(), Model(), fleet_of(6)
        self.held: list[tuple[str, object]] = []

    @rule(
        number=st.integers(0, 12),
        account=st.sampled_from("ab"),
        priority=st.integers(0, 1),
        wanted=st.sampled_from([SMALL, SMALL, Requirements(cpu_milli=1_000, disk_mb=1), HOPELESS]),
        age=st.integers(0, 9),
    )
    def add(self, number: int, account: str, priority: int, wanted: Requirements, age: int) -> None:
        shape, job_id = Shape(wanted, account), f"j{number}"
        if job_id in self.model.jobs:
            self.remove(number)
        self.backlog.add(job_id, shape, priority=priority, age_key=str(age))
        self.model.add(job_id, shape, priority, str(age))

    @rule(number=st.integers(0, 12))
    def remove(self, number: int) -> None:
        assert self.backlog.remove(f"j{number}") == self.model.remove(f"j{number}")

    @rule(limit=st.integers(1, 4))
    def take(self, limit: int) -> None:
        placed = self.backlog.take(self.fleet, limit)
        assert [job_id for job_id, _ in placed] == self.model.take(6 - len(self.held), limit)
        self.held += [(placement.node_id, placement.reservation) for _, placement in placed]

    @rule()
    def finish_one(self) -> None:
        if self.held:
            self.fleet.release(*self.held.pop())  # type: ignore[arg-type]

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.backlog) == len(self.model.jobs)
        assert self.backlog.shapes() == Counter(job[4] for job in self.model.jobs.values())
        assert all(job_id in self.backlog for job_id in self.model.jobs)


TestBacklog = BacklogMachine.TestCase
