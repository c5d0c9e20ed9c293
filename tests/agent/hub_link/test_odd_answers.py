"""Odd replies, from a hub or from something in its place, make the node wait; they cost no result and end no loop."""

from __future__ import annotations

import gzip
import math
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from computepool.agent.clock import AgentClock
from computepool.agent.hub_link.hub_client import Backoff, HubClient
from computepool.agent.hub_link.identity import Identity, write_private
from computepool.core.errors import ComputePoolError, RateLimited, TooLarge, Unavailable
from computepool.core.money.money import AMOUNT_MAX
from computepool.core.money.pricing import affordable_ms
from computepool.protocol.nodes.nodes import Grant, NextReply, NextRequest
from computepool.protocol.nodes.rules import NodeRules, rules_digest
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import (
    STRANGER,
    Ed25519PrivateKey,
    FakeHub,
    Foreign,
    Outcome,
    command,
    function,
    payload,
    until,
)

HTML = {"content-type": "text/html"}
PAGE = b"<html><body>Please sign in to this network</body></html>"
DAMAGED = gzip.compress(b'{"answers": []}')[:-6] + b"\xff" * 6


async def client_error(hub: FakeHub, answer: Foreign) -> ComputePoolError:
    key = Ed25519PrivateKey.generate()
    identity = Identity(key=key, node_id="n", owner="o", hub_keys={}, hub_url=hub.url)
    client = HubClient((hub.url,), clock=AgentClock(), limits=QUICK, identity=identity)
    hub.fault = lambda path: answer
    try:
        with pytest.raises(ComputePoolError) as raised:
            await client.next(NextRequest(boot_id="b"))
    finally:
        await client.close()
    return raised.value


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 405, 407, 418, 500, 502, 507, 511])
async def test_a_reply_that_is_not_from_a_hub_counts_as_unreachable(hub: FakeHub, status: int) -> None:
    assert type(await client_error(hub, (status, HTML, PAGE))) is Unavailable


@pytest.mark.parametrize(("status", "kind"), [(413, TooLarge), (429, RateLimited)])
async def test_limits_of_a_proxy_are_respected(hub: FakeHub, status: int, kind: type) -> None:
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
async def test_a_reply_with_odd_headers_counts_as_unreachable(
    hub: FakeHub, headers: dict[str, str], status: int
) -> None:
    assert isinstance(await client_error(hub, (status, headers, DAMAGED)), Unavailable)


@pytest.mark.parametrize("asked", [math.nan, math.inf, -math.inf, -5.0, 1e300])
def test_the_wait_that_a_hub_requests_is_bounded(asked: float) -> None:
    delay_s = Backoff(AgentClock(), QUICK).delay_s(Unavailable(retry_after_s=asked))
    assert 0 <= delay_s <= 2 * QUICK.retry_max_s


@pytest.mark.parametrize(
    "answer", [507, (403, HTML, PAGE), (404, HTML, PAGE), (200, {"content-encoding": "gzip"}, DAMAGED)]
)
async def test_reports_are_kept_until_a_hub_can_take_them(
    hub: FakeHub, start_node: StartNode, answer: int | Foreign
) -> None:
    node = await start_node()
    answers = iter([answer] * 3)
    hub.fault = lambda path: next(answers, None) if path == "/complete" else None
    reports = await hub.reports_of(hub.submit(command("true"), [None] * 2))
    assert {report.outcome for report in reports} == {Outcome.SUCCEEDED}
    await until(lambda: not list(node.config.outbox_dir.iterdir()))


async def test_outputs_are_sent_again_when_the_hub_has_room(hub: FakeHub, start_node: StartNode) -> None:
    await start_node()
    full = iter([507, 507])
    hub.fault = lambda path: next(full, None) if path.startswith("/artifacts/") else None
    report = await hub.run(command("sh", "-c", "echo words > outputs/file"))
    assert (report.outcome, [output.name for output in report.outputs]) == (Outcome.SUCCEEDED, ["file"])


@pytest.mark.soak
async def test_a_damaged_reply_ends_no_loop(hub: FakeHub, start_node: StartNode) -> None:
    node = await start_node()
    damaged: dict[str, int] = {}

    def fault(path: str) -> Foreign | None:
        damaged[path] = damaged.get(path, 0) + 1
        return (200, {"content-encoding": "gzip"}, DAMAGED) if damaged[path] <= 2 else None

    hub.fault = fault
    attempts = hub.submit(function(print), [payload("a word"), payload("another")])
    slow = hub.submit(command("sh", "-c", "echo begun; sleep 1"))
    await hub.reports_of([*attempts, *slow])
    assert {"/next", "/complete", "/heartbeat", "/logs"} <= damaged.keys()
    assert not node.task.done()


GRANT = {"attempt_id": "a-1", "attempt_no": 1, "job_id": "a", "lane": "l", "spec": "0" * 64, "account_id": "o"}
REPLY = {"interval_ms": 1, "lease_ms": 2, "fence_ms": 1, "hub_time_ms": 5, "result_deliveries": ["grp_1"]}
ODD_FIELDS = [
    *((Grant, GRANT, {"attempt_id": odd}) for odd in ("../a", "", "a" * 65, "a\nb")),
    *((Grant, GRANT, {"payload_artifact": odd}) for odd in ("/etc/shadow", "../../identity.json", "0" * 63)),
    *((Grant, GRANT, odd) for odd in ({"job_id": "a b"}, {"paid_ms": 10**400}, {"left_ms": 10**400})),
    *((NextReply, REPLY, {name: odd}) for name in list(REPLY)[:4] for odd in (-1, 10**400)),
    (NextReply, REPLY, {"result_deliveries": ["../../x"]}),
]


@pytest.mark.parametrize(("model", "good", "odd"), ODD_FIELDS)
def test_a_reply_that_no_hub_would_send_is_not_parsed(
    model: type[BaseModel], good: dict[str, Any], odd: dict[str, Any]
) -> None:
    model.model_validate(good)
    with pytest.raises(ValidationError):
        model.model_validate(good | odd)


def test_a_grant_may_be_paid_with_all_the_money_there_is() -> None:
    grant = Grant.model_validate(GRANT | {"paid_ms": affordable_ms(1, AMOUNT_MAX)})
    assert Grant.model_validate_json(grant.model_dump_json()) == grant


def without_name(reply: NextReply) -> NextReply:
    grants = [grant.model_copy(update={"attempt_id": "no name"}) for grant in reply.grants]
    return reply.model_copy(update={"grants": grants})


@pytest.mark.parametrize(
    "change",
    [
        *(
            lambda reply, fields=fields: reply.model_copy(update=fields)
            for fields in ({"lease_ms": 10**400}, {"fence_ms": 10**400}, {"interval_ms": -(10**30)})
        ),
        without_name,
    ],
    ids=["lease", "fence", "interval", "attempt"],
)
async def test_nothing_of_an_odd_reply_is_applied_and_the_node_goes_on(
    hub: FakeHub, start_node: StartNode, change: Callable[[NextReply], NextReply]
) -> None:
    node = await start_node()
    odd: list[NextReply] = []

    def tamper(reply: NextReply) -> NextReply:
        odd.append(reply)
        return change(reply) if len(odd) == 1 else reply

    hub.tamper = tamper
    report = await hub.run(command("true"))
    assert odd
    assert report.outcome is Outcome.SUCCEEDED
    assert node.agent.loop.lease.lease_ms == hub.lease_ms
    assert not node.task.done()


class TestAFullDisk:
    """A folder in the place of the file acts like a full or read-only disk, also for root."""

    async def test_reports_that_cannot_be_removed_block_no_others(self, hub: FakeHub, start_node: StartNode) -> None:
        node = await start_node()
        folder = node.config.outbox_dir

        def fault(path: str) -> None:
            if path == "/complete":
                for file in folder.glob("*.json"):
                    if file.is_file():
                        file.unlink()
                        file.mkdir()

        hub.fault = fault
        await hub.run(command("true"))
        await hub.run(command("true"))
        await until(lambda: node.agent._reporter.waiting == 0)
        assert len(list(folder.iterdir())) == 2
        assert not node.task.done()
        for file in folder.iterdir():
            file.rmdir()

    async def test_rules_that_cannot_be_saved_are_applied(self, hub: FakeHub, start_node: StartNode) -> None:
        node = await start_node()
        (node.config.data_dir / "rules.json").mkdir()
        rules = NodeRules(deny_labels=["mining"]).body()
        hub.tamper = lambda reply: reply.model_copy(update={"rules": rules})
        report = await hub.run(command("true").model_copy(update={"labels": ["mining"]}), account=STRANGER)
        assert report.outcome is Outcome.RETURNED
        await until(lambda: hub.polls[-1].rules == rules_digest(rules))
        (node.config.data_dir / "rules.json").rmdir()

    def test_a_private_file_is_written_whole_or_not_at_all(self, tmp_path: Path) -> None:
        path = tmp_path / "identity.json"
        write_private(path, b"old" * 1000)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))  # half of it
        try:
            with pytest.raises(OSError, match="too large"):
                write_private(path, b"new" * 1000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, before)
        assert path.read_bytes() == b"old" * 1000
        assert [file.name for file in tmp_path.iterdir()] == ["identity.json"]
