"""What answers in the hub's place, or answers oddly, costs the node a wait: no result, no loop, no file of its owner."""

from __future__ import annotations

import gzip
import math
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from computepool.agent.clock import SystemAgentClock
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

pytestmark = pytest.mark.anyio

HTML = {"content-type": "text/html"}
PAGE = b"<html><body>Please sign in to this network</body></html>"
DAMAGED = gzip.compress(b'{"answers": []}')[:-6] + b"\xff" * 6


async def client_error(hub: FakeHub, answer: Foreign) -> ComputePoolError:
    key = Ed25519PrivateKey.generate()
    identity = Identity(key=key, node_id="n", owner="o", hub_keys={}, hub_url=hub.url)
    client = HubClient((hub.url,), clock=SystemAgentClock(), limits=QUICK, identity=identity)
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
    delay_s = Backoff(SystemAgentClock(), QUICK).delay_s(Unavailable(retry_after_s=asked))
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
    report = await hub.run(command("sh", "-c", "echo words > outputs/file"))
    assert (report.outcome, [output.name for output in report.outputs]) == (Outcome.SUCCEEDED, ["file"])


@pytest.mark.soak
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


class TestWhatAHubMaySay:
    """A reply that no hub of ours would make is not understood; nothing of it is acted on."""

    GRANT = {
        "attempt_id": "a-1",
        "attempt_no": 1,
        "job_id": "a",
        "lane": "l",
        "spec": "0" * 64,
        "account_id": "o",
    }
    REPLY = {"interval_ms": 1, "lease_ms": 2, "fence_ms": 1, "hub_time_ms": 5}

    @pytest.mark.parametrize(
        "said",
        [
            {"attempt_id": "../a"},
            {"attempt_id": ""},
            {"attempt_id": "a" * 65},
            {"attempt_id": "a\nb"},
            {"job_id": "a b"},
            {"payload_artifact": "/etc/shadow"},
            {"payload_artifact": "../../identity.json"},
            {"payload_artifact": "0" * 63},
            {"paid_ms": 10**400},
            {"left_ms": 10**400},
        ],
    )
    def test_grants(self, said: dict[str, Any]) -> None:
        Grant.model_validate(self.GRANT)
        with pytest.raises(ValidationError):
            Grant.model_validate(self.GRANT | said)

    def test_all_the_money_there_is(self) -> None:
        said = Grant.model_validate(self.GRANT | {"paid_ms": affordable_ms(1, AMOUNT_MAX)})
        assert Grant.model_validate_json(said.model_dump_json()) == said

    @pytest.mark.parametrize("name", ["interval_ms", "lease_ms", "fence_ms", "hub_time_ms"])
    def test_times(self, name: str) -> None:
        NextReply.model_validate(self.REPLY)
        for odd in (-1, 10**400):
            with pytest.raises(ValidationError):
                NextReply.model_validate(self.REPLY | {name: odd})

    def test_groups(self) -> None:
        NextReply.model_validate(self.REPLY | {"result_deliveries": ["grp_1"]})
        with pytest.raises(ValidationError):
            NextReply.model_validate(self.REPLY | {"result_deliveries": ["../../x"]})

    @pytest.mark.parametrize(
        "change",
        [{"lease_ms": 10**400}, {"fence_ms": 10**400}, {"interval_ms": -(10**30)}],
    )
    async def test_the_node_goes_on(
        self, hub: FakeHub, start_node: StartNode, change: dict[str, int]
    ) -> None:
        node = await start_node()
        odd: list[NextReply] = []

        def tamper(reply: NextReply) -> NextReply:
            if odd:
                return reply
            odd.append(reply)
            return reply.model_copy(update=change)

        hub.tamper = tamper
        report = await hub.run(command("true"))
        assert odd
        assert report.outcome is Outcome.SUCCEEDED
        assert node.agent.loop.lease.lease_ms == hub.lease_ms

    async def test_an_attempt_without_a_proper_name_is_not_taken(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:
        node = await start_node()
        odd: list[NextReply] = []

        def tamper(reply: NextReply) -> NextReply:
            odd.append(reply)
            if len(odd) > 1:
                return reply
            return reply.model_copy(
                update={
                    "grants": [grant.model_copy(update={"attempt_id": "no name"}) for grant in reply.grants]
                }
            )

        hub.tamper = tamper
        report = await hub.run(command("true"))
        assert report.outcome is Outcome.SUCCEEDED
        assert not node.task.done()


class TestAFullDisk:
    """A folder where the file should be: like a full or read-only disk, it refuses, and for root, too."""

    async def test_reports_that_cannot_be_removed(self, hub: FakeHub, start_node: StartNode) -> None:
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

    async def test_rules_that_cannot_be_kept_hold_all_the_same(
        self, hub: FakeHub, start_node: StartNode
    ) -> None:
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
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))  # Takes the first half of it.
        try:
            with pytest.raises(OSError, match="too large"):
                write_private(path, b"new" * 1000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, before)
        assert path.read_bytes() == b"old" * 1000
        assert [file.name for file in tmp_path.iterdir()] == ["identity.json"]
