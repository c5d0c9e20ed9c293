"""The hub's published public keys, and how clients that have pinned one of them follow it to the next.

Each key is endorsed by the previous one, and the whole set is signed by the current one. So a client that pinned a key
accepts exactly what its owner published later, and nobody in between can add, remove or restore a key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import Field

from computepool.core.errors import Unauthenticated
from computepool.protocol.base import Reply
from computepool.protocol.tokens import is_signed_by, public_key

_KEY_FORMAT = "computepool-hub-key-1"
_SET_FORMAT = "computepool-hub-keys-1"
_NODE_FORMAT = "computepool-node-key-1"
ENDORSEMENTS_MAX = 1_000


class Endorsement(Reply):
    """A key, signed by the previous one."""

    kid: str
    key: str
    by: str
    signature: str


class HubKeys(Reply):
    """The public keys that the hub signs with, by name."""

    #: accepted now: the current key, the next one, and previous ones until their overlap ends
    keys: dict[str, str]
    current: str = ""  #: the key that signs
    next: str | None = None
    retired: dict[str, str] = {}  #: no longer used to sign; receipts signed with them remain valid
    endorsements: list[Endorsement] = Field(default=[], max_length=ENDORSEMENTS_MAX)
    version: int = 0  #: grows with every change
    signature: str = ""  #: of the whole set, by the current key

    def signed_text(self) -> bytes:
        fields = self.model_dump(mode="json", include={"keys", "current", "next", "retired", "version"})
        return json.dumps(fields | {"format": _SET_FORMAT}, sort_keys=True, separators=(",", ":")).encode()

    def all(self) -> dict[str, str]:
        return {**self.retired, **self.keys}


def endorsed_text(kid: str, key: str) -> bytes:
    return f"{_KEY_FORMAT}\n{kid}\n{key}".encode()


def rekey_text(node_id: str, key: str) -> bytes:
    """The text that a node signs with both its old and its new key to replace the old one."""
    return f"{_NODE_FORMAT}\n{node_id}\n{key}".encode()


def verify_published(pinned: Mapping[str, str], published: HubKeys, *, seen: int = 0) -> HubKeys:
    """The published set, if it follows from the pinned keys. Otherwise Unauthenticated says what is wrong."""
    trusted = _chain(pinned, published.endorsements)
    signer = trusted.get(published.current)
    if signer is None:
        raise Unauthenticated("The hub's new key is not signed by a known key.")
    if not is_signed_by(public_key(signer), published.signature, published.signed_text()):
        raise Unauthenticated("The hub's list of keys is not signed by the hub.")
    if any(trusted.get(kid) != key for kid, key in published.keys.items()):
        raise Unauthenticated("The hub's list contains a key that no known key has signed.")
    if published.version < seen:
        raise Unauthenticated("The hub's list of keys is older than the known one.")
    return published


def _chain(pinned: Mapping[str, str], endorsements: list[Endorsement]) -> dict[str, str]:
    """The pinned keys, and those that follow from them, link by link."""
    trusted = dict(pinned)
    waiting = list(endorsements)
    while True:
        good = [
            link
            for link in waiting
            if link.by in trusted
            and is_signed_by(public_key(trusted[link.by]), link.signature, endorsed_text(link.kid, link.key))
        ]
        if not good:
            return trusted
        for link in good:
            trusted.setdefault(link.kid, link.key)  # a name never changes its key
        waiting = [link for link in waiting if link not in good]
