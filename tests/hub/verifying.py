"""Results that nodes report for jobs which are checked, and short ways to see what follows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import httpx2

from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import charge_of
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from tests.hub.submitting import job
from tests.hub.working import PRICE, got, granted, others

GRANT = 1_000 * CREDIT
RAN_MS = 540_000
CHARGE = charge_of(PRICE, RAN_MS)
PAY = CHARGE * 8 // 10
VARYING = [f'"{number}"' for number in range(5)]


def advance(hub: HubDouble, ms: float, *nodes: NodeDouble) -> None:
    """Let time pass. The nodes sign in again, because their tokens expire."""
    assert isinstance(hub.hub.clock, FakeClock)
    hub.hub.clock.advance(round(ms))
    for node in nodes:
        node.sign_in()


async def placed(nodes: list[NodeDouble]) -> tuple[NodeDouble, str]:
    node, grant = await granted(nodes)
    return node, grant.attempt_id


async def answer(hub: HubDouble, nodes: list[NodeDouble], **said: Any) -> NodeDouble:
    """The next node that gets the job reports a success after ten minutes, by default the right result."""
    node, attempt_id = await placed(nodes)
    advance(hub, 600_000, node)
    assert await node.report(attempt_id, **{"ran_ms": RAN_MS, "result": '"right"'} | said) == "accepted"
    return node


async def answers(hub: HubDouble, nodes: list[NodeDouble], results: Sequence[str]) -> list[NodeDouble]:
    """Different nodes report these results, one after the other."""
    used: list[NodeDouble] = []
    for result in results:
        used.append(await answer(hub, others(nodes, *used), result=result))
    return used


async def is_being_checked(client: httpx2.AsyncClient, job_id: str) -> bool:
    """It has a result, and waits to be confirmed, or is being run by another node."""
    events = (await got(client, "/events", job_id=job_id))["events"]
    checked = "verifying" in {event["reason"] for event in events}
    return checked and (await job(client, job_id))["state"] in ("queued", "leased")


async def reputation(client: httpx2.AsyncClient, node: NodeDouble) -> dict[str, Any]:
    found: dict[str, Any] = (await got(client, f"/nodes/{node.node_id}"))["reputation"]
    return found


async def violations(client: httpx2.AsyncClient, nodes: list[NodeDouble]) -> list[int]:
    return [(await reputation(client, node))["violation_count"] for node in nodes]


async def owner_of(client: httpx2.AsyncClient, node: NodeDouble) -> str:
    return str((await got(client, f"/nodes/{node.node_id}"))["owner"])


async def attempts_of(client: httpx2.AsyncClient, job_id: str, field: str) -> list[Any]:
    """A field of each attempt."""
    return [attempt[field] for attempt in (await job(client, job_id))["tries"]]


# printed output


def printing(text: str) -> dict[str, Any]:
    """The fields of a report about a program that printed this."""
    return {"printed": hashlib.sha256(text.encode()).hexdigest(), "printed_chars": len(text)}


def piece(attempt_id: str, text: str, *, stream: str = "stdout", seq: int | None = None) -> dict[str, Any]:
    return {"attempt_id": attempt_id, "stream": stream, "text": text} | ({} if seq is None else {"seq": seq})


async def send(node: NodeDouble, *pieces: dict[str, Any]) -> None:
    (await node.client.post("/logs", json={"chunks": pieces})).raise_for_status()


async def prints(nodes: list[NodeDouble], text: str, *, sent: str | None = None, **said: Any) -> NodeDouble:
    """The next node that gets the job reports that it printed `text`, and sends that with its report, or `sent` instead."""
    node, attempt_id = await placed(nodes)
    report = node.make_report(attempt_id, **printing(text) | said)
    assert await node.report_all([report], logs=[piece(attempt_id, text if sent is None else sent)]) == ["accepted"]
    return node


async def logged(client: httpx2.AsyncClient, job_id: str) -> str:
    return "".join(chunk["text"] for chunk in (await got(client, f"/jobs/{job_id}/logs"))["chunks"])
