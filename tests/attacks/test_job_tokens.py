"""Job tokens that the hub did not sign for this node: an agent accepts none of them, and accepts the genuine one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, strategies as st

from computepool.agent.hub_link.admission import Gatekeeper
from computepool.agent.hub_link.identity import Identity
from computepool.agent.owner.owner_rules import OwnerRules
from computepool.core.errors import Unauthenticated
from computepool.core.isolation import Level
from computepool.protocol.jobs.jobs import JobSpec, spec_digest
from computepool.protocol.nodes.nodes import Grant, NextReply
from computepool.protocol.nodes.profile import Profile
from computepool.protocol.tokens import (
    JOB_TYPE,
    NODE_TYPE,
    TOKEN_MAX,
    JobToken,
    b64,
    public_text,
    sign_job_token,
    sign_node_token,
    verify_job_token,
)

NOW_S = 1_800_000_000
NODE = "node_1"
BODY = JobSpec(kind="command", name="n", argv=["true"]).body()
DROP = object()


def _grant() -> Grant:
    return Grant(
        attempt_id="job_1-1", job_id="job_1", attempt_no=1, account_id="acc_1", spec=spec_digest(BODY), lane="l"
    )


@dataclass
class Mint:
    """A hub with two keys, of which one signs, and everything a forger may know."""

    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    other: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    stranger: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    node_key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    grants: dict[str, str] = field(default_factory=lambda: {"job_1-1": _grant().digest()})

    def good(self, **changes: Any) -> str:
        usual: dict[str, Any] = {"node_id": NODE, "grants": self.grants, "issued_s": NOW_S, "expires_s": NOW_S + 3600}
        return sign_job_token(JobToken(**usual | changes), key=self.key, kid="k1")

    def claims(self, **changes: Any) -> dict[str, Any]:
        usual = {
            "iss": "computepool",
            "aud": NODE,
            "iat": NOW_S,
            "nbf": NOW_S,
            "exp": NOW_S + 3600,
            "grants": self.grants,
        }
        return {name: value for name, value in (usual | changes).items() if value is not DROP}

    def raw(self, header: Any, claims: Any, sign: Callable[[bytes], bytes] | None = None) -> str:
        signed = f"{b64(_json(header))}.{b64(_json(claims))}"
        return f"{signed}.{b64((sign or self.key.sign)(signed.encode()))}"

    def own(self, *, headers: dict[str, Any] | None = None, **changes: Any) -> str:
        """Signed by the hub's own key: only the content is wrong."""
        head = {"alg": "EdDSA", "typ": JOB_TYPE, "kid": "k1"} | (headers or {})
        kept = {name: value for name, value in head.items() if value is not DROP}
        return self.raw(kept, self.claims(**changes))

    def by(self, sign: Callable[[bytes], bytes], **headers: Any) -> str:
        return self.raw({"alg": "EdDSA", "typ": JOB_TYPE, "kid": "k1"} | headers, self.claims(), sign)

    def mac(self, secret: bytes) -> str:
        algorithm = jwt.get_algorithm_by_name("HS256")
        return self.by(lambda text: algorithm.sign(text, secret), alg="HS256")

    def tampered(self, **changes: Any) -> str:
        header, _, signature = self.good().split(".")
        return f"{header}.{b64(_json(self.claims(**changes)))}.{signature}"


def _json(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


FORGED: dict[str, Callable[[Mint], str]] = {
    "nothing": lambda m: "",
    "one word": lambda m: "token",
    "two parts": lambda m: m.good().rpartition(".")[0],
    "four parts": lambda m: m.good() + ".e30",
    "cut short": lambda m: m.good()[:-4],
    "no signature": lambda m: m.good().rpartition(".")[0] + ".",
    "another token's signature": lambda m: (
        m.good().rpartition(".")[0] + "." + m.good(issued_s=NOW_S - 1).rpartition(".")[2]
    ),
    "payload of another token": lambda m: m.tampered(aud=NODE, exp=NOW_S + 7200),
    "grants added": lambda m: m.tampered(grants=m.grants | {"job_2-1": "0" * 64}),
    "alg none": lambda m: m.by(lambda _: b"", alg="none"),
    "alg NoNe": lambda m: m.by(lambda _: b"", alg="NoNe"),
    "alg missing": lambda m: m.own(headers={"alg": DROP}),
    "alg of another kind, rightly signed": lambda m: m.own(headers={"alg": "ES256"}),
    "HS256 with the public key as text": lambda m: m.mac(public_text(m.key).encode()),
    "HS256 with the public key's bytes": lambda m: m.mac(m.key.public_key().public_bytes_raw()),
    "Ed448": lambda m: m.by(Ed448PrivateKey.generate().sign),
    "a stranger's key": lambda m: m.by(m.stranger.sign),
    "another key of the hub under this name": lambda m: m.by(m.other.sign),
    "the node's own key": lambda m: m.by(m.node_key.sign),
    "kid unknown": lambda m: m.own(headers={"kid": "k9"}),
    "kid missing": lambda m: m.own(headers={"kid": DROP}),
    "kid a number": lambda m: m.own(headers={"kid": 1}),
    "kid a list": lambda m: m.own(headers={"kid": ["k1"]}),
    "kid a path": lambda m: m.own(headers={"kid": "../../../dev/null"}),
    "type of a node's token": lambda m: m.own(headers={"typ": NODE_TYPE}),
    "type JWT": lambda m: m.own(headers={"typ": "JWT"}),
    "type missing": lambda m: m.own(headers={"typ": DROP}),
    "type in capitals": lambda m: m.own(headers={"typ": JOB_TYPE.upper()}),
    "jku": lambda m: m.own(headers={"jku": "https://evil.test/keys"}),
    "jwk": lambda m: m.own(headers={"jwk": {"kty": "OKP", "crv": "Ed25519", "x": public_text(m.stranger)}}),
    "x5u": lambda m: m.own(headers={"x5u": "https://evil.test/cert"}),
    "x5c": lambda m: m.own(headers={"x5c": ["MIIB"]}),
    "crit": lambda m: m.own(headers={"crit": ["exp"]}),
    "b64 false": lambda m: m.own(headers={"b64": False}),
    "a node's token, signed by the hub": lambda m: sign_node_token(NODE, key=m.key, hub=NODE, now_s=NOW_S),
    "for another node": lambda m: m.own(aud="node_2"),
    "for all nodes": lambda m: m.own(aud="*"),
    "for nobody": lambda m: m.own(aud=DROP),
    "audience an object": lambda m: m.own(aud={NODE: 1}),
    "issued by a node": lambda m: m.own(iss=NODE),
    "issued by nobody": lambda m: m.own(iss=DROP),
    "expired": lambda m: m.own(iat=NOW_S - 7200, nbf=NOW_S - 7200, exp=NOW_S - 61),
    "not yet valid": lambda m: m.own(nbf=NOW_S + 61),
    "from the future": lambda m: m.own(iat=NOW_S + 61, exp=NOW_S + 3600),
    "lives for ever": lambda m: m.own(exp=2**62),
    "without end": lambda m: m.own(exp=DROP),
    "without beginning": lambda m: m.own(iat=DROP),
    "end a fraction": lambda m: m.own(exp=NOW_S + 0.5),
    "end a text": lambda m: m.own(exp=str(NOW_S + 60)),
    "end true": lambda m: m.own(exp=True),
    "end infinite": lambda m: m.own(exp=float("inf")),
    "no grants": lambda m: m.own(grants=DROP),
    "grants a list": lambda m: m.own(grants=["job_1-1"]),
    "grants of numbers": lambda m: m.own(grants={"job_1-1": 1}),
    "no grant of this attempt": lambda m: m.own(grants={}),
    "a grant for another attempt": lambda m: m.own(grants={"job_2-1": m.grants["job_1-1"]}),
    "another grant for this attempt": lambda m: m.own(grants={"job_1-1": "0" * 64}),
    "claims twice": lambda m: m.raw(
        {"alg": "EdDSA", "typ": JOB_TYPE, "kid": "k1"}, b'{"aud":"node_2",' + _json(m.claims())[1:]
    ),
    "grants twice": lambda m: m.raw(
        {"alg": "EdDSA", "typ": JOB_TYPE, "kid": "k1"},
        _json(m.claims()).replace(b'{"job_1-1"', b'{"job_1-1": "x", "job_1-1"'),
    ),
    "header twice": lambda m: m.raw(
        b'{"alg":"none",' + _json({"alg": "EdDSA", "typ": JOB_TYPE, "kid": "k1"})[1:], m.claims()
    ),
    "header a list": lambda m: m.raw([], m.claims()),
    "claims a list": lambda m: m.raw({"alg": "EdDSA", "typ": JOB_TYPE, "kid": "k1"}, []),
    "claims not JSON": lambda m: m.raw({"alg": "EdDSA", "typ": JOB_TYPE, "kid": "k1"}, b"{"),
    "claims in another encoding": lambda m: m.raw(
        {"alg": "EdDSA", "typ": JOB_TYPE, "kid": "k1"}, b"\xff\xfe{\x00}\x00"
    ),
    "base64 with padding": lambda m: m.good() + "==",
    "base64 with a space": lambda m: " " + m.good(),
    "base64 with an empty line": lambda m: m.good() + "\n",
    "another spelling of base64": lambda m: _respelled(m.good()),
    "huge": lambda m: m.good().replace(".", "." + "A" * TOKEN_MAX, 1),
    "not ASCII": lambda m: m.good().replace("e", "е"),
}


def _respelled(token: str) -> str:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return token[:-1] + alphabet[alphabet.index(token[-1]) ^ 1]


MINT = Mint()
IDENTITY = Identity(
    key=MINT.node_key,
    node_id=NODE,
    owner="acc_1",
    hub_keys={"k1": MINT.key.public_key(), "k2": MINT.other.public_key()},
    hub_url="http://hub",
)


def admitted(token: str | None) -> bool:
    profile = Profile(name="n", cores=1, ram_mb=1_000, disk_mb=1_000, python="3.11", isolation=Level.NAMESPACE.label)
    gatekeeper = Gatekeeper(IDENTITY, profile, OwnerRules(Path("/nowhere")))
    reply = NextReply(
        hub_time_ms=NOW_S * 1000,
        interval_ms=1,
        lease_ms=1,
        fence_ms=1,
        token=token,
        grants=[_grant()],
        specs={spec_digest(BODY): BODY},
    )
    found = gatekeeper.admit(reply, hub_now_s=NOW_S)
    assert len(found.accepted) + len(found.refused) == 1
    return bool(found.accepted)


@pytest.mark.parametrize("kind", list(FORGED))
def test_an_agent_refuses_a_forged_token(kind: str) -> None:
    assert not admitted(FORGED[kind](MINT))


def test_the_honest_token_is_taken() -> None:
    """Otherwise the tests above would prove nothing. One is made by the hub's function, one by the forger's tools."""
    assert admitted(MINT.good())
    assert admitted(MINT.own())
    assert not admitted(None)
    assert len(FORGED) >= 60


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_token_survives_a_change_of_one_character(place: int, change: int) -> None:
    good = MINT.good()
    place %= len(good)
    changed = good[:place] + chr((ord(good[place]) + change) % 256) + good[place + 1 :]
    with pytest.raises(Unauthenticated):
        verify_job_token(changed, keys=IDENTITY.hub_keys, node_id=NODE, now_s=NOW_S)


@given(
    st.text(max_size=300) | st.binary(max_size=200).map(b64) | st.lists(st.text(max_size=40), max_size=5).map(".".join)
)
def test_whatever_comes_is_refused_with_one_kind_of_error(text: str) -> None:
    with pytest.raises(Unauthenticated):
        verify_job_token(text, keys=IDENTITY.hub_keys, node_id=NODE, now_s=NOW_S)
