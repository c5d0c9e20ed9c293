"""What answers in the hub's place, or answers oddly, costs the node a wait: no result, no loop, no file of its owner."""

from __future__ import annotations

import asyncio
import gzip
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from computepool.agent.clock import SystemClock
from computepool.agent.hub_client import Backoff, HubClient
from computepool.agent.identity import Identity
from computepool.core.errors import ComputePoolError, RateLimited, TooLarge, Unavailable
from computepool.protocol.nodes import Grant, NextReply, NextRequest
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import (
    Ed25519PrivateKey,
    FakeHub,
    Foreign,
    Outcome,
    command,
    function,
    payload,
    until,
)

pytestmark = pytest.mark.anyio

HTML = {"content-type": "text/html"}
PAGE = b"<html><body>Please sign in to this network</body></html>"
DAMAGED = gzip.compress(b'{"answers": []}')[:-6] + b"\xff" * 6


async def client_error(hub: FakeHub, answer: Foreign) -> ComputePoolError:
    key = Ed25519PrivateKey.generate()
    identity = Identity(key=key, node_id="n", owner="o", hub_keys={}, hub_url=hub.url)
    client = HubClient((hub.url,), clock=SystemClock(), limits=QUICK, identity=identity)
    hub.fault = lambda path: answer
    try:
        with pytest.raises(ComputePoolError) as raised:
            await client.next(NextRequest(boot_id="b"))
    finally:
        await client.close()
    return raised.value


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 405, 407, 418, 500, 502, 507, 511])
async def test_who_is_no_hub_refuses_nothing(hub: FakeHub, status: int) -> None:
    assert type(await client_error(hub, (status, HTML, PAGE))) is Unavailable


@pytest.mark.parametrize(("status", "kind"), [(413, TooLarge), (429, RateLimited)])
async def test_limits_of_a_proxy_are_limits(hub: FakeHub, status: int, kind: type) -> None:
    assert type(await client_error(hub, (status, HTML, PAGE))) is kind


@pytest.mark.parametrize(
    "headers",
    [
        {"content-encoding": "gzip"},
        {"retry-after": "\u00b2"},
        {"retry-after": "9" * 400},
        {"date": "Mon, 1 Jan 1 0:0:0 -0000"},
    ],
)
@pytest.mark.parametrize("status", [200, 401, 503])
async def test_an_odd_head_is_an_error_like_others(
    hub: FakeHub, headers: dict[str, str], status: int
) -> None:
    assert isinstance(await client_error(hub, (status, headers, DAMAGED)), Unavailable)


@pytest.mark.parametrize("asked", [math.nan, math.inf, -math.inf, -5.0, 1e300])
def test_no_wait_that_is_asked_for_is_endless_or_none(asked: float) -> None:
    delay_s = Backoff(SystemClock(), QUICK).delay_s(Unavailable(retry_after_s=asked))
    assert 0 <= delay_s <= 2 * QUICK.retry_max_s


@pytest.mark.parametrize(
    "answer", [507, (403, HTML, PAGE), (404, HTML, PAGE), (200, {"content-encoding": "gzip"}, DAMAGED)]
)
async def test_results_wait_for_a_hub_that_can_take_them(
    hub: FakeHub, start_node: StartNode, answer: int | Foreign
) -> None:
    node = await start_node()
    tries: list[str] = []

    def fault(path: str) -> int | Foreign | None:
        if path != "/complete" or len(tries) >= 3:
            return None
        tries.append(path)
        return answer

    hub.fault = fault
    attempts = [*hub.submit(command("true")), *hub.submit(command("true"))]
    await until(lambda: hub.reports.keys() >= set(attempts))
    assert {hub.reports[attempt].outcome for attempt in attempts} == {Outcome.SUCCEEDED}
    await until(lambda: not list(node.config.outbox_dir.iterdir()))


async def test_outputs_wait_for_a_hub_with_room(hub: FakeHub, start_node: StartNode) -> None:
    await start_node()
    full = iter([507, 507])
    hub.fault = lambda path: next(full, None) if path.startswith("/artifacts/") else None
    [attempt] = hub.submit(command("sh", "-c", "echo words > outputs/file"))
    await until(lambda: attempt in hub.reports)
    report = hub.reports[attempt]
    assert (report.outcome, [output.name for output in report.outputs]) == (Outcome.SUCCEEDED, ["file"])


async def test_a_damaged_answer_ends_no_loop(hub: FakeHub, start_node: StartNode) -> None:
    node = await start_node()
    damaged: dict[str, int] = {}

    def fault(path: str) -> Foreign | None:
        damaged[path] = damaged.get(path, 0) + 1
        return (200, {"content-encoding": "gzip"}, DAMAGED) if damaged[path] <= 2 else None

    hub.fault = fault
    attempts = hub.submit(function(print), [payload("a word"), payload("another")])
    slow = hub.submit(command("sh", "-c", "echo begun; sleep 1"))
    await until(lambda: hub.reports.keys() >= {*attempts, *slow})
    assert {"/next", "/complete", "/heartbeat", "/logs"} <= damaged.keys()
    assert not node.task.done()
