"""An agent at an older hub, which refuses unknown fields: no work is lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.agent.clock import AgentClock
from computepool.agent.hub_link.hub_client import HubClient
from computepool.agent.hub_link.identity import Identity
from computepool.core.jobs.lifecycle import Outcome, Reason, Verdict
from computepool.protocol.base import PROTOCOL
from computepool.protocol.nodes.nodes import (
    CompleteRequest,
    LoadModel,
    NextRequest,
    RegisterRequest,
    Report,
    RunningAttempt,
    signed_text,
)
from computepool.protocol.nodes.profile import Profile, StatedPlace
from computepool.protocol.tokens import b64, public_text
from tests.agent.conftest import QUICK, StartNode
from tests.agent.fake_hub import CODE, FakeHub, command, function, payload, script, until
from tests.agent.storage.test_checkpoints import COUNTS, SOON, test_function

#: By the paths of the version before, numbers of lists left out.
UNKNOWN = {
    *("profile.place", "profile.fetches_python", "reports.loads", "running.earlier", "move_to", "stopping"),
    *("reports.printed_chars", "logs.seq", "chunks.seq"),
    *(f"running.load.{name}" for name in ("ago_ms", "gpu_percent", "vram_mb")),
}


def paths(said: Any, at: str = "") -> Iterator[str]:
    if isinstance(said, list):
        for number, part in enumerate(said):
            yield from paths(part, f"{at}.{number}")
    elif isinstance(said, dict):
        for name, part in said.items():
            yield f"{at}.{name}"
            yield from paths(part, f"{at}.{name}")


class OlderHub(FakeHub):
    def __init__(self) -> None:
        super().__init__()
        self.refused: list[str] = []

    async def _route(self, scope: Any, path: str, receive: Any) -> tuple[int, bytes]:
        message = await receive()
        while message.get("more_body"):
            more = await receive()
            message = {**more, "body": message["body"] + more["body"]}
        body = message.get("body", b"")
        for found in paths(json.loads(body) if body[:1] == b"{" else None):
            field = found.removeprefix(".")
            if ".".join(part for part in field.split(".") if not part.isdecimal()) in UNKNOWN:
                self.refused.append(field)
                return 422, json.dumps({
                    "title": "bad request", "status": 422, "code": "bad_request", "field": field,
                    "detail": f"{field}: Extra inputs are not permitted",
                }).encode()  # fmt: skip

        async def again() -> Any:
            return message

        return await super()._route(scope, path, again)


@pytest.fixture
async def hub() -> AsyncIterator[OlderHub]:
    hub = OlderHub()
    await hub.start()
    yield hub
    await hub.stop()


@pytest.mark.soak
async def test_an_older_hub_gets_progress_and_the_result(hub: OlderHub, start_node: StartNode) -> None:
    await start_node()
    [attempt_id] = hub.submit(command("sleep", "5"))
    await until(lambda: any(run.load for poll in hub.polls for run in poll.running))
    assert (await hub.report(attempt_id)).outcome is Outcome.SUCCEEDED
    assert any(field.startswith("running.") for field in hub.refused)


@pytest.mark.soak
async def test_an_older_hub_gets_the_digest_of_the_output_in_a_signed_report(
    hub: OlderHub, start_node: StartNode
) -> None:
    await start_node()
    report = await hub.run(command("sh", "-c", "echo one; sleep 3; echo two"))
    assert (report.outcome, report.printed_chars) == (Outcome.SUCCEEDED, None)
    assert report.printed == hashlib.sha256(b"one\ntwo\n").hexdigest()
    assert {field.rpartition(".")[2] for field in hub.refused} >= {"seq", "printed_chars"}


@pytest.mark.soak
async def test_an_older_hub_gets_checkpoints_and_a_move_in_the_report(hub: OlderHub, start_node: StartNode) -> None:
    await start_node(limits=SOON)
    spec = script(COUNTS, checkpoints=True)
    saves = hub.submit(spec)[0]
    await until(lambda: hub.checkpoints)
    assert (hub.checkpoints[0].attempt_id, hub.refused) == (saves, [])
    hub.stop_attempt(saves)
    moves = await hub.run(function(test_function, moves=True), payload(3))
    assert (moves.outcome, moves.move_to) == (Outcome.MOVED, "the other host")
    assert "move_to" in hub.refused
    assert hub.checkpoints[-1].move_to is None


async def test_requests_are_sent_again_without_the_unknown_fields(hub: OlderHub) -> None:
    clock = AgentClock()
    client = HubClient((hub.url,), clock=clock, limits=QUICK)
    key = Ed25519PrivateKey.generate()
    place = StatedPlace(lat=48.1, lon=11.6)
    profile = Profile(
        name="n",
        cores=1,
        ram_mb=1,
        disk_mb=1,
        python="3.12",
        fetches_python=["3.13"],
        place=place,
        properties={"place": "attic"},
    )
    proof = b64(key.sign(CODE.encode()))
    request = RegisterRequest(code=CODE, public_key=public_text(key), proof=proof, protocol=PROTOCOL, profile=profile)
    enrolled = await client.register(request)
    identity = Identity(key=key, node_id=enrolled.node_id, owner="o", hub_keys={}, hub_url=hub.url)
    client.identify(identity)
    load = LoadModel(cpu_percent=1, rss_mb=1, processes=1, ago_ms=9, gpu_percent=1, vram_mb=1)
    running = RunningAttempt(attempt_id="a-1", progress=0.5, load=load, earlier=[load])
    await client.heartbeat(NextRequest(boot_id="b", running=[running], profile=profile))
    [beat] = hub.beats
    assert beat.running[0].load == LoadModel(cpu_percent=1, rss_mb=1, processes=1)
    assert (beat.running[0].progress, beat.profile and beat.profile.properties) == (0.5, {"place": "attic"})
    report = Report(
        attempt_id="a-1", outcome=Outcome.SUCCEEDED, reason=Reason.COMPLETED, exit_code=0, ran_ms=7, loads=[load]
    )
    told = CompleteRequest(reports=[report], signature=identity.sign(signed_text([report])))
    reply = await client.complete(told.model_dump_json(exclude_defaults=True).encode())
    assert [answer.verdict for answer in reply.answers] == [Verdict.ACCEPTED]
    assert hub.reports["a-1"] == report.model_copy(update={"loads": []})
    assert {field.split(".")[0] for field in hub.refused} == {"profile", "running", "reports"}
    await client.close()
