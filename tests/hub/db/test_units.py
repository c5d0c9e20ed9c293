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
from tests.hub.fixtures import hub_fixture
from tests.hub.groups.test_collector import register
from tests.hub.groups.test_groups import make_group
from tests.hub.money.test_holds import HOUR
from tests.hub.settlement.test_verification import GRANT, answer, crowd
from tests.hub.submitting import submit

hub = hub_fixture(signup_grant=GRANT, tick_s=10_000, verify="adaptive")


@asynccontextmanager
async def spoiled_commit(hub: HubDouble) -> AsyncIterator[None]:
    """All that is written inside shares a commit with a unit that fails, so that it runs twice."""
    gate = threading.Event()

    def fail(_tx: Tx) -> None:
        raise Conflict("on purpose")

    async def write() -> list[Any]:
        return await asyncio.gather(
            hub.hub.store.write(lambda _: gate.wait(20)), hub.hub.store.write(fail), return_exceptions=True
        )

    held = asyncio.ensure_future(write())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(1.5, gate.set)
    yield
    assert isinstance((await held)[1], Conflict)


async def test_what_a_unit_keeps_is_counted_once_however_often_it_runs(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter")
    account = (await sam.get("/me")).json()["id"]
    group = await make_group(sam)
    await register(sam, group, "first")
    before = hub.hub.artifacts.usage[account].bytes
    async with spoiled_commit(hub):
        await register(sam, group, "k" * 100)
    assert hub.hub.artifacts.usage[account].bytes - before == 100


async def test_what_was_taken_back_is_not_counted(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_tie_is_counted_once_however_often_its_unit_runs(hub: HubDouble) -> None:
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


async def test_the_fleet_is_read_on_the_event_loop_alone(
    hub: HubDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placements change it at any time; a writer that looked at it could see a node half written."""
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
