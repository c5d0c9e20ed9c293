"""The limit of GPU memory: jobs share a card, and one that takes more than it asked for is ended, alone and with that reason."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from computepool.agent.execution.attempts import Attempt
from computepool.agent.hardware import nvml
from computepool.agent.hardware.cards import DetectedCard
from computepool.protocol.jobs.jobs import Needs
from tests.agent.conftest import QUICK, Node, StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, command, function, payload, until
from tests.agent.fake_nvml import FakeCard, FakeNvml

#: Its device node is one that every job has open, so the proof by open files is a real one.
CARD = DetectedCard(name="NVIDIA RTX 3090", vram_mb=24_576, maker="nvidia", ident="GPU-1", nodes=("/dev/null",))
CHECKED_OFTEN = dataclasses.replace(QUICK, vram_check_s=0.05, patrol_s=0.05, tick_s=0.02)
SLEEP = ("sleep", "60")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> FakeCard:
    found = FakeCard()
    monkeypatch.setattr(nvml, "pynvml", FakeNvml(cards=[found]))
    return found


@pytest.fixture
def start_with_card(start_node: StartNode, card: FakeCard) -> Callable[..., Any]:
    async def start(**fields: Any) -> Node:
        node: Node = await start_node(limits=CHECKED_OFTEN, cards=[CARD], **fields)
        return node

    return start


def running(node: Node) -> dict[str, Attempt]:
    return {head.id: head for head in node.agent._executor.heads() if head.started_at is not None}


def pids(node: Node, attempt_id: str) -> list[int]:
    """Of the job itself: the last is inside the sandbox."""
    lanes = {head.id: lane for lane, head in node.agent._executor.lanes()}
    process = lanes[attempt_id].process() if attempt_id in lanes else None
    return [] if process is None else process.pids()


async def start(hub: FakeHub, node: Node, **needs: Any) -> str:
    """A job that sleeps, once it has started; its id."""
    [attempt_id] = hub.submit(command(*SLEEP, timeout_s=100, **needs), gpus=[0])
    await until(lambda: attempt_id in running(node) and len(pids(node, attempt_id)) > 1)
    return attempt_id


async def checked(node: Node, card: FakeCard, times: int = 3) -> None:
    """Wait for further checks."""
    before, count = card.used, 0

    def counting() -> dict[int, int | None]:
        nonlocal count
        count += 1
        return before()

    card.used = counting
    await until(lambda: count >= 2 * times)
    card.used = before


@pytest.mark.parametrize("level", ["process", "namespace"])
async def test_a_job_that_takes_more_than_it_asked_for_is_ended(
    hub: FakeHub, start_with_card: StartNode, card: FakeCard, level: str
) -> None:
    node = await start_with_card(level=level)
    greedy = await start(hub, node, gpus=1, vram_mb=8_000)
    good = await start(hub, node, gpus=1, vram_mb=8_000)
    own, other = pids(node, greedy), pids(node, good)
    card.used = lambda: {own[-1]: 9_100, other[-1]: 8_000, 1: 5_000}
    report = await hub.report(greedy)
    assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.OUT_OF_MEMORY)
    assert report.error == (
        "It used 9100 MB of GPU memory, more than the 8000 MB that it asked for. Ask for more: --vram 11GB, or "
        'vram="11GB" in Python.'
    )
    assert report.usage is not None
    assert report.usage.peak_rss_mb < 512, "its other memory is not blamed"
    await checked(node, card)
    assert good in running(node)


async def test_a_job_that_asked_for_whole_cards_is_not_limited(
    hub: FakeHub, start_with_card: StartNode, card: FakeCard
) -> None:
    node = await start_with_card()
    whole = await start(hub, node, gpus=1)
    own = pids(node, whole)
    card.used = lambda: {own[-1]: 24_000}
    reads = 0
    before = card.used

    def counting() -> dict[int, int | None]:
        nonlocal reads
        reads += 1
        return before()

    card.used = counting
    await until(lambda: reads > 10)
    assert whole in running(node)


async def test_a_job_without_a_card_costs_no_question_to_the_driver(
    hub: FakeHub, start_with_card: StartNode, card: FakeCard
) -> None:
    node = await start_with_card()
    asked: list[str] = []
    meter = node.agent._executor.meter
    for name in ("load", "memory_of"):
        setattr(meter, name, lambda *_, name=name, **__: asked.append(name))
    patrols = 0
    patrol = node.agent._executor.processes.patrol

    def counting() -> None:
        nonlocal patrols
        patrols += 1
        patrol()

    node.agent._executor.processes.patrol = counting  # type: ignore[method-assign]
    hub.submit(command(*SLEEP))
    await until(lambda: running(node))
    start_at = patrols
    await until(lambda: patrols > start_at + 5)
    assert asked == []


async def test_without_names_of_processes_the_whole_card_counts_for_a_job_alone(
    hub: FakeHub, start_with_card: StartNode, card: FakeCard
) -> None:
    """As in a container: the numbers are of another PID namespace. What was used before the agent started does not count."""
    card.idle_mb = 6_000
    node = await start_with_card()
    alone = await start(hub, node, gpus=1, vram_mb=8_000)
    nobody = 2**22 + 1  # above the kernel's highest number
    card.used = lambda: {nobody: 7_900}
    await checked(node, card)
    assert alone in running(node)
    card.used = lambda: {nobody: 8_100}
    report = await hub.report(alone)
    assert "used 8100 MB of GPU memory" in (report.error or "")


async def test_without_names_of_processes_nobody_is_blamed_on_a_shared_card(
    hub: FakeHub, start_with_card: StartNode, card: FakeCard, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start_with_card()
    first, second = [await start(hub, node, gpus=1, vram_mb=8_000) for _ in range(2)]
    card.used = lambda: {2**22 + 1: 20_000}
    await until(lambda: "does not say which job uses how much" in caplog.text)
    await checked(node, card)
    assert {first, second} <= running(node).keys()
    assert caplog.text.count("does not say which job") == 1


async def test_a_process_of_another_program_is_not_the_jobs(
    hub: FakeHub, start_with_card: StartNode, card: FakeCard
) -> None:
    node = await start_with_card()
    job = await start(hub, node, gpus=1, vram_mb=8_000)
    card.used = lambda: {os.getpid(): 20_000, 1: None}
    await checked(node, card)
    assert job in running(node)


async def test_a_function_is_ended_with_its_worker(hub: FakeHub, start_with_card: StartNode, card: FakeCard) -> None:
    node = await start_with_card()
    spec = function(time.sleep, timeout_s=100, needs=Needs(gpus=1, vram_mb=8_000))
    [attempt_id] = hub.submit(spec, [payload(60)], gpus=[0])
    await until(lambda: attempt_id in running(node) and pids(node, attempt_id))
    own = pids(node, attempt_id)
    card.used = lambda: {own[-1]: 8_001}
    report = await hub.report(attempt_id)
    assert report.reason is Reason.OUT_OF_MEMORY
    assert "more than the 8000 MB" in (report.error or "")


async def test_idle_workers_leave_a_card_to_the_next_job(
    hub: FakeHub, start_with_card: StartNode, card: FakeCard
) -> None:
    """They keep GPU memory that the hub counts as free. The next call of the same function keeps its worker."""
    node = await start_with_card()
    spec = function(os.getpid, needs=Needs(gpus=1, vram_mb=8_000))
    before = (await hub.run(spec, payload(), gpus=[0])).result
    assert (await hub.run(spec, payload(), gpus=[0])).result == before
    await hub.run(command("true"))
    assert len(node.agent._executor.functions.pool) == 1
    [attempt_id] = hub.submit(command(*SLEEP, gpus=1), gpus=[0])
    await until(lambda: attempt_id in running(node))
    assert len(node.agent._executor.functions.pool) == 0


async def test_a_worker_is_not_reused_for_less_memory(hub: FakeHub, start_with_card: StartNode, card: FakeCard) -> None:
    """What it kept from an earlier call would count against the next one."""
    await start_with_card()
    used = [
        (await hub.run(function(os.getpid, needs=Needs(gpus=1, vram_mb=mb)), payload(), gpus=[0])).result
        for mb in (8_000, 4_000)
    ]
    assert used[0] != used[1]
