"""The node's identity: an Ed25519 key made here, and the hub's reply to the enrolment.

The private key never leaves identity.json, which only the agent's user may read.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from computepool.core.errors import BadRequest
from computepool.protocol.base import PROTOCOL
from computepool.protocol.nodes.nodes import RegisterReply, RegisterRequest
from computepool.protocol.nodes.profile import Profile
from computepool.protocol.tokens import b64, public_key, public_text, unb64

#: A placeholder until `Identity.signed`.
UNSIGNED = "A" * 86


class Signable(Protocol):
    def signed_text(self) -> bytes: ...

    def model_copy(self, *, update: dict[str, object]) -> Self: ...


Message = TypeVar("Message", bound=Signable)


@dataclass(slots=True, kw_only=True)
class Identity:
    """Everything that signs or verifies shares one; only keyring.py changes it."""

    key: Ed25519PrivateKey
    node_id: str
    owner: str  #: account id
    hub_keys: Mapping[str, Ed25519PublicKey]  #: pinned: job tokens signed by anything else are refused
    hub_url: str  #: where it was enrolled
    hub_keys_version: int = 0  #: of the hub's list of keys; older lists are rejected

    def sign(self, message: bytes) -> str:
        return b64(self.key.sign(message))

    def sign_message(self, message: Message) -> Message:
        return message.model_copy(update={"signature": self.sign(message.signed_text())})


def load(path: Path) -> Identity | None:
    """None if there is no identity yet. An unreadable one is an error and is never replaced silently."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        data = json.loads(text)
        return Identity(
            key=Ed25519PrivateKey.from_private_bytes(unb64(data["private_key"])),
            node_id=data["node_id"],
            owner=data["owner"],
            hub_keys={kid: public_key(key) for kid, key in data["hub_keys"].items()},
            hub_url=data["hub_url"],
            hub_keys_version=int(data.get("hub_keys_version", 0)),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(
            f"{path} is damaged ({error}). Move it away and enrol again with a new code: pool node start --code CODE."
        ) from error


def save(identity: Identity, path: Path) -> None:
    data = {
        "node_id": identity.node_id,
        "owner": identity.owner,
        "hub_url": identity.hub_url,
        "hub_keys": {kid: public_text(key) for kid, key in identity.hub_keys.items()},
        "hub_keys_version": identity.hub_keys_version,
        "private_key": b64(identity.key.private_bytes_raw()),
    }
    write_private(path, json.dumps(data, indent=2).encode())


def write_private(path: Path, data: bytes) -> None:
    """Write atomically and durably, readable by this user alone."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:  # Unlike os.write, it notices a partial write.
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def load_key(path: Path) -> Ed25519PrivateKey:
    """Load this node's key, or create it.

    It is saved before the hub learns of it: if the reply to the enrolment is lost, the same code and key can be sent
    again, and the hub gives the same reply.
    """
    try:
        return Ed25519PrivateKey.from_private_bytes(unb64(path.read_text()))
    except FileNotFoundError:
        key = Ed25519PrivateKey.generate()
        write_private(path, b64(key.private_bytes_raw()).encode())
        return key


def register_request(code: str, key: Ed25519PrivateKey, profile: Profile) -> RegisterRequest:
    return RegisterRequest(
        code=code, public_key=public_text(key), proof=b64(key.sign(code.encode())), protocol=PROTOCOL, profile=profile
    )


def from_reply(reply: RegisterReply, key: Ed25519PrivateKey, *, hub_url: str) -> Identity:
    return Identity(
        key=key,
        node_id=reply.node_id,
        owner=reply.owner,
        hub_keys={kid: public_key(text) for kid, text in reply.hub_keys.items()},
        hub_url=hub_url,
    )
