"""Secrets at the hub: what may be stored, which node may fetch it, and that nothing else shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from computepool.core.jobs.lifecycle import Outcome, Reason
from computepool.hub.identity.signing import rotation
from computepool.hub.secrets import encryption
from computepool.protocol.nodes.nodes import Grant
from computepool.protocol.sealing import public_text, unseal_text
from computepool.protocol.secrets import SecretBundle, bundle_about, signed_text
from computepool.protocol.tokens import b64
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.submitting import body, job, submit
from tests.hub.working import granted

VALUE = "correct-horse-battery-staple"
TOKEN = {"secrets": {"TOKEN": "TOKEN"}}
hub = hub_fixture(on=BOTH, secrets_max=2, secret_bytes_max=100)


async def people(hub: HubDouble) -> tuple[httpx2.AsyncClient, NodeDouble]:
    """Sam with a secret and a node."""
    sam = await hub.account("sam", "submitter", "provider")
    assert (await sam.put("/secrets/TOKEN", json={"value": VALUE})).status_code == 200
    return sam, await hub.node(sam, name="sams")


async def ask(node: NodeDouble, grant: Grant, *, signer: NodeDouble | None = None) -> tuple[httpx2.Response, Any]:
    """Fetch the secrets of an attempt as an agent does; the bundle, if there is one."""
    key = X25519PrivateKey.generate()
    seal_to = public_text(key)
    signature = b64((signer or node).key.sign(signed_text(grant.attempt_id, seal_to)))
    asked = {"seal_to": seal_to, "signature": signature}
    answer = await node.client.post(f"/attempts/{grant.attempt_id}/secrets", json=asked)
    assert VALUE not in answer.text
    if not answer.is_success or not answer.json()["sealed"]:
        return answer, None
    about = bundle_about(grant.job_id, grant.attempt_id)
    text = unseal_text(answer.json()["sealed"], find_key=lambda _: key, about=about)
    return answer, SecretBundle.model_validate_json(text)


async def test_a_job_gets_the_value_of_the_moment_it_starts(hub: HubDouble) -> None:
    sam, node = await people(hub)
    spec = {"secrets": {"TOKEN": "TOKEN", "AGAIN": "TOKEN"}, "registry_secret": "TOKEN"}
    [job_id] = await submit(sam, spec=spec)
    assert (await job(sam, job_id))["spec"]["secrets"] == spec["secrets"]
    [grant] = await node.take()
    _, bundle = await ask(node, grant)
    assert bundle == SecretBundle(env={"TOKEN": VALUE, "AGAIN": VALUE}, registry=VALUE)
    changed = (await sam.put("/secrets/TOKEN", json={"value": "x1"})).json()
    assert changed == (await sam.get("/secrets")).json()["secrets"][0]
    assert changed.keys() == {"name", "size", "created_at_ms", "changed_at_ms"}
    assert (await ask(node, grant))[1].env == {"TOKEN": "x1", "AGAIN": "x1"}
    assert (await sam.delete("/secrets/TOKEN")).status_code == 204
    answer, bundle = await ask(node, grant)
    assert (answer.json()["missing"], bundle) == (["TOKEN"], None)
    assert await node.report(grant.attempt_id, outcome=Outcome.FAILED, reason=Reason.BAD_JOB, exit_code=None)
    assert (await ask(node, grant))[0].status_code == 409
    events = (await sam.get("/events", params={"newest": "true"})).json()["events"]
    seen = [event["action"] for event in events if event["action"].startswith("secret.")]
    assert seen == ["secret.removed", "secret.changed", "secret.used", "secret.created"]
    used = next(event for event in events if event["action"] == "secret.used")
    assert (used["node_id"], used["job_id"], used["data"]) == (node.node_id, job_id, {"names": ["TOKEN"]})
    assert VALUE not in json.dumps(events)


async def test_only_the_node_that_runs_the_job_can_fetch_it(hub: HubDouble) -> None:
    sam, node = await people(hub)
    other = await hub.node(sam, name="other", cores=1)
    await submit(sam, spec=TOKEN, needs={"host": node.node_id})
    await submit(sam, needs={"host": node.node_id})
    with_secret, without = await node.take(2)
    assert (await ask(other, with_secret))[0].status_code == 404
    assert (await ask(node, with_secret, signer=other))[0].status_code == 403
    assert (await ask(node, without))[0].status_code == 404
    assert (await ask(node, with_secret))[1].env == {"TOKEN": VALUE}


async def test_nodes_of_others_get_no_such_job_unless_their_owner_was_named(hub: HubDouble) -> None:
    sam, own = await people(hub)
    await sam.patch(f"/nodes/{own.node_id}", json={"state": "paused"})
    await sam.post(f"/nodes/{own.node_id}/state", json={"state": "paused"})
    pia = await hub.account("pia", "provider")
    # Whom an owner trusts says nothing about whom a submitter can trust.
    pias = await hub.node(pia, name="pias", trusted=["*"])
    [waiting] = await submit(sam, spec=TOKEN)
    why = (await sam.get(f"/jobs/{waiting}/why")).json()
    assert "may not see its secrets" in why["sentence"], why
    assert any(gate["gate"] == "secrets" for gate in why["gates"])
    [named] = await submit(sam, spec={**TOKEN, "secret_owners": ["pia"]})
    [grant] = await pias.take()
    assert grant.job_id == named
    assert (await ask(pias, grant))[1].env == {"TOKEN": VALUE}
    pia_id = (await pia.get("/me")).json()["id"]
    assert (await job(sam, named))["spec"]["secret_owners"] == [pia_id]
    [anywhere] = await submit(sam, spec={**TOKEN, "secrets_anywhere": True})
    [grant] = await pias.take()
    assert grant.job_id == anywhere
    assert (await ask(pias, grant))[1].env == {"TOKEN": VALUE}
    quoted = {"timeout_s": 60, "secret_owners": []}
    assert (await sam.post("/quotes", json=quoted)).json()["nodes_now"] == 0


async def test_a_running_job_cannot_name_secrets(hub: HubDouble) -> None:
    """Its node could invent the request."""
    sam, node = await people(hub)
    await submit(sam, spec={"children": 3, **TOKEN})
    [grant] = await node.take()
    for spec in (TOKEN, {**TOKEN, "secrets_anywhere": True}, {"registry_secret": "TOKEN"}):
        request = {"seq": 1, "request": body(spec=spec)}
        answer = await node.client.post(f"/attempts/{grant.attempt_id}/jobs", json=request)
        assert answer.status_code == 403, answer.text
        assert "cannot submit jobs with secrets" in answer.json()["detail"]


async def test_bad_input_is_refused_in_one_sentence(hub: HubDouble) -> None:
    sam, _ = await people(hub)
    too_long = await sam.put("/secrets/LONG", json={"value": "é" * 51})
    assert (too_long.status_code, too_long.json()["code"]) == (413, "too_large")
    assert (await sam.put("/secrets/SECOND", json={"value": "é" * 50})).json()["size"] == 100
    assert (await sam.put("/secrets/THIRD", json={"value": "1"})).status_code == 413
    assert (await sam.put("/secrets/SECOND", json={"value": "2"})).status_code == 200
    for name, value in (
        ("9A", "x"),
        ("A-B", "x"),
        ("A" * 129, "x"),
        ("A", ""),
        ("A", "s3cr\0et"),
        ("A", 5),
        ("A", "\ud800"),
    ):
        answer = await sam.put(f"/secrets/{name}", content=json.dumps({"value": value}))
        assert answer.status_code == 422, (name, value, answer.text)
        assert "s3cr" not in answer.text
    assert (await sam.delete("/secrets/NONE")).status_code == 404
    for spec, sentence in (
        ({"secrets": {"A": "NONE"}}, "You have no secret NONE"),
        ({**TOKEN, "env": {"TOKEN": "x"}}, "the variable TOKEN is also in env"),
        ({"secrets_anywhere": True}, "names no secret"),
        ({**TOKEN, "secret_owners": ["nobody"]}, "There is no account 'nobody'"),
        ({"secrets": {"A=B": "TOKEN"}}, "secrets"),
    ):
        answer = await sam.post("/jobs", json=body(spec=spec))
        assert answer.status_code in (404, 422), answer.text
        assert sentence in answer.json()["detail"], answer.text
    assert (await sam.get("/jobs")).json()["jobs"] == []


async def test_a_key_that_only_submits_cannot_change_secrets(hub: HubDouble) -> None:
    sam, _ = await people(hub)
    key = (await sam.post("/keys", json={"name": "ci", "scopes": ["submit"]})).json()["key"]
    ci = hub.client(key)
    assert (await ci.put("/secrets/TOKEN", json={"value": "mine"})).status_code == 403
    assert (await ci.delete("/secrets/TOKEN")).status_code == 403
    assert len((await ci.get("/secrets")).json()["secrets"]) == 1
    assert (await ci.post("/jobs", json=body(spec=TOKEN))).status_code == 201
    eve = await hub.account("eve", "submitter")
    assert (await eve.get("/secrets")).json()["secrets"] == []
    assert (await eve.delete("/secrets/TOKEN")).status_code == 404
    assert (await eve.post("/jobs", json=body(spec=TOKEN))).status_code == 404


async def test_secrets_follow_the_rotation_of_the_hubs_key(hub: HubDouble, clock: FakeClock) -> None:
    sam, node = await people(hub)
    first = hub.hub.identity.secrets.kid
    assert await encryption.renew(hub.hub) == 0
    await hub.admin.post("/hub/keys/rotate")
    clock.advance(60 * 24 * 3600 * 1000)
    await rotation.tend(hub.hub)  # its key is kept as long as a secret needs it
    assert first in hub.hub.identity.secrets.published.keys
    assert await encryption.renew(hub.hub) == 1
    await rotation.tend(hub.hub)
    assert first in hub.hub.identity.secrets.published.retired
    assert await encryption.renew(hub.hub) == 0
    node.sign_in()
    await submit(sam, spec=TOKEN)
    [grant] = await node.take()
    assert (await ask(node, grant))[1].env == {"TOKEN": VALUE}


async def test_the_database_alone_does_not_reveal_a_secret(tmp_path: Path) -> None:
    async with running_hub(tmp_path, secrets_key="one") as hub:
        sam, node = await people(hub)
        await submit(sam, spec=TOKEN)
        [grant] = await node.take()
        assert (await ask(node, grant))[1].env == {"TOKEN": VALUE}
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]
    async with running_hub(tmp_path, secrets_key="another") as hub:
        node.client = hub.client()
        node.sign_in()
        answer, bundle = await ask(node, grant)
        assert (answer.json()["missing"], bundle) == (["TOKEN"], None)


async def test_runs_that_check_a_result_obey_the_same_rule(hub: HubDouble) -> None:
    sam = await hub.account("sam", "submitter")
    await sam.put("/secrets/TOKEN", json={"value": VALUE})
    nodes = [await hub.node(await hub.account(name, "provider"), name=name) for name in ("eve", "pia", "otto")]
    spec = {**TOKEN, "secret_owners": ["pia", "otto"]}
    [job_id] = await submit(sam, spec=spec, verify="quorum:2")
    ran: list[str] = []
    for _ in range(2):
        node, grant = await granted(nodes)
        assert (await ask(node, grant))[1].env == {"TOKEN": VALUE}
        await node.report(grant.attempt_id)
        ran.append(node.profile.name)
    assert sorted(ran) == ["otto", "pia"]
    assert (await job(sam, job_id))["state"] == "succeeded"
