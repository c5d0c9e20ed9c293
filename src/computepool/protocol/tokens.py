"""Signed tokens: the hub's job tokens (what a node may run) and the nodes' bearer tokens (who makes a request).

Both are JWTs that allow only EdDSA. Headers contain only the expected fields, so that nobody can choose a key for the
verifier. Tokens have a single canonical spelling.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from computepool.core.errors import Unauthenticated

JOB_TYPE = "cp-job+jwt"
NODE_TYPE = "cp-node+jwt"
ISSUER = "computepool"
LEEWAY_S = 60
NODE_TOKEN_LIFE_S = 900
TOKEN_MAX = 4_000_000  #: a reply may grant many attempts in one token
NODE_TOKEN_MAX = 4_096
_HEADERS = {JOB_TYPE: frozenset({"alg", "typ", "kid"}), NODE_TYPE: frozenset({"alg", "typ"})}
_LONGEST = {JOB_TYPE: TOKEN_MAX, NODE_TYPE: NODE_TOKEN_MAX}
_KID_MAX = 64
_HEADER_MAX = 512
_REQUIRED = ("iss", "aud", "iat", "exp")
_DAY_S = 24 * 3600
JOB_TOKEN_LIFE_MAX_S = 2 * _DAY_S


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def public_text(key: Ed25519PrivateKey | Ed25519PublicKey) -> str:
    public = key.public_key() if isinstance(key, Ed25519PrivateKey) else key
    return b64(public.public_bytes_raw())


def public_key(text: str) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(unb64(text))
    except ValueError as error:
        raise Unauthenticated("The public key is not a valid Ed25519 key.") from error


def is_signed_by(key: Ed25519PublicKey, signature: str, message: bytes) -> bool:
    try:
        key.verify(unb64(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class JobToken:
    node_id: str
    grants: Mapping[str, str]  #: attempt id → digest of the grant
    issued_s: int
    expires_s: int


def sign_job_token(token: JobToken, *, key: Ed25519PrivateKey, kid: str) -> str:
    claims = {
        "iss": ISSUER,
        "aud": token.node_id,
        "iat": token.issued_s,
        "nbf": token.issued_s,
        "exp": token.expires_s,
        "grants": dict(token.grants),
    }
    return jwt.encode(claims, key, algorithm="EdDSA", headers={"kid": kid, "typ": JOB_TYPE})


def token_kid(text: str) -> str | None:
    """The name of the key that a job token claims to be signed with, unverified; None for anything else."""
    try:
        kid = _object(text[:_HEADER_MAX].partition(".")[0]).get("kid")
    except (ValueError, RecursionError):
        return None
    return kid if isinstance(kid, str) and len(kid) <= _KID_MAX else None


def verify_job_token(text: str, *, keys: Mapping[str, Ed25519PublicKey], node_id: str, now_s: int) -> JobToken:
    """Raises Unauthenticated with the precise cause. `now_s` is the agent's estimate of the hub's time."""
    header, claims = _read(text, typ=JOB_TYPE)
    kid = header.get("kid")
    if not isinstance(kid, str) or kid not in keys:
        raise Unauthenticated("The job token is signed with an unknown key.")
    _check_signature(text, keys[kid])
    _check_claims(claims, audience=node_id, issuer=ISSUER, now_s=now_s, life_max_s=JOB_TOKEN_LIFE_MAX_S)
    grants = claims.get("grants")
    if not isinstance(grants, dict) or not all(isinstance(value, str) for value in grants.values()):
        raise Unauthenticated("The job token has no grants.")
    return JobToken(node_id=node_id, grants=grants, issued_s=int(str(claims["iat"])), expires_s=int(str(claims["exp"])))


def sign_node_token(node_id: str, *, key: Ed25519PrivateKey, hub: str, now_s: int) -> str:
    """Nodes sign their own tokens: no challenge is needed, and the hub stores only the public key."""
    claims = {"iss": node_id, "sub": node_id, "aud": hub, "iat": now_s, "nbf": now_s, "exp": now_s + NODE_TOKEN_LIFE_S}
    return jwt.encode(claims, key, algorithm="EdDSA", headers={"typ": NODE_TYPE})


def node_token_subject(text: str) -> str:
    """The unverified subject of a token, which tells the public key to verify it with."""
    return _subject(_read(text, typ=NODE_TYPE)[1])


def verify_node_token(text: str, *, key: Ed25519PublicKey, hub: str, now_s: int) -> int:
    """Returns the expiry time in seconds."""
    _, claims = _read(text, typ=NODE_TYPE)
    _check_signature(text, key)
    _check_claims(claims, audience=hub, issuer=_subject(claims), now_s=now_s, life_max_s=NODE_TOKEN_LIFE_S)
    return int(str(claims["exp"]))


def _subject(claims: dict[str, object]) -> str:
    subject = claims.get("sub")
    if not isinstance(subject, str):
        raise Unauthenticated("The node token has no subject.")
    return subject


def _read(text: str, *, typ: str) -> tuple[dict[str, object], dict[str, object]]:
    """The unverified header and claims of a token with the canonical spelling."""
    if len(text) > _LONGEST[typ]:
        raise Unauthenticated("The token is too long.")
    parts = text.split(".")
    try:
        if len(parts) != 3 or any(b64(unb64(part)) != part for part in parts):
            raise ValueError("not three parts in canonical base64")
        header, claims = _object(parts[0]), _object(parts[1])
    except (ValueError, RecursionError) as error:
        raise Unauthenticated("The token is malformed.") from error
    if header.get("alg") != "EdDSA" or header.get("typ") != typ or not header.keys() <= _HEADERS[typ]:
        raise Unauthenticated("The token is not of the expected type.")
    return header, claims


def unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate fields, which different parsers read differently."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field occurs twice")
    return found


def _object(part: str) -> dict[str, object]:
    found = json.loads(unb64(part), object_pairs_hook=unique_fields)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def _check_signature(text: str, key: Ed25519PublicKey) -> None:
    signed, _, signature = text.rpartition(".")
    if not is_signed_by(key, signature, signed.encode()):
        raise Unauthenticated("The token was refused: its signature is wrong.")


def _check_claims(claims: dict[str, object], *, audience: str, issuer: str, now_s: int, life_max_s: int) -> None:
    """Times are checked against the given clock, never the local one."""
    if any(claims.get(name) is None for name in _REQUIRED):
        raise Unauthenticated(f"The token was refused: it lacks one of {', '.join(_REQUIRED)}.")
    if (claims["aud"], claims["iss"]) != (audience, issuer):
        raise Unauthenticated("The token was refused: its issuer or audience is wrong.")
    issued, expires, begins = (_whole(claims.get(name, claims["iat"])) for name in ("iat", "exp", "nbf"))
    if expires + LEEWAY_S < now_s:
        raise Unauthenticated("The token has expired.")
    if max(issued, begins) - LEEWAY_S > now_s:
        raise Unauthenticated("The token is from the future; check the clocks.")
    if expires - issued > life_max_s:
        raise Unauthenticated("The token is valid for longer than allowed.")


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):  # in Python, bool is a subclass of int
        raise Unauthenticated("The token's times are not integers.")
    return value
