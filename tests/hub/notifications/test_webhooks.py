"""Webhooks: sent once for each event, signed, retried until they arrive, and never sent to forbidden addresses."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from computepool.hub import addresses
from computepool.hub.context import Hub
from computepool.hub.notifications import deliveries, notices, rows
from computepool.protocol.webhooks import secret_bytes, signature
from computepool.sdk.resources.webhooks import WebhookError, verify_webhook
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import hub_fixture, two_hubs
from tests.hub.submitting import submit

_DAY_MS = 24 * 3600 * 1000


@dataclass
class Receiver:
    """A real server on the loopback interface. `answers`: one status for each message, then 204."""

    answers: list[int] = field(default_factory=list)
    heard: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    extra: bytes = b""
    hang: bool = False
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):  # also when the test is over before
            await self._answer(reader, writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.heard.append((headers, body))
        if self.hang:
            await reader.read()  # until the hub has had enough
            return
        status = self.answers.pop(0) if self.answers else 204
        writer.write(f"HTTP/1.1 {status} X\r\n".encode() + self.extra + b"content-length: 0\r\n\r\n")
        await writer.drain()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?a=1"

    @property
    def said(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.heard]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()


#: Rounds are made by the tests; the operator allows this machine.
hub = hub_fixture(webhook_private="127.0.0.0/8", webhook_round_s=3600)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - a condition of another task's
            await asyncio.sleep(0.01)


async def send_all(hub: Hub) -> None:
    """Send everything that is due, until nothing is."""
    async with deliveries.Courier(hub) as courier:
        while await courier.round():
            await courier.idle()


async def add(hub: HubDouble, url: str, *events: str) -> dict[str, Any]:
    body: dict[str, Any] = {"url": url, **({"events": list(events)} if events else {})}
    answer = await hub.admin.post("/webhooks", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def sent(hub: HubDouble, hook: dict[str, Any]) -> list[dict[str, Any]]:
    return (await hub.admin.get(f"/webhooks/{hook['id']}/deliveries")).json()["deliveries"]


#: One of each hub: a second one would be given jobs that nobody takes.
_nodes: WeakKeyDictionary[HubDouble, NodeDouble] = WeakKeyDictionary()


async def finish_group(hub: HubDouble, name: str = "batch", items: int = 2) -> str:
    group = (await hub.admin.post("/groups", json={"name": name})).json()["id"]
    await submit(hub.admin, items=items, group_id=group)
    if hub not in _nodes:
        _nodes[hub] = await hub.node(cores=4)
    for grant in await _nodes[hub].take(items):
        await _nodes[hub].report(grant.attempt_id, result='"secret result"')
    return str(group)


async def test_a_complete_group_is_told_once_and_signed(hub: HubDouble, receiver: Receiver) -> None:
    await finish_group(hub, "before there was a webhook")
    hook = await add(hub, receiver.url)
    group = await finish_group(hub)
    await send_all(hub.hub)
    await send_all(hub.hub)
    [(headers, body)] = receiver.heard
    now_s = hub.hub.now_ms() // 1000
    said = verify_webhook(headers, body, hook["secret"], now=now_s)
    assert said["type"] == "group.complete"
    assert said["version"] == 1
    assert said["data"] == {
        "group_id": group, "name": "batch", "round": 1, "total": 2, "succeeded": 2, "failed": 0
    }  # fmt: skip
    assert b"secret result" not in body
    [delivery] = await sent(hub, hook)
    assert (delivery["id"], delivery["state"], delivery["status"]) == (headers["webhook-id"], "delivered", 204)
    assert headers["host"] == f"127.0.0.1:{receiver.port}"
    assert (await hub.admin.get("/webhooks")).json()["webhooks"][0].get("secret") is None


async def test_a_long_list_of_events_is_looked_through_in_one_round(
    hub: HubDouble, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "_BATCH_MAX", 3)
    await add(hub, receiver.url, "job.finished")
    await finish_group(hub, items=4)
    assert await notices.gather(hub.hub) == 4


@pytest.mark.soak
async def test_hubs_on_postgresql_share_what_there_is_to_tell(
    tmp_path: Path, receiver: Receiver, migrated_url: str
) -> None:
    settings: dict[str, Any] = {"webhook_private": "127.0.0.0/8", "webhook_round_s": 3600}
    async with two_hubs(tmp_path, migrated_url, **settings) as (first, second):
        hook = await add(second, receiver.url, "group.complete", "job.finished")
        await finish_group(second, items=3)
        await asyncio.gather(*(send_all(one.hub) for one in (first, second, first, second)))
        await send_all(second.hub)
        assert len(receiver.heard) == len({headers["webhook-id"] for headers, _ in receiver.heard}) == 4
        for headers, body in receiver.heard:
            verify_webhook(headers, body, hook["secret"])


async def test_a_group_under_way_and_one_that_goes_on_are_told_of(hub: HubDouble, receiver: Receiver) -> None:
    """Without a webhook, the group was not watched before."""
    group = (await hub.admin.post("/groups", json={"name": "g"})).json()["id"]
    await submit(hub.admin, items=1, group_id=group)
    await add(hub, receiver.url)
    node = await hub.node(cores=4)
    for round_ in (1, 2):
        for grant in await node.take(1):
            await node.report(grant.attempt_id)
        await send_all(hub.hub)
        assert [said["data"]["round"] for said in receiver.said] == list(range(1, round_ + 1))
        await submit(hub.admin, items=1, group_id=group)


async def test_a_group_in_which_nothing_was_open_is_told_of(hub: HubDouble, receiver: Receiver) -> None:
    """A named group may be used every night, and get a webhook between two uses."""
    group = (await hub.admin.post("/groups", json={"name": "nightly"})).json()["id"]
    await add(hub, receiver.url)
    await submit(hub.admin, items=1, group_id=group)
    node = await hub.node(cores=4)
    for grant in await node.take(1):
        await node.report(grant.attempt_id)
    await send_all(hub.hub)
    assert [said["data"]["group_id"] for said in receiver.said] == [group]


async def test_jobs_are_told_of_only_to_who_asked(hub: HubDouble, receiver: Receiver) -> None:
    await add(hub, receiver.url)
    await add(hub, receiver.url, "job.finished")
    group = await finish_group(hub)
    await send_all(hub.hub)
    kinds = sorted(said["type"] for said in receiver.said)
    assert kinds == ["group.complete", "job.finished", "job.finished"]
    found = next(said["data"] for said in receiver.said if said["type"] == "job.finished")
    assert (found["group_id"], found["state"]) == (group, "succeeded")


async def test_an_account_is_not_notified_of_others_jobs(hub: HubDouble, receiver: Receiver) -> None:
    other = await hub.account("other", "submitter")
    await other.post("/webhooks", json={"url": receiver.url, "events": ["job.finished", "group.complete"]})
    await finish_group(hub)
    await send_all(hub.hub)
    assert receiver.heard == []


async def test_it_is_tried_again_under_the_same_id_until_it_arrives(
    hub: HubDouble, receiver: Receiver, clock: FakeClock
) -> None:
    hook = await add(hub, receiver.url)
    await finish_group(hub)
    receiver.answers = [500, 302, 429]
    receiver.extra = f"location: {receiver.url}\r\n".encode()
    for tries in range(1, 5):
        await send_all(hub.hub)
        await send_all(hub.hub)  # it is not due again
        assert len(receiver.heard) == tries
        clock.advance(3600 * 1000)
    assert len({headers["webhook-id"] for headers, _ in receiver.heard}) == 1
    assert len({headers["webhook-timestamp"] for headers, _ in receiver.heard}) == 4
    [delivery] = await sent(hub, hook)
    assert (delivery["state"], delivery["tries"], delivery["reason"]) == ("delivered", 4, None)
    [one] = (await hub.admin.get("/webhooks")).json()["webhooks"]
    assert one["failing_since_ms"] is None


@pytest.mark.soak
async def test_a_receiver_that_is_never_there_is_given_up(hub: HubDouble, receiver: Receiver, clock: FakeClock) -> None:
    hook = await add(hub, "http://127.0.0.1:1/")
    await finish_group(hub)
    for _ in range(40):
        await send_all(hub.hub)
        clock.advance(3600 * 1000)
    [delivery] = await sent(hub, hook)
    assert delivery["state"] == "failed"
    assert "Connect" in delivery["reason"]
    clock.advance(5 * _DAY_MS)
    await hub.admin.post(f"/webhooks/{hook['id']}/test")
    await send_all(hub.hub)
    [one] = (await hub.admin.get("/webhooks")).json()["webhooks"]
    assert "nothing arrived for 6." in one["disabled_reason"]
    told = (await hub.admin.get("/events", params={"limit": 500})).json()["events"]
    assert [event["action"] for event in told if event["action"].startswith("webhook.")] == [
        "webhook.created", "webhook.disabled"
    ]  # fmt: skip
    assert (await hub.admin.post(f"/webhooks/{hook['id']}/test")).status_code == 409
    enabled = (await hub.admin.post(f"/webhooks/{hook['id']}/enable")).json()
    assert (enabled["disabled_at_ms"], enabled["failing_since_ms"]) == (None, None)


async def test_a_receiver_that_answers_gone_disables_its_webhook(hub: HubDouble, receiver: Receiver) -> None:
    hook = await add(hub, receiver.url)
    receiver.answers = [410]
    await hub.admin.post(f"/webhooks/{hook['id']}/test")
    await send_all(hub.hub)
    [one] = (await hub.admin.get("/webhooks")).json()["webhooks"]
    assert "410" in one["disabled_reason"]
    assert [said["type"] for said in receiver.said] == ["webhook.test"]


async def test_two_hubs_do_not_send_at_once(hub: HubDouble, receiver: Receiver) -> None:
    """Several rounds read the delivery before one of them claims it."""
    await add(hub, receiver.url)
    await finish_group(hub)
    await asyncio.gather(*(notices.gather(hub.hub) for _ in range(3)))
    due = await hub.hub.store.read(lambda connection: rows.due(connection, now_ms=hub.hub.now_ms()))
    assert len(due) == 1
    await asyncio.gather(*(send_all(hub.hub) for _ in range(4)))
    assert len(receiver.heard) == 1


async def test_a_message_outlives_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    settings: dict[str, Any] = {"webhook_private": "127.0.0.0/8", "webhook_round_s": 3600}
    async with running_hub(tmp_path, **settings) as first:
        hook = await add(first, receiver.url)
        await finish_group(first)
    async with running_hub(tmp_path, **settings) as second:
        await send_all(second.hub)
    [(headers, body)] = receiver.heard
    assert verify_webhook(headers, body, hook["secret"])["type"] == "group.complete"


async def test_one_account_does_not_stop_the_others(hub: HubDouble, receiver: Receiver) -> None:
    """Its receivers never answer and many deliveries wait for them; meanwhile other accounts are served in turn."""
    tarpit = Receiver(hang=True)
    server = await asyncio.start_server(tarpit.serve, "127.0.0.1", 0)
    tarpit.port = server.sockets[0].getsockname()[1]
    settings = hub.hub.settings
    settings.webhook_call_s, settings.webhook_tests_max, settings.webhook_account_calls_max = 60, 99, 2
    mallory, victim = await hub.account("mal", "submitter"), await hub.account("vic", "submitter")
    for _ in range(4):
        made = (await mallory.post("/webhooks", json={"url": tarpit.url})).json()
        for _ in range(5):
            assert (await mallory.post(f"/webhooks/{made['id']}/test")).status_code == 202
    async with deliveries.Courier(hub.hub) as courier:
        assert await courier.round() == 2
        await until(lambda: len(tarpit.heard) == 2)
        own = (await victim.post("/webhooks", json={"url": receiver.url})).json()
        for _ in range(3):
            await victim.post(f"/webhooks/{own['id']}/test")
        assert await courier.round() == 1
        await until(lambda: len(receiver.heard) == 3)
    assert len(tarpit.heard) == 2, "one call of each webhook, and two of the account"
    server.close()


async def test_a_turn_ends_and_the_account_that_waited_longest_is_next(hub: HubDouble, receiver: Receiver) -> None:
    settings = hub.hub.settings
    settings.webhook_calls_max, settings.webhook_batch_max = 1, 2
    for name in ("first", "second"):
        account = await hub.account(name, "submitter")
        hook = (await account.post("/webhooks", json={"url": receiver.url})).json()
        for _ in range(4):
            await account.post(f"/webhooks/{hook['id']}/test")
    async with deliveries.Courier(hub.hub) as courier:
        for _ in range(4):
            assert await courier.round() == 1
            await courier.idle()
    order = [said["data"]["webhook_id"] for said in receiver.said]
    assert order == [order[0]] * 2 + [order[2]] * 2 + [order[0]] * 2 + [order[2]] * 2
    assert order[0] != order[2]


async def test_a_webhook_that_fails_rests_whatever_waits_for_it(
    hub: HubDouble, receiver: Receiver, clock: FakeClock
) -> None:
    hook = await add(hub, receiver.url)
    receiver.answers = [500, 500]
    for _ in range(3):
        await hub.admin.post(f"/webhooks/{hook['id']}/test")
    await send_all(hub.hub)
    assert len(receiver.heard) == 1
    clock.advance(5_000)
    await send_all(hub.hub)
    clock.advance(4_000)  # the second pause is twice as long, and at least half of that
    await send_all(hub.hub)
    assert len(receiver.heard) == 2
    clock.advance(6_000)
    await send_all(hub.hub)
    assert [one["state"] for one in await sent(hub, hook)] == ["delivered"] * 3


async def test_tests_of_webhooks_are_limited_by_the_minute(hub: HubDouble, clock: FakeClock) -> None:
    hooks = [await add(hub, "http://127.0.0.1:1/") for _ in range(2)]
    for at in range(10):
        assert (await hub.admin.post(f"/webhooks/{hooks[at % 2]['id']}/test")).status_code == 202
    refused = await hub.admin.post(f"/webhooks/{hooks[0]['id']}/test")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
    clock.advance(60_000)
    assert (await hub.admin.post(f"/webhooks/{hooks[0]['id']}/test")).status_code == 202


async def test_a_receiver_that_hangs_or_floods_holds_nothing_up(hub: HubDouble, receiver: Receiver) -> None:
    hub.hub.settings.webhook_call_s = 0.3
    hook = await add(hub, receiver.url)
    receiver.hang = True
    await hub.admin.post(f"/webhooks/{hook['id']}/test")
    await asyncio.wait_for(send_all(hub.hub), 60)
    [delivery] = await sent(hub, hook)
    assert (delivery["state"], delivery["reason"]) == ("pending", "no answer in 0.3 s")


_REFUSED = [
    "http://example.org/",
    "https://user:pw@example.org/",
    "https://example.org/#x",
    "https://127.0.0.1/",
    "https://[::1]/",
    "https://[::ffff:169.254.169.254]/",
    "https://169.254.169.254/latest/meta-data",
    "https://10.0.0.1/",
    "https://2130706433/",
    "https://0x7f.1/",
    "https://example.org:99999/",
    "https://ex ample.org/",
    "ftp://example.org/",
    "file:///etc/passwd",
    "https:///nothing",
    "https://exämple.org/",
]


async def test_addresses_inside_and_without_https_are_refused(tmp_path: Path) -> None:
    async with running_hub(tmp_path, webhook_round_s=3600) as plain:
        for url in _REFUSED:
            answer = await plain.admin.post("/webhooks", json={"url": url})
            assert answer.status_code == 422, url
            assert "url" in answer.json()["field"]


async def test_a_name_that_leads_inside_is_refused_when_it_is_used(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every address of the name is checked, and the connection goes to a checked one without a second look-up."""
    answers = [["93.184.215.14", "127.0.0.1"], ["10.1.2.3"], ["::ffff:127.0.0.1"], []]
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[Any]:
        asked.append(host)
        return [ipaddress.ip_address(text) for text in answers[len(asked) - 1]] or [ipaddress.ip_address("fe80::1")]

    monkeypatch.setattr(addresses, "resolve", resolve)
    async with running_hub(tmp_path, webhook_round_s=3600) as plain:
        hooks = [await add(plain, "https://rebinding.example:444/x") for _ in answers]
        for hook in hooks:
            await plain.admin.post(f"/webhooks/{hook['id']}/test")
        await send_all(plain.hub)
        reasons = [one["reason"] for hook in hooks for one in await sent(plain, hook)]
        assert len(reasons) == len(asked) == len(answers)
        assert all("which webhooks do not reach" in reason for reason in reasons)
    assert receiver.heard == []


async def test_without_https_only_named_networks_are_reached(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(host: str, port: int) -> list[Any]:
        return [ipaddress.ip_address("93.184.215.14")]

    monkeypatch.setattr(addresses, "resolve", resolve)
    hook = await add(hub, "http://public.example/")
    await hub.admin.post(f"/webhooks/{hook['id']}/test")
    await send_all(hub.hub)
    [delivery] = await sent(hub, hook)
    assert "without https" in delivery["reason"]


async def test_an_account_has_a_limited_number_of_webhooks(hub: HubDouble) -> None:
    hub.hub.settings.webhooks_max = 1
    await add(hub, "https://example.org/")
    assert (await hub.admin.post("/webhooks", json={"url": "https://example.org/"})).status_code == 413


async def test_old_deliveries_are_deleted(hub: HubDouble, receiver: Receiver, clock: FakeClock) -> None:
    hook = await add(hub, receiver.url)
    await hub.admin.post(f"/webhooks/{hook['id']}/test")
    await send_all(hub.hub)
    await hub.hub.store.write(lambda tx: rows.prune(tx, before_ms=tx.now_ms))
    assert len(await sent(hub, hook)) == 1
    clock.advance(1)
    await hub.hub.store.write(lambda tx: rows.prune(tx, before_ms=tx.now_ms))
    assert await sent(hub, hook) == []


def test_signatures_follow_the_standard_webhooks_specification() -> None:
    """The example of the Standard Webhooks specification."""
    secret = secret_bytes("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    found = signature(secret, message_id="msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp_s=1614265330, body=body)
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_what_is_not_signed_is_refused() -> None:
    secret, body = "whsec_" + "QUJD" * 8, b'{"type": "x"}'
    signed = signature(secret_bytes(secret), message_id="msg_1", timestamp_s=1000, body=body)
    headers = {"Webhook-Id": "msg_1", "Webhook-Timestamp": "1000", "Webhook-Signature": f"v1,AAAA {signed}"}
    assert verify_webhook(headers, body, secret, now=1300) == {"type": "x"}
    assert verify_webhook(headers, body.decode(), secret, now=700) == {"type": "x"}
    for wrong in (
        {**headers, "Webhook-Id": "msg_2"},
        {**headers, "Webhook-Timestamp": "1001"},
        {**headers, "Webhook-Timestamp": "soon"},
        {**headers, "Webhook-Signature": "v1,"},
        {**headers, "Webhook-Signature": "é"},
        {name: value for name, value in headers.items() if name != "Webhook-Signature"},
    ):
        with pytest.raises(WebhookError):
            verify_webhook(wrong, body, secret, now=1000)
    with pytest.raises(WebhookError, match="not signed"):
        verify_webhook(headers, body + b" ", secret, now=1000)
    for now_s in (1301, 699):
        with pytest.raises(WebhookError, match="signed"):
            verify_webhook(headers, body, secret, now=now_s)
