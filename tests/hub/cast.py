"""Every kind of caller with objects of their own, for the authorisation tests."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import httpx2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.hub.approvals import rows as approval_rows
from computepool.hub.identity import sign_in
from computepool.hub.money.market import spot_prices
from computepool.hub.money.payouts import payout_rounds
from computepool.hub.snapshot import take
from computepool.protocol.tokens import b64, public_text
from computepool.testing.hub import HubDouble
from computepool.testing.node import PROFILE, NodeDouble
from tests.hub.money.payouts.earning import LEAST, earn
from tests.hub.submitting import submit

DATA = b"what sam uploaded"
DIGEST = hashlib.sha256(DATA).hexdigest()

#: What the hub stores of a version of a volume: it does not look into the artifacts.
VERSION = {"manifest": DIGEST, "content": DIGEST, "packs": [], "size": 17, "files": 1}


@dataclass
class Cast:
    """`sam` owns jobs, groups, keys and artifacts; `pia` owns the node that works for him."""

    hub: HubDouble
    callers: dict[str, httpx2.AsyncClient] = field(default_factory=dict)
    done_job: str = ""  #: sam's, finished
    held_job: str = ""  #: sam's, held by pia's node, with sam's artifact as input
    pias_node: str = ""
    node: NodeDouble | None = None

    @property
    def sam(self) -> httpx2.AsyncClient:
        return self.callers["submitter"]

    @property
    def pia(self) -> httpx2.AsyncClient:
        return self.callers["provider"]

    async def new_job(self) -> str:
        return (await submit(self.sam, needs={"cores": 1000}))[0]

    async def new_group(self) -> str:
        return str((await self.sam.post("/groups", json={"name": "g"})).json()["id"])

    async def new_key(self, **fields: object) -> tuple[str, str]:
        made = (await self.sam.post("/keys", json={"name": "k", **fields})).json()
        return made["id"], made["key"]

    async def stand_in(self, caller: str) -> httpx2.AsyncClient:
        """Another caller of the same kind, who may lose their credentials."""
        roles = {
            "submitter": "submitter",
            "other_submitter": "submitter",
            "provider": "provider",
            "other_provider": "provider",
            "admin": "admin",
        }
        if caller not in roles:
            return self.callers[caller]
        return await self.hub.account(f"a{self.hub.hub.clock.entropy(8).hex()}", roles[caller])

    async def new_account(self) -> str:
        name = f"a{self.hub.hub.clock.entropy(8).hex()}"
        return str((await self.hub.admin.post("/accounts", json={"name": name})).json()["id"])

    async def new_approval(self) -> str:
        """A request of another administrator."""
        hub = self.hub.hub
        other = (await (await self.stand_in("admin")).get("/me")).json()
        request = {"account": "admin", "amount": 1}
        return await hub.store.write(
            lambda tx: approval_rows.ask(tx, hub.clock, other["id"], kind=approval_rows.TOP_UP, request=request)
        )

    async def new_payout(self, *, listed: bool = False) -> str:
        """A payout of pia's that waits for an administrator; with `listed`, one on the operator's list."""
        answer = await self.pia.post("/payouts", json={"amount": LEAST, "upi": "asha@okaxis"})
        payout_id = str(answer.json()["id"])
        if listed:
            await self.hub.admin.post(f"/payouts/{payout_id}/approve")
            await payout_rounds.run(self.hub.hub)
        return payout_id

    async def new_node(self, owner: httpx2.AsyncClient) -> NodeDouble:
        return await self.hub.node(owner, cores=0.001, name="idle")

    async def new_artifact(self) -> str:
        data = self.hub.hub.clock.entropy(8)
        return await upload(self.sam, data)

    async def new_volume(self) -> str:
        """A volume of sam's with one version."""
        name = f"v{self.hub.hub.clock.entropy(8).hex()}"
        await upload(self.sam, DATA)
        await self.sam.post("/volumes", json={"name": name})
        await self.sam.post(f"/volumes/{name}/versions", json={"parent": 0, **VERSION, "content": "0" * 64})
        return name

    async def signin_code(self) -> str:
        me = (await self.sam.get("/me")).json()["id"]
        hub = self.hub.hub
        code, _ = await hub.store.write(
            lambda tx: sign_in.issue_code(tx, take(hub), purpose="signin", account_id=me, lifetime_s=60)
        )
        return code

    async def registration(self) -> dict[str, object]:
        code = (await self.pia.post("/nodes/codes")).json()["code"]
        key = Ed25519PrivateKey.generate()
        proof = b64(key.sign(code.encode()))
        return {"code": code, "public_key": public_text(key), "proof": proof, "protocol": 1, "profile": PROFILE}


async def upload(client: httpx2.AsyncClient, data: bytes, **params: object) -> str:
    digest = hashlib.sha256(data).hexdigest()
    answer = await client.put(f"/artifacts/{digest}", params={"size": len(data), **params}, content=data)
    assert answer.status_code == 200, answer.text
    assert answer.json()["complete"]
    return digest


async def assemble(hub: HubDouble) -> Cast:
    cast = Cast(hub)
    cast.callers = {
        "anonymous": hub.client(),
        "submitter": await hub.account("sam", "submitter"),
        "other_submitter": await hub.account("olga", "submitter"),
        "provider": await hub.account("pia", "provider"),
        "other_provider": await hub.account("otto", "provider"),
        "admin": hub.admin,
    }
    await _add_nodes(cast)
    await spot_prices.tick(hub.hub)  # so that there is a past price
    for caller in ("submitter", "other_submitter", "provider", "other_provider", "admin"):
        await earn(hub, (await cast.callers[caller].get("/me")).json()["id"], 1_000 * LEAST)
    await _add_dead_credentials(cast)
    return cast


async def _add_nodes(cast: Cast) -> None:
    hub, callers = cast.hub, cast.callers
    assert await upload(cast.sam, DATA) == DIGEST
    cast.node = await hub.node(cast.pia)
    cast.pias_node = cast.node.node_id
    [cast.done_job] = await submit(cast.sam)
    [grant] = await cast.node.take()
    await cast.node.report(grant.attempt_id)
    inputs = [{"name": "in", "digest": DIGEST, "size": len(DATA)}]
    [cast.held_job] = await submit(cast.sam, spec={"inputs": inputs})
    await cast.node.take()
    other = await hub.node(callers["other_provider"], name="ottos", cores=0.001)
    revoked = await hub.node(callers["other_provider"], name="gone", cores=0.001)
    (await callers["other_provider"].post(f"/nodes/{revoked.node_id}/revoke")).raise_for_status()
    callers |= {"node": cast.node.client, "other_node": other.client, "revoked_node": revoked.client}


async def _add_dead_credentials(cast: Cast) -> None:
    key_id, key = await cast.new_key()
    (await cast.sam.delete(f"/keys/{key_id}")).raise_for_status()
    cast.callers["revoked_key"] = cast.hub.client(key)
    _, key = await cast.new_key(expires_in_s=0.001)
    expired = cast.callers["expired_key"] = cast.hub.client(key)
    for _ in range(1_000):
        if (await expired.get("/me")).status_code == 401:
            return
    raise AssertionError("the key does not expire")
