"""Nothing runs that the hub did not sign for this node, and nothing that the owner forbids.

Forged tokens are in tests/attacks/test_job_tokens.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.protocol.jobs.jobs import JobSpec, spec_digest
from computepool.protocol.nodes.nodes import NextReply
from tests.agent.conftest import StartNode
from tests.agent.fake_hub import STRANGER, FakeHub, Outcome, Reason, command, until

Forge = Callable[[FakeHub, NextReply], NextReply]


def first_grant(**changes: Any) -> Forge:
    return lambda hub, reply: reply.model_copy(
        update={"grants": [reply.grants[0].model_copy(update=changes), *reply.grants[1:]]}
    )


def signed(**changes: Any) -> Forge:
    return lambda hub, reply: reply.model_copy(update={"token": hub.sign("node_0", reply.grants, **changes)})


def other_spec(body: str, *, signed: bool) -> Forge:
    """The grant names another spec, which comes with it."""

    def forge(hub: FakeHub, reply: NextReply) -> NextReply:
        digest = spec_digest(body)
        grants = [grant.model_copy(update={"spec": digest}) for grant in reply.grants]
        token = hub.sign("node_0", grants) if signed else reply.token
        return reply.model_copy(update={"specs": {digest: body}, "grants": grants, "token": token})

    return forge


PROOF = Path(f"/tmp/computepool-owned-{os.getpid()}")
OWNED = command("touch", str(PROOF)).body()
FORGERIES: dict[str, Forge] = {
    "no token": lambda hub, reply: reply.model_copy(update={"token": None}),
    "signed by a stranger": signed(key=Ed25519PrivateKey.generate()),
    "for another node": signed(node_id="node_9"),
    "another account": first_grant(account_id="acc_evil"),
    "another payload": first_grant(payload="AAAA"),
    "another lane": first_grant(lane="elsewhere"),
    "another attempt": first_grant(attempt_id="job999999-1"),
    "more cards": first_grant(gpus=[0, 1]),
    "another slice": first_grant(item=7),
    "spec changed": lambda hub, reply: reply.model_copy(update={"specs": dict.fromkeys(reply.specs, OWNED)}),
    "spec swapped": other_spec(OWNED, signed=False),
    "spec missing": lambda hub, reply: reply.model_copy(update={"specs": {}}),
    "spec unreadable": other_spec('{"kind":"teleport","name":"x"}', signed=True),
}


@pytest.mark.parametrize("name", FORGERIES)
async def test_a_forged_grant_is_refused_and_an_honest_one_still_runs(
    hub: FakeHub, start_node: StartNode, name: str
) -> None:
    await start_node()
    seen: list[str] = []

    def tamper(reply: NextReply) -> NextReply:
        forged = FORGERIES[name](hub, reply)
        seen.extend(grant.attempt_id for grant in forged.grants)
        return forged

    hub.tamper = tamper
    hub.submit(command("true"))
    await until(lambda: bool(seen))
    report = await hub.report(seen[0])
    assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.NODE_ERROR)
    assert (report.error or "").startswith("not run: ")
    hub.tamper = None
    assert (await hub.run(command("true"))).outcome is Outcome.SUCCEEDED
    assert not PROOF.exists()


async def test_a_forged_grant_does_not_affect_the_others(hub: FakeHub, start_node: StartNode) -> None:
    await start_node()
    hub.tamper = lambda reply: first_grant(payload="AAAA")(hub, reply)
    reports = await hub.reports_of(hub.submit(command("true"), [None] * 3))
    assert [report.outcome for report in reports] == [Outcome.FAILED, Outcome.SUCCEEDED, Outcome.SUCCEEDED]


@pytest.mark.parametrize(
    ("config", "spec", "granted", "refusal"),
    [
        ({"level": "process"}, command("true"), {"account": STRANGER}, f"not trusted the account {STRANGER}"),
        ({"level": "process", "trusted": (STRANGER,)}, command("true"), {"account": STRANGER}, None),
        ({"level": "namespace"}, command("true"), {"account": STRANGER}, None),
        ({"level": "process"}, command("true", isolation="namespace"), {}, "asks for isolation namespace"),
        ({"level": "process"}, command("true"), {"gpus": [0]}, "this node has 0"),
    ],
    ids=["a stranger", "a trusted stranger", "a stranger in the sandbox", "more isolation", "cards"],
)
async def test_a_signed_grant_must_respect_the_nodes_own_limits(
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
