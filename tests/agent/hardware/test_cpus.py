"""CPU reservations: their arithmetic as properties, and the CPUs that jobs in real sandboxes run on."""

from __future__ import annotations

import math
import os

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from computepool.agent.execution import lanes
from computepool.agent.execution.lanes import AttemptLane, LaneCpus
from computepool.agent.hardware.cpus import MILLI, SETTLED_S, Cpus, lent_ids
from computepool.protocol.jobs.jobs import Needs
from computepool.protocol.nodes.nodes import RunningAttempt
from computepool.protocol.values.values import decode
from tests.agent.conftest import StartNode
from tests.agent.fake_hub import OWNER, STRANGER, FakeHub, function, payload, script, until

CORES = st.one_of(st.integers(1, 4).map(float), st.integers(1, 4000).map(lambda milli: milli / MILLI))


class Reservations(RuleBasedStateMachine):
    """Any order of arrivals and ends that the hub's own accounting allows."""

    def __init__(self) -> None:
        super().__init__()
        self.lent = 3.5
        self.cpus = Cpus((2, 3, 5, 9), self.lent)
        self.held: dict[str, int] = {}
        self.now = 0.0
        self.count = 0

    @rule(cores=CORES, data=st.data())
    def arrive(self, cores: float, data: st.DataObject) -> None:
        milli = round(cores * MILLI)
        if sum(self.held.values()) + milli > self.lent * MILLI:
            return
        self.count += 1
        holder = f"lane-{self.count}"
        before = {other: (self.cpus.ids(other), self.cpus.cores(other)) for other in self.held}
        near = tuple(sorted(data.draw(st.sets(st.sampled_from([*self.cpus.lent, 99]), max_size=3))))
        changed = self.cpus.reserve(holder, cores, near=near)
        self.held[holder] = milli
        if not changed:  # Then no other holder needs a notification.
            for other, ids in before.items():
                assert (self.cpus.ids(other), self.cpus.cores(other)) == ids

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(sorted(self.held)))
        del self.held[holder]
        self.cpus.release(holder, self.now)

    @rule(data=st.data(), passed=st.sampled_from([0.0, 0.4, 1.0, 60.0]))
    def stretch(self, data: st.DataObject, passed: float) -> None:
        self.now += passed
        chosen = data.draw(st.sets(st.sampled_from(sorted(self.held) or ["nobody"])))
        self.cpus.stretch(chosen, self.now)

    @invariant()
    def everybody_has_what_it_reserved(self) -> None:
        for holder, milli in self.held.items():
            assert sum(self.cpus._parts[holder].values()) == milli
            assert set(self.cpus._parts[holder]) <= set(self.cpus.ids(holder)) <= set(self.cpus.lent)
            assert self.cpus.cores(holder) >= milli / MILLI

    @invariant()
    def no_id_is_given_twice(self) -> None:
        used: dict[int, int] = {}
        for holder, milli in self.held.items():
            parts = self.cpus._parts[holder]
            whole = [id_ for id_, part in parts.items() if part == MILLI]
            assert len(whole) == milli // MILLI
            for other in self.held:
                if other != holder:  # Others may not even borrow its whole ids.
                    assert not set(whole) & set(self.cpus.ids(other))
            for id_, part in parts.items():
                used[id_] = used.get(id_, 0) + part
        assert all(part <= (500 if id_ == 9 else MILLI) for id_, part in used.items())
        assert set(self.cpus.free) == set(self.cpus.lent) - used.keys()

    @invariant()
    def never_more_than_is_lent(self) -> None:
        assert sum(self.cpus.cores(holder) for holder in self.held) <= self.lent + 1e-9


TestReservations = Reservations.TestCase
TestReservations.settings = settings(max_examples=60, stateful_step_count=25)


def test_idle_ids_are_lent_after_a_while_and_taken_back_at_once() -> None:
    cpus = Cpus((0, 1, 2, 3), 4)
    cpus.reserve("long", 1)
    cpus.reserve("short", 1)
    cpus.release("short", now=10.0)
    cpus.stretch(["long"], now=10.0 + SETTLED_S / 2)
    assert (cpus.ids("long"), cpus.cores("long")) == ((0, 2, 3), 3), "1 was in use a moment ago"
    cpus.stretch(["long"], now=10.0 + SETTLED_S)
    assert (cpus.ids("long"), cpus.cores("long")) == ((0, 1, 2, 3), 4)
    assert cpus.reserve("new", 2)
    assert (cpus.ids("long"), cpus.cores("long")) == ((0, 3), 2)
    assert cpus.ids("new") == (1, 2)


def test_a_lane_prefers_the_ids_of_its_worker() -> None:
    cpus = Cpus((0, 1, 2), 3)
    assert not cpus.reserve("a", 1, near=(2,))
    assert cpus.ids("a") == (2,)
    cpus.reserve("b", 1, near=(2,))
    assert cpus.ids("b") == (0,)


def test_a_new_lane_takes_borrowed_ids_back_at_once() -> None:
    slots = LaneCpus(Cpus((0, 1), 2), may_stretch=lambda _: True)
    long, new = AttemptLane("long"), AttemptLane("new")
    slots.enter(long, 1)
    slots.cpus.stretch(["long"], now=0.0)
    long.pin(slots.cpus.ids("long"), slots.cpus.cores("long"))
    assert (long.cpu_ids, long.cores) == ((0, 1), 2)
    slots.enter(new, 1)
    assert (long.cpu_ids, long.cores, new.cpu_ids, new.cores) == ((0,), 1, (1,), 1)


def test_spare_ids_are_shared_equally() -> None:
    cpus = Cpus(range(6), 6)
    for holder in ("a", "b"):
        cpus.reserve(holder, 1)
    cpus.stretch(["a", "b"], now=0.0)
    assert cpus.cores("a") == cpus.cores("b") == 3
    assert cpus.ids("a") == (0, 2, 3, 4, 5)


def test_fractions_of_cores_share_an_id_and_make_room_for_a_whole_one() -> None:
    cpus = Cpus((0, 1), 2)
    cpus.reserve("half", 0.5)
    cpus.reserve("other", 0.5)
    assert cpus.ids("half") == cpus.ids("other") == (0,)
    cpus.reserve("third", 0.5)
    cpus.release("half", now=0.0)
    assert cpus.ids("third") == (1,)
    assert cpus.reserve("whole", 1)
    assert cpus._parts["whole"] in ({0: MILLI}, {1: MILLI})
    assert not {*cpus.ids("whole")} & {*cpus.ids("other"), *cpus.ids("third")}


@given(st.lists(st.tuples(st.sampled_from("abcd"), CORES), max_size=20))
def test_an_overcommitted_node_shares_its_ids(asked: list[tuple[str, float]]) -> None:
    cpus = Cpus((4, 7), 1.5)
    for holder, cores in asked:
        cpus.reserve(holder, cores)
        assert cpus.ids(holder)
        assert set(cpus.ids(holder)) <= {4, 7}
    for holder, _ in asked:
        cpus.release(holder, now=0.0)
    assert cpus.free == (4, 7)


@given(st.sets(st.integers(0, 200), min_size=1), st.floats(0.1, 300), st.text(max_size=5))
def test_only_usable_ids_are_lent_and_no_more_than_cores(usable: set[int], cores: float, seed: str) -> None:
    ids = lent_ids(sorted(usable), cores, seed=seed)
    assert set(ids) <= usable
    assert len(ids) == len(set(ids)) == min(len(usable), max(1, math.ceil(cores)))


# ------------------------------------------------------------ real jobs
USABLE = tuple(sorted(os.sched_getaffinity(0)))
two_cpus = pytest.mark.skipif(len(USABLE) < 2, reason="there is one CPU only")
#: Prints its affinity whenever that changes.
WATCH = """
import os, sys, time
seen = None
while True:
    now = sorted(os.sched_getaffinity(0))
    if now != seen:
        seen = now
        print(*now, flush=True)
    sum(range(100_000))  # Uses at least a percent of a CPU.
    time.sleep(0.02)
"""


def last_report(hub: FakeHub, attempt: str) -> RunningAttempt | None:
    """The node's last report of a running attempt."""
    for request in reversed(hub.polls):
        for running in request.running:
            if running.attempt_id == attempt:
                return running
    return None


@pytest.mark.soak
@two_cpus
async def test_jobs_have_cpus_of_their_own(hub: FakeHub, start_node: StartNode) -> None:
    node = await start_node(level="namespace", elastic=False)
    watching = [*hub.submit(script(WATCH)), *hub.submit(script(WATCH))]
    await until(lambda: all(hub.log_texts[attempt]["stdout"] for attempt in watching))
    printed = [hub.log_texts[attempt]["stdout"].split() for attempt in watching]
    assert sorted(printed) == [[str(id_)] for id_ in USABLE[:2]]
    await until(lambda: all((seen := last_report(hub, a)) and seen.load and seen.load.rss_mb for a in watching))
    shown = {attempt: seen for attempt in watching if (seen := last_report(hub, attempt))}
    assert [[str(id_) for id_ in shown[a].cpu_ids] for a in watching] == printed
    assert all(one.load is not None and one.load.processes == 1 for one in shown.values())
    status = node.agent.status()
    assert status["cpus_free"] == []
    assert {tuple(job["cpu_ids"]) for job in status["running"]} == {(id_,) for id_ in USABLE[:2]}
    for attempt in watching:
        hub.stop_attempt(attempt)
    await until(lambda: node.agent.status()["cpus_free"] == list(USABLE[:2]))


@pytest.mark.soak
@two_cpus
async def test_functions_know_their_cpus_and_number_of_threads(hub: FakeHub, start_node: StartNode) -> None:
    def look() -> tuple[list[int], str | None]:
        return sorted(os.sched_getaffinity(0)), os.environ.get("OMP_NUM_THREADS")

    await start_node(level="namespace")
    one = hub.submit(function(look, needs=Needs(cores=1)), [payload()])
    await until(lambda: one[0] in hub.reports)
    both = hub.submit(function(look, needs=Needs(cores=2)), [payload()])
    own = hub.submit(function(look, env={"OMP_NUM_THREADS": "7"}), [payload()])
    await until(lambda: len(hub.reports) == 3)
    results = [decode(hub.reports[a].result) for a in (*one, *both, *own)]
    assert [len(ids) for ids, _ in results] == [1, 2, 1]
    assert [threads for _, threads in results] == ["1", "2", "7"]


@pytest.mark.soak
@two_cpus
async def test_idle_cpus_are_lent_to_the_owners_jobs_and_taken_back_at_once(
    hub: FakeHub, start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "SETTLED_S", math.inf)  # until it has printed its first affinity
    await start_node(level="process")
    (long,) = hub.submit(script(WATCH), account=OWNER)
    lines = hub.log_texts[long]
    await until(lambda: bool(lines["stdout"]))
    first = lines["stdout"].splitlines()[0]
    assert first in map(str, USABLE[:2])
    monkeypatch.setattr(lanes, "SETTLED_S", SETTLED_S)
    await until(lambda: lines["stdout"].splitlines()[-1:] == [f"{USABLE[0]} {USABLE[1]}"])
    (new,) = hub.submit(script(WATCH), account=OWNER)
    await until(lambda: bool(hub.log_texts[new]["stdout"]))
    other = hub.log_texts[new]["stdout"].splitlines()[0]
    assert {first, other} == set(map(str, USABLE[:2]))
    await until(lambda: lines["stdout"].splitlines()[-1] == first)
    hub.stop_attempt(new)
    await until(lambda: lines["stdout"].splitlines()[-1] == f"{USABLE[0]} {USABLE[1]}")
    hub.stop_attempt(long)


@pytest.mark.soak
@two_cpus
async def test_strangers_get_no_idle_cpus(hub: FakeHub, start_node: StartNode) -> None:
    node = await start_node(level="namespace")
    (stranger,) = hub.submit(script(WATCH), account=STRANGER)
    slots = node.agent._lane_cpus
    await until(lambda: bool((seen := last_report(hub, stranger)) and seen.load and seen.load.cpu_percent))
    assert slots.cpus.free, "the other CPU is idle"
    assert len(hub.log_texts[stranger]["stdout"].splitlines()) == 1
    hub.stop_attempt(stranger)
