"""A node without a machine: it uses the real protocol with a real key, and runs nothing."""

from __future__ import annotations

from typing import Any

import httpx2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.core.jobs.lifecycle import Outcome, Reason
from computepool.hub.clock import Clock
from computepool.hub.identity.authenticator import HUB_AUDIENCE
from computepool.protocol.base import PROTOCOL
from computepool.protocol.hub_keys import rekey_text
from computepool.protocol.jobs.checkpoints import CheckpointReport
from computepool.protocol.nodes.hardware import HardwareReport
from computepool.protocol.nodes.nodes import CompleteRequest, Grant, NextReply, Report, signed_text
from computepool.protocol.nodes.profile import Profile
from computepool.protocol.tokens import b64, public_text, sign_node_token

PROFILE = {
    "name": "test-node",
    "cores": 4,
    "ram_mb": 8192,
    "disk_mb": 100_000,
    "python": "3.11",
    "isolation": "namespace",
}


class NodeDouble:
    def __init__(self, client: httpx2.AsyncClient, clock: Clock) -> None:
        self.client = client
        self.clock = clock
        self.key = Ed25519PrivateKey.generate()
        self.node_id = ""
        self.boot_id = clock.entropy(8).hex()
        self.profile = Profile.model_validate(PROFILE)
        self.holding: dict[str, Grant] = {}
        self.last: NextReply | None = None
        self.measurement = ""  #: the id of the measurement that the hub requested
        self._introduced = False

    async def register(self, code: str, **profile: Any) -> None:
        self.profile = Profile.model_validate(PROFILE | profile)
        answer = await self.client.post(
            "/nodes/register",
            json={
                "code": code,
                "public_key": public_text(self.key),
                "proof": b64(self.key.sign(code.encode())),
                "protocol": PROTOCOL,
                "profile": self.profile.model_dump(mode="json"),
            },
        )
        answer.raise_for_status()
        self.node_id = answer.json()["node_id"]
        self.sign_in()

    def sign_in(self) -> None:
        token = sign_node_token(self.node_id, key=self.key, hub=HUB_AUDIENCE, now_s=self.clock.now_ms() // 1000)
        self.client.headers["Authorization"] = f"Bearer {token}"

    async def rekey(self, *, signer: Ed25519PrivateKey | None = None) -> httpx2.Response:
        """Request a new key, and use it if the hub accepts it."""
        new = Ed25519PrivateKey.generate()
        text = rekey_text(self.node_id, public_text(new))
        sent = {
            "public_key": public_text(new),
            "proof": b64(new.sign(text)),
            "endorsement": b64((signer or self.key).sign(text)),
        }
        answer = await self.client.post("/nodes/rekey", json=sent)
        if answer.is_success:
            self.key = new
            self.sign_in()
        return answer

    def restart(self) -> None:
        """Forget all attempts, like an agent that was killed and started again."""
        self.boot_id = self.clock.entropy(8).hex()
        self.holding.clear()
        self._introduced = False

    async def poll(self, *, wait_ms: int = 5_000, path: str = "/next", **given: Any) -> NextReply:
        body = {"boot_id": self.boot_id, "holding": sorted(self.holding), "wait_ms": wait_ms, **given}
        if not self._introduced:
            body["profile"] = self.profile.model_dump(mode="json")
        answer = await self.client.post(path, json=body)
        answer.raise_for_status()
        reply = NextReply.model_validate(answer.json())
        self._introduced = not reply.reregister
        for grant in reply.grants:
            self.holding[grant.attempt_id] = grant
        for attempt_id in reply.cancel:
            self.holding.pop(attempt_id, None)
        self.last = reply
        self.measurement = reply.measure or self.measurement
        return reply

    async def report_measurement(self, **given: Any) -> httpx2.Response:
        """Report a measurement, by default the requested one."""
        report = HardwareReport.model_validate({"id": self.measurement, **given, "signature": "A" * 86})
        signed = report.model_copy(update={"signature": b64(self.key.sign(report.signed_text()))})
        return await self.client.post("/hardware", json=signed.model_dump(mode="json"))

    async def checkpoint(self, attempt_id: str, **given: Any) -> httpx2.Response:
        """Report a checkpoint of an attempt, by default without files."""
        fields = {"seq": 1, "ran_ms": 5, **given, "attempt_id": attempt_id, "signature": "A" * 86}
        report = CheckpointReport.model_validate(fields)
        signed = report.model_copy(update={"signature": b64(self.key.sign(report.signed_text()))})
        return await self.client.post("/checkpoint", json=signed.model_dump(mode="json"))

    async def take(self, count: int = 1) -> list[Grant]:
        """Poll until this many attempts are held."""
        taken: list[Grant] = []
        for _ in range(1_000):
            if len(taken) >= count:
                return taken
            taken += (await self.poll()).grants
        raise AssertionError(f"only {len(taken)} of {count} attempts were granted")

    async def report(self, attempt_id: str, **fields: Any) -> str:
        """Report an attempt's outcome, by default success. Returns the hub's verdict."""
        return (await self.report_all([self.make_report(attempt_id, **fields)]))[0]

    @staticmethod
    def make_report(attempt_id: str, **fields: Any) -> Report:
        given: dict[str, Any] = {"outcome": Outcome.SUCCEEDED, "reason": Reason.COMPLETED, "exit_code": 0, "ran_ms": 5}
        return Report(attempt_id=attempt_id, **(given | fields))

    async def report_all(self, reports: list[Report], **extra: Any) -> list[str]:
        answer = await self.complete(reports, **extra)
        answer.raise_for_status()
        for report in reports:
            self.holding.pop(report.attempt_id, None)
        return [given["verdict"] for given in answer.json()["answers"]]

    async def complete(self, reports: list[Report], **extra: Any) -> httpx2.Response:
        text = signed_text(reports)
        request = CompleteRequest(reports=reports, signature=b64(self.key.sign(text)), **extra)
        return await self.client.post("/complete", content=request.model_dump_json())
