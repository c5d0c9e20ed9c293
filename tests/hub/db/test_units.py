"""Units of work: the hub's memory is read before them and changed after their commit, on the event loop alone.

A unit may run twice, when another one of its commit fails; what it told the hub's memory would then be counted twice.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from computepool.core.errors import Conflict
from computepool.hub.db.session import Tx
from computepool.hub.nodes import known_nodes
from computepool.testing.hub import HubDouble
from computepool.testing.waiting import eventually
from tests.hub.fixtures import hub_fixture
from tests.hub.groups.test_collector import register
from tests.hub.groups.test_groups import make_group
from tests.hub.submitting import submit
from tests.hub.verifying import GRANT, answer
from tests.hub.working import HOUR, crowd

hub = hub_fixture(signup_grant=GRANT, tick_s=10_000, verify="adaptive")


@asynccontextmanager
async def spoiled_commit(hub: HubDouble) -> AsyncIterator[None]:
    """The write inside shares a commit with a unit that fails, so it runs twice."""
    gate, store = threading.Event(), hub.hub.store

    def fail(_tx: Tx) -> None:
        raise Conflict("on purpose")

    async def open_gate() -> None:
        await eventually(lambda: store._queue.qsize() == 2)  # the failing unit, and the write inside
        gate.set()

    units = (store.write(lambda _: gate.wait(60)), store.write(fail))
    held = asyncio.ensure_future(asyncio.gather(*units, open_gate(), return_exceptions=True))
    await asyncio.sleep(0)
    yield
    assert isinstance((await held)[1], Conflict)


async def test_storage_is_counted_once_even_if_its_unit_runs_twice(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter")
    account = (await sam.get("/me")).json()["id"]
    group = await make_group(sam)
    await register(sam, group, "first")
    before = hub.hub.artifacts.usage[account].bytes
    async with spoiled_commit(hub):
        await register(sam, group, "k" * 100)
    assert hub.hub.artifacts.usage[account].bytes - before == 100


async def test_a_unit_that_was_rolled_back_is_not_counted(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    sam = await hub.account("sam", "submitter")
    account = (await sam.get("/me")).json()["id"]
    group = await make_group(sam)
    await register(sam, group, "first")
    before = hub.hub.artifacts.usage[account].bytes

    def fail(*_: object, **__: object) -> None:
        raise Conflict("on purpose")

    monkeypatch.setattr("computepool.hub.groups.collector._insert", fail)
    refused = await sam.post(f"/groups/{group}/keys", json={"keys": [{"key": "k" * 100}]})
    assert refused.status_code == 409
    assert hub.hub.artifacts.usage[account].bytes == before


async def test_a_tie_is_counted_once_even_if_its_unit_runs_twice(hub: HubDouble) -> None:
    sam, nodes = await crowd(hub, 2)
    await submit(sam, spec=HOUR)
    first = await answer(hub, nodes, result='"1"')
    [second] = [node for node in nodes if node is not first]
    second.sign_in()
    [grant] = await second.take()
    hub.hub.clock.advance(600_000)  # type: ignore[attr-defined]
    second.sign_in()
    async with spoiled_commit(hub):
        assert await second.report(grant.attempt_id, ran_ms=1_000, result='"2"') == "accepted"
    [tie] = hub.hub.settlement.ties.programs.values()
    assert tie.count == 1


async def test_the_fleet_is_read_on_the_event_loop_alone(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """Placements change it at any time; the writer thread could see a half-written node."""
    seen: set[str] = set()
    could_run = known_nodes.could_run

    def noting(*args: Any) -> Any:
        seen.add(threading.current_thread().name)
        return could_run(*args)

    monkeypatch.setattr(known_nodes, "could_run", noting)
    sam, nodes = await crowd(hub, 2)
    await submit(sam, spec=HOUR)
    first = await answer(hub, nodes, result='"1"')
    await answer(hub, [node for node in nodes if node is not first], result='"2"')
    assert seen == {threading.main_thread().name}
