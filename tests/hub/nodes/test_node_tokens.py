"""Tokens that a node did not sign, or signed with wrong claims, are refused and change nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from computepool.protocol.tokens import NODE_TYPE, TOKEN_MAX, b64, public_text, sign_node_token
from computepool.testing.hub import HubDouble, running_hub
from computepool.testing.node import NodeDouble
from tests.hub.submitting import state, submit
from tests.hub.untouched import untouched

DROP = object()


@dataclass
class Forge:
    node: NodeDouble
    other: NodeDouble
    job_token: str
    now_s: int

    def claims(self, **changes: Any) -> dict[str, Any]:
        usual = {
            "iss": self.node.node_id,
            "sub": self.node.node_id,
            "aud": "computepool",
            "iat": self.now_s,
            "nbf": self.now_s,
            "exp": self.now_s + 900,
        }
        return {name: value for name, value in (usual | changes).items() if value is not DROP}

    def own(self, *, headers: dict[str, Any] | None = None, **changes: Any) -> str:
        """Correctly signed by the node, with wrong claims."""
        found = {"typ": NODE_TYPE} | (headers or {})
        return self.raw(found | {"alg": "EdDSA"}, self.claims(**changes), self.node.key.sign)

    def raw(self, header: Any, claims: Any, sign: Callable[[bytes], bytes]) -> str:
        """Encoded by hand, because libraries refuse most of these."""
        signed = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims).encode())}"
        return f"{signed}.{b64(sign(signed.encode()))}"

    def by(self, key: Any, algorithm: str, **headers: Any) -> str:
        return jwt.encode(self.claims(), key, algorithm=algorithm, headers={"typ": NODE_TYPE, **headers})

    def good(self) -> str:
        return sign_node_token(self.node.node_id, key=self.node.key, hub="computepool", now_s=self.now_s)

    def unsigned(self, algorithm: str) -> str:
        return self.raw({"alg": algorithm, "typ": NODE_TYPE}, self.claims(), lambda _: b"")

    def mac(self, algorithm: str, secret: bytes) -> str:
        """A signature made with the public key as if it were a secret."""
        header = {"alg": algorithm, "typ": NODE_TYPE}
        return self.raw(header, self.claims(), lambda text: _hmac(algorithm).sign(text, secret))

    def public_bytes(self, format_: PublicFormat, encoding: Encoding) -> bytes:
        return self.node.key.public_key().public_bytes(encoding, format_)

    def spelled(self, *, claims: str, header: str) -> str:
        """Signed by the node, with a field at the front that occurs twice."""
        texts = ({"alg": "EdDSA", "typ": NODE_TYPE}, self.claims())
        parts = [
            b64((front + json.dumps(text)[1:]).encode()) for front, text in zip((header, claims), texts, strict=True)
        ]
        signed = ".".join(parts)
        return f"{signed}.{b64(self.node.key.sign(signed.encode()))}"

    def deep(self) -> str:
        parts = [b64(json.dumps({"alg": "EdDSA", "typ": NODE_TYPE}).encode()), b64(b"[" * 2_500)]
        return f"{'.'.join(parts)}.{b64(b'x')}"

    def tampered(self, **changes: Any) -> str:
        header, _, signature = self.good().split(".")
        return f"{header}.{b64(json.dumps(self.claims(**changes)).encode())}.{signature}"


def _same_bits(last: str) -> str:
    """The last of 86 characters carries two bits, so sixteen spellings mean the same."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return alphabet[alphabet.index(last) ^ 1]


def _hmac(algorithm: str) -> Any:
    # The algorithm object itself: `jwt.encode` would notice that the secret is a public key.
    return jwt.get_algorithm_by_name(algorithm)


_STRANGER = Ed25519PrivateKey.generate()
_JWK = {"kty": "OKP", "crv": "Ed25519", "x": public_text(_STRANGER)}

FORGED: dict[str, Callable[[Forge], str]] = {
    "nothing": lambda f: "",
    "one word": lambda f: "garbage",
    "dots alone": lambda f: "..",
    "four parts": lambda f: f"{f.good()}.{b64(b'x')}",
    "cut short": lambda f: f.good()[:-10],
    "without signature": lambda f: f.good().rpartition(".")[0] + ".",
    "signature changed": lambda f: f.good()[:-6] + ("AAAAAA" if f.good()[-6:] != "AAAAAA" else "BBBBBB"),
    "subject changed": lambda f: f.tampered(sub=f.other.node_id),
    "end changed": lambda f: f.tampered(exp=f.now_s + 901),
    "not base64": lambda f: "!!!.???.***",
    "header is a list": lambda f: f.raw([1], f.claims(), f.node.key.sign),
    "header is not JSON": lambda f: f"{b64(b'{')}.{b64(b'{}')}.{b64(b'x')}",
    "claims are a list": lambda f: f.raw({"alg": "EdDSA", "typ": NODE_TYPE}, [], f.node.key.sign),
    "claims are not JSON": lambda f: f"{f.good().split('.')[0]}.{b64(b'nope')}.{b64(b'x')}",
    "alg none": lambda f: f.unsigned("none"),
    "alg None": lambda f: f.unsigned("None"),
    "alg NONE": lambda f: f.unsigned("NONE"),
    "alg empty": lambda f: f.unsigned(""),
    "alg a number": lambda f: f.raw({"alg": 1, "typ": NODE_TYPE}, f.claims(), f.node.key.sign),
    "HS256 with the public key as text": lambda f: f.mac("HS256", public_text(f.node.key).encode()),
    "HS256 with the public key's bytes": lambda f: f.mac("HS256", f.public_bytes(PublicFormat.Raw, Encoding.Raw)),
    "HS256 with the public key in PEM": lambda f: f.mac(
        "HS256", f.public_bytes(PublicFormat.SubjectPublicKeyInfo, Encoding.PEM)
    ),
    "HS512 with the public key": lambda f: f.mac("HS512", public_text(f.node.key).encode()),
    "RS256": lambda f: f.by(rsa.generate_private_key(65537, 2048), "RS256"),
    "ES256": lambda f: f.by(ec.generate_private_key(ec.SECP256R1()), "ES256"),
    "Ed448": lambda f: f.by(Ed448PrivateKey.generate(), "EdDSA"),
    "a stranger's key": lambda f: f.by(_STRANGER, "EdDSA"),
    "another node's key": lambda f: f.by(f.other.key, "EdDSA"),
    "brings its own key": lambda f: f.by(_STRANGER, "EdDSA", jwk=_JWK),
    "points to its own key": lambda f: f.by(_STRANGER, "EdDSA", jku="https://evil.test/keys"),
    "own key, and jwk": lambda f: f.own(headers={"jwk": _JWK}),
    "own key, and jku": lambda f: f.own(headers={"jku": "https://evil.test/keys"}),
    "own key, and x5u": lambda f: f.own(headers={"x5u": "https://evil.test/cert"}),
    "own key, and x5c": lambda f: f.own(headers={"x5c": ["MIIB"]}),
    "own key, and crit": lambda f: f.own(headers={"crit": ["exp"]}),
    "own key, and unencoded": lambda f: f.own(headers={"b64": False}),
    "type of a job token": lambda f: f.own(headers={"typ": "cp-job+jwt"}),
    "type JWT": lambda f: f.own(headers={"typ": "JWT"}),
    "type a list": lambda f: f.own(headers={"typ": [NODE_TYPE]}),
    "the hub's job token": lambda f: f.job_token,
    "for another hub": lambda f: f.own(aud="elsewhere"),
    "for nobody": lambda f: f.own(aud=DROP),
    "audience a number": lambda f: f.own(aud=7),
    "without subject": lambda f: f.own(sub=DROP),
    "subject a number": lambda f: f.own(sub=7),
    "subject a list": lambda f: f.own(sub=[f.node.node_id]),
    "subject unknown": lambda f: f.own(sub="node_00000000000000000000000000"),
    "subject with NUL": lambda f: f.own(sub="node\x00"),
    "subject half a character": lambda f: f.own(sub="node\ud800"),
    "subject another node": lambda f: f.own(sub=f.other.node_id),
    "without issuer": lambda f: f.own(iss=DROP),
    "without end": lambda f: f.own(exp=DROP),
    "without beginning": lambda f: f.own(iat=DROP),
    "expired": lambda f: f.own(iat=f.now_s - 2000, exp=f.now_s - 1100),
    "from the far future": lambda f: f.own(iat=f.now_s + 86400, exp=f.now_s + 86400 + 900),
    "lives too long": lambda f: f.own(exp=f.now_s + 86400),
    "lives for ever": lambda f: f.own(exp=2**62),
    "beyond all numbers": lambda f: f.own(iat=10**400, exp=10**400),
    "begins in ancient times": lambda f: f.own(iat=-(10**30)),
    "end a text": lambda f: f.own(exp=str(f.now_s + 900)),
    "end a fraction": lambda f: f.own(exp=f.now_s + 0.5),
    "end infinite": lambda f: f.own(exp=float("inf")),
    "end nothing": lambda f: f.own(exp=None),
    "beginning true": lambda f: f.own(iat=True, exp=f.now_s + 60),
    "end true": lambda f: f.own(exp=True),
    "begins in the future": lambda f: f.own(nbf=f.now_s + 3600),
    "beginning a text": lambda f: f.own(nbf="0"),
    "issued by another node": lambda f: f.own(iss=f.other.node_id),
    "issued by the hub": lambda f: f.own(iss="computepool"),
    "issuer a list": lambda f: f.own(iss=[f.node.node_id]),
    "own key, and a name for it": lambda f: f.own(headers={"kid": "../../keys"}),
    "own key, and a thumbprint": lambda f: f.own(headers={"x5t": "AAAA"}),
    "own key, and something new": lambda f: f.own(headers={"zip": "DEF"}),
    "a claim twice": lambda f: f.spelled(claims=f'{{"sub":"{f.other.node_id}",', header="{"),
    "a header twice": lambda f: f.spelled(claims="{", header='{"alg":"none",'),
    "another spelling of base64": lambda f: f.good()[:-1] + _same_bits(f.good()[-1]),
    "base64 with padding": lambda f: f.good() + "==",
    "base64 with a line break": lambda f: f.good().replace(".", ".\n", 1),
    "base64 of the other alphabet": lambda f: f.good().replace("-", "+").replace("_", "/") + "+",
    "a claim nested without end": lambda f: f.deep(),
    "an API key": lambda f: f"cp_{'0' * 16}_{'0' * 64}_00000000",
    "endless": lambda f: "A" * (TOKEN_MAX + 1),
}


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HubDouble]:
    async with running_hub(tmp_path_factory.mktemp("hub"), lease_min_s=3600) as running:
        yield running


@pytest.fixture(scope="module")
async def forge(hub: HubDouble) -> Forge:
    node, other = await hub.node(name="node"), await hub.node(name="other", cores=0.001)
    await submit(hub.admin)
    await node.take()
    assert node.last is not None
    assert node.last.token is not None
    return Forge(node, other, node.last.token, hub.hub.now_ms() // 1000)


@pytest.mark.parametrize("kind", list(FORGED))
@pytest.mark.parametrize("path", ["/next", "/heartbeat", "/complete", "/logs"])
async def test_a_forged_or_odd_token_is_refused(hub: HubDouble, forge: Forge, kind: str, path: str) -> None:
    token = FORGED[kind](forge)
    bodies = {
        "/complete": {"reports": [{"attempt_id": "x-1", "outcome": "failed", "reason": "timeout"}]},
        "/logs": {"chunks": []},
    }
    body = bodies.get(path, {"boot_id": "b", "wait_ms": 0}) | ({"signature": "A" * 86} if path == "/complete" else {})
    async with untouched(hub):
        answer = await hub.client(token).post(path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), answer.text
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["detail"]


async def test_a_valid_token_is_accepted(hub: HubDouble, forge: Forge) -> None:
    """Or the tests above would prove nothing."""
    for token in (forge.good(), forge.own()):
        answer = await hub.client(token).post("/heartbeat", json={"boot_id": "b"})
        assert answer.status_code == 200


@pytest.mark.soak
async def test_a_cached_token_expires(hub: HubDouble, forge: Forge) -> None:
    """A cached token is checked against the clock each time."""
    ends = hub.hub.now_ms() // 1000 - 56  # inside the leeway for slow clocks
    token = forge.own(iat=ends - 100, exp=ends)
    client = hub.client(token)
    statuses = set()
    for _ in range(10_000):
        statuses.add((await client.post("/heartbeat", json={"boot_id": "b"})).status_code)
        if 401 in statuses:
            break
    assert statuses == {200, 401}


async def test_a_revoked_node_is_refused_at_once_with_the_token_that_was_good(hub: HubDouble) -> None:
    node = await hub.node(name="soon revoked")
    [job_id] = await submit(hub.admin, needs={"host": "soon revoked"})
    [grant] = await node.take()
    assert (await hub.admin.post(f"/nodes/{node.node_id}/revoke")).json()["state"] == "revoked"
    for path, body in (("/next", {"boot_id": node.boot_id}), ("/logs", {"chunks": []})):
        answer = await node.client.post(path, json=body)
        assert (answer.status_code, "revoked" in answer.json()["detail"]) == (401, True)
    assert (await node.complete([node.make_report(grant.attempt_id)])).status_code == 401
    assert await state(hub.admin, job_id) == "queued"
