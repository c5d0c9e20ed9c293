"""Nothing runs that the hub did not sign for this node, and nothing that the owner forbids."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.protocol.jobs.jobs import JobSpec, spec_digest
from computepool.protocol.nodes.nodes import NextReply
from computepool.protocol.tokens import JOB_TYPE, b64, public_text, unb64
from tests.agent.conftest import StartNode
from tests.agent.fake_hub import KID, STRANGER, FakeHub, Outcome, Reason, command, until

pytestmark = pytest.mark.anyio

Forge = Callable[[FakeHub, NextReply], NextReply]
STRANGE_KEY = Ed25519PrivateKey.generate()
HUB_KEY = object()


def token(make: Callable[[FakeHub, NextReply], str | None]) -> Forge:
    return lambda hub, reply: reply.model_copy(update={"token": make(hub, reply)})


def first_grant(**changes: Any) -> Forge:
    return lambda hub, reply: reply.model_copy(
        update={"grants": [reply.grants[0].model_copy(update=changes), *reply.grants[1:]]}
    )


def signed(**changes: Any) -> Forge:
    return token(lambda hub, reply: hub.sign("node_0", reply.grants, **changes))


def claims(key: Any, algorithm: str, headers: dict[str, Any], **changes: Any) -> Forge:
    def make(hub: FakeHub, reply: NextReply) -> str:
        body = jwt.decode(reply.token or "", options={"verify_signature": False}) | changes
        return jwt.encode(body, hub.key if key is HUB_KEY else key, algorithm=algorithm, headers=headers)

    return token(make)


def other_signature(hub: FakeHub, reply: NextReply) -> str:
    head, body, signature = (reply.token or "").split(".")
    raw = bytearray(unb64(signature))
    raw[0] ^= 1
    return f"{head}.{body}.{b64(bytes(raw))}"


def other_claims(hub: FakeHub, reply: NextReply) -> str:
    head, body, signature = (reply.token or "").split(".")
    changed = json.loads(unb64(body)) | {"exp": 2**40}
    return f"{head}.{b64(json.dumps(changed).encode())}.{signature}"


def changed_spec(hub: FakeHub, reply: NextReply) -> NextReply:
    body = command("touch", "/tmp/owned").body()
    return reply.model_copy(update={"specs": dict.fromkeys(reply.specs, body)})


def swapped_spec(hub: FakeHub, reply: NextReply) -> NextReply:
    body = command("touch", "/tmp/owned").body()
    digest = spec_digest(body)
    grants = [grant.model_copy(update={"spec": digest}) for grant in reply.grants]
    return reply.model_copy(update={"specs": {digest: body}, "grants": grants})


def unreadable_spec(hub: FakeHub, reply: NextReply) -> NextReply:
    body = '{"kind":"teleport","name":"x"}'
    digest = spec_digest(body)
    grants = [grant.model_copy(update={"spec": digest}) for grant in reply.grants]
    return reply.model_copy(
        update={"specs": {digest: body}, "grants": grants, "token": hub.sign("node_0", grants)}
    )


FORGERIES: dict[str, Forge] = {
    "no token": token(lambda hub, reply: None),
    "not a token": token(lambda hub, reply: "nonsense"),
    "signed by a stranger": signed(key=STRANGE_KEY),
    "signed by a stranger under another name": signed(key=STRANGE_KEY, kid="k2"),
    "unknown key name": signed(kid="k2"),
    "for another node": signed(node_id="node_9"),
    "expired": signed(issued_s=1_000_000, expires_s=1_000_600),
    "from the future": signed(issued_s=2**40, expires_s=2**40 + 60),
    "broken signature": token(other_signature),
    "claims changed after signing": token(other_claims),
    "symmetric signature with the public key": token(
        lambda hub, reply: (
            claims(public_text(hub.key), "HS256", {"kid": KID, "typ": JOB_TYPE})(hub, reply).token
        )
    ),
    "no signature at all": claims(None, "none", {"kid": KID, "typ": JOB_TYPE}),
    "a node's token instead of a job's": claims(HUB_KEY, "EdDSA", {"kid": KID, "typ": "cp-node+jwt"}),
    "brings its own key": claims(
        HUB_KEY, "EdDSA", {"kid": KID, "typ": JOB_TYPE, "jku": "http://evil.example"}
    ),
    "no grants in it": claims(HUB_KEY, "EdDSA", {"kid": KID, "typ": JOB_TYPE}, grants=None),
    "other grants in it": claims(HUB_KEY, "EdDSA", {"kid": KID, "typ": JOB_TYPE}, grants={"job-x": "0" * 64}),
    "another account": first_grant(account_id="acc_evil"),
    "another payload": first_grant(payload="AAAA"),
    "another lane": first_grant(lane="elsewhere"),
    "another attempt": first_grant(attempt_id="job999999-1"),
    "more cards": first_grant(gpus=[0, 1]),
    "another slice": first_grant(item=7),
    "spec changed": changed_spec,
    "spec swapped": swapped_spec,
    "spec missing": lambda hub, reply: reply.model_copy(update={"specs": {}}),
    "spec unreadable": unreadable_spec,
}


@pytest.mark.parametrize("name", FORGERIES)
async def test_a_forgery_is_refused(hub: FakeHub, start_node: StartNode, ground: Path, name: str) -> None:
    await start_node()
    proof = ground / "proof"
    seen: list[str] = []

    def tamper(reply: NextReply) -> NextReply:
        forged = FORGERIES[name](hub, reply)
        seen.extend(grant.attempt_id for grant in forged.grants)
        return forged

    hub.tamper = tamper
    hub.submit(command("touch", str(proof)))
    await until(lambda: bool(seen) and seen[0] in hub.reports)
    report = hub.reports[seen[0]]
    assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.NODE_ERROR)
    assert (report.error or "").startswith("not run: ")
    hub.tamper = None
    honest = await hub.run(command("true"))
    assert honest.outcome is Outcome.SUCCEEDED
    assert not proof.exists()


async def test_one_forged_grant_does_not_spoil_the_others(hub: FakeHub, start_node: StartNode) -> None:
    await start_node()
    hub.tamper = lambda reply: first_grant(payload="AAAA")(hub, reply)
    attempts = hub.submit(command("true"), [None] * 3)
    await until(lambda: len(hub.reports) == 3)
    outcomes = [hub.reports[attempt].outcome for attempt in attempts]
    assert outcomes == [Outcome.FAILED, Outcome.SUCCEEDED, Outcome.SUCCEEDED]


@pytest.mark.parametrize(
    ("config", "spec", "granted", "refusal"),
    [
        ({"level": "process"}, command("true"), {"account": STRANGER}, f"not trusted the account {STRANGER}"),
        ({"level": "process", "trusted": (STRANGER,)}, command("true"), {"account": STRANGER}, None),
        ({"level": "namespace"}, command("true"), {"account": STRANGER}, None),
        ({"level": "process"}, command("true", isolation="namespace"), {}, "asks for isolation namespace"),
        ({"level": "process"}, command("true"), {"gpus": (0,)}, "this node has 0"),
    ],
    ids=["a stranger", "a trusted stranger", "a stranger in the sandbox", "more isolation", "cards"],
)
async def test_the_owners_rules_hold(
    hub: FakeHub,
    start_node: StartNode,
    config: dict[str, Any],
    spec: JobSpec,
    granted: dict[str, Any],
    refusal: str | None,
) -> None:
    await start_node(**config)
    report = await hub.run(spec, **granted)
    assert report.reason is (Reason.COMPLETED if refusal is None else Reason.NODE_ERROR)
    assert (refusal or "") in (report.error or "")
