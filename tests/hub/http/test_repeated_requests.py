"""A poll repeated byte for byte is answered as if it had taken the full path."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from computepool.hub.fleet.registry import NodeSession
from computepool.testing.hub import HubDouble
from computepool.testing.node import NodeDouble
from computepool.testing.waiting import eventually
from tests.hub.connecting import Connection, HttpReply, poll_of
from tests.hub.submitting import submit


@pytest.fixture
async def node(hub: HubDouble) -> NodeDouble:
    node = await hub.node()
    await node.poll(wait_ms=0)
    return node


def session_of(hub: HubDouble, node: NodeDouble) -> NodeSession:
    found = hub.hub.nodes.registry.get(node.node_id)
    assert found is not None
    return found


async def parked(hub: HubDouble, node: NodeDouble) -> NodeSession:
    await eventually(lambda: session_of(hub, node).waiter is not None)
    return session_of(hub, node)


async def answered(connection: Connection, node: NodeDouble, data: bytes) -> HttpReply:
    """The reply to a poll, as at its time-out."""
    connection.send(data)
    (await parked(connection.hub, node)).wake()
    return await connection.reply()


async def repeating(hub: HubDouble, node: NodeDouble, **given: Any) -> tuple[Connection, bytes]:
    """A connection on which the poll has taken the full path once."""
    connection, data = Connection(hub), poll_of(node, **given)
    assert (await answered(connection, node, data)).status == 200
    assert connection.asked == 1
    return connection, data


def likeness(reply: HttpReply) -> tuple[Any, ...]:
    return reply.status, list(reply.headers.items()), list(reply.body), reply.body | {"hub_time_ms": 0}


async def test_a_repeated_poll_is_answered_like_the_first(hub: HubDouble, node: NodeDouble) -> None:
    connection, data = Connection(hub), poll_of(node)
    slow = await answered(connection, node, data)
    fast = [await answered(connection, node, data) for _ in range(3)]
    assert connection.asked == 1
    assert [likeness(reply) for reply in fast] == [likeness(slow)] * 3
    assert fast[0].body["hub_time_ms"] >= slow.body["hub_time_ms"]


async def test_a_repeated_poll_times_out(hub: HubDouble, node: NodeDouble) -> None:
    connection, data = Connection(hub), poll_of(node, wait_ms=1)
    for _ in range(2):
        connection.send(data)
        assert (await connection.reply()).body["status"] == "ready"
    assert connection.asked == 1
    assert session_of(hub, node).waiter is None


async def test_a_repeated_poll_counts_as_contact(hub: HubDouble, node: NodeDouble) -> None:
    connection, data = await repeating(hub, node)
    session = session_of(hub, node)
    session.seen_ms = session.polled_ms = 0
    polls = session.polls
    await answered(connection, node, data)
    assert session.seen_ms > 0
    assert session.polled_ms > 0
    assert session.polls == polls + 1
    assert connection.asked == 1


async def test_other_bytes_take_the_full_path(hub: HubDouble, node: NodeDouble) -> None:
    connection, _ = await repeating(hub, node)
    await answered(connection, node, poll_of(node, wait_ms=59_999))
    assert connection.asked == 2
    other = Connection(hub)
    await answered(other, node, poll_of(node))
    assert other.asked == 1, "another connection knows nothing of it"


@pytest.mark.parametrize("given", [{"wait_ms": 0}, {"claim": False, "wait_ms": 1}, {"holding": ["x" * 40] * 20}])
async def test_polls_with_more_content_are_not_repeated(
    hub: HubDouble, node: NodeDouble, given: dict[str, Any]
) -> None:
    connection, data = Connection(hub), poll_of(node, **given)
    for asked in (1, 2):
        connection.send(data)
        assert (await connection.reply()).status == 200
        assert connection.asked == asked


async def test_a_repeated_poll_brings_a_job(hub: HubDouble, node: NodeDouble) -> None:
    connection, data = await repeating(hub, node)
    connection.send(data)
    [job_id] = await submit(hub.admin)
    reply = (await connection.reply()).body
    assert [grant["job_id"] for grant in reply["grants"]] == [job_id]
    assert reply["token"]
    assert reply["specs"]
    assert reply["status"] == "working"
    assert connection.asked == 1
    connection.send(data)  # as if the grant was lost: the node does not hold it
    assert (await connection.reply()).body["grants"] == reply["grants"]


async def test_a_repeated_poll_reports_a_pause(hub: HubDouble, node: NodeDouble) -> None:
    connection, data = await repeating(hub, node)
    connection.send(data)
    assert (await hub.admin.post(f"/nodes/{node.node_id}/state", json={"state": "paused"})).status_code == 200
    for _ in range(2):
        body = (await connection.reply()).body
        assert (body["state"], body["status"]) == ("paused", "paused")
        connection.send(data)
        (await parked(hub, node)).wake()


async def test_a_repeated_poll_brings_changed_rules(hub: HubDouble, node: NodeDouble) -> None:
    connection, data = await repeating(hub, node)
    connection.send(data)
    assert (await hub.admin.put(f"/nodes/{node.node_id}/rules", json={"network": False})).status_code == 200
    assert "network" in (await connection.reply()).body["rules"]


@pytest.mark.parametrize("when", ["parked", "before"])
async def test_a_revoked_node_is_refused(hub: HubDouble, node: NodeDouble, when: str) -> None:
    connection, data = await repeating(hub, node)
    if when == "parked":
        connection.send(data)
    assert (await hub.admin.post(f"/nodes/{node.node_id}/revoke")).status_code == 200
    if when == "before":
        connection.send(data)
    reply = await connection.reply()
    assert reply.status == 401
    assert "revoked" in reply.body["detail"]


async def test_a_token_that_left_the_cache_is_verified_again(hub: HubDouble, node: NodeDouble) -> None:
    connection, data = await repeating(hub, node)
    hub.hub.identity.authenticator.forget()
    await answered(connection, node, data)
    assert connection.asked == 2
    await answered(connection, node, data)
    assert connection.asked == 2


async def test_a_node_that_was_given_up_is_asked_to_register_again(hub: HubDouble, node: NodeDouble) -> None:
    connection, data = await repeating(hub, node)
    connection.send(data)
    hub.hub.nodes.registry.on_node_lost(node.node_id)
    assert (await connection.reply()).body["reregister"]
    connection.send(data)
    assert (await connection.reply()).body["reregister"]


async def test_a_newer_poll_ends_a_repeated_one(hub: HubDouble, node: NodeDouble) -> None:
    connection, data = await repeating(hub, node)
    newer = Connection(hub)
    connection.send(data)
    newer.send(data)
    assert "status" not in (await connection.reply()).body
    assert newer.transport.written == b""
    (await parked(hub, node)).wake()
    assert (await newer.reply()).body["status"] == "ready"


async def test_pipelined_requests_are_answered_in_order(hub: HubDouble, node: NodeDouble) -> None:
    connection, data = await repeating(hub, node)
    connection.send(data)
    connection.send(b"GET /api/v1/hub HTTP/1.1\r\nHost: hub\r\n\r\n")
    assert (await connection.reply()).body["status"] == "ready"
    assert "version" in (await connection.reply()).body
    connection.send(data * 2)  # two at once are different bytes
    (await parked(hub, node)).wake()
    assert (await connection.reply()).body["status"] == "ready"


async def test_a_closed_connection_stops_waiting(hub: HubDouble, node: NodeDouble) -> None:
    connection, data = await repeating(hub, node)
    connection.send(data)
    connection.protocol.connection_lost(None)
    assert session_of(hub, node).waiter is None
    await submit(hub.admin)
    assert len((await node.poll()).grants) == 1
    assert connection.transport.written == b""


async def test_a_full_hub_refuses_a_repeated_poll(hub: HubDouble, node: NodeDouble) -> None:
    connection, data = await repeating(hub, node)
    connection.protocol.limit_concurrency = 1
    connection.send(data)
    while not connection.transport.closed:
        await connection.transport.news.wait()
        connection.transport.news.clear()
        await asyncio.sleep(0)
    assert b"503 Service Unavailable" in connection.transport.written
    assert session_of(hub, node).waiter is None


async def test_a_stopping_server_answers_a_repeated_poll(hub: HubDouble, node: NodeDouble) -> None:
    connection, data = await repeating(hub, node)
    connection.send(data)
    connection.protocol.shutdown()
    assert connection.transport.closed
    assert b"200 OK" in connection.transport.written


async def test_an_idle_connection_is_closed_in_the_end(
    hub: HubDouble, node: NodeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, data = await repeating(hub, node)
    protocol = connection.protocol
    connection.send(data)
    protocol.timeout_keep_alive_handler()
    assert not connection.transport.closed, "it waits for its answer"
    session_of(hub, node).wake()
    await connection.reply()
    protocol.timeout_keep_alive_handler()
    assert not connection.transport.closed, "it was answered just now"
    monkeypatch.setattr(protocol, "timeout_keep_alive", 0)
    protocol.timeout_keep_alive_handler()
    assert connection.transport.closed


async def test_an_error_closes_the_connection_of_a_repeated_poll(
    hub: HubDouble, node: NodeDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, data = await repeating(hub, node)
    connection.send(data)
    connection.transport.news.clear()
    monkeypatch.setattr(hub.hub.nodes.registry, "status", lambda *_, **__: 1 / 0)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    session_of(hub, node).wake()
    await connection.transport.news.wait()
    assert connection.transport.closed
