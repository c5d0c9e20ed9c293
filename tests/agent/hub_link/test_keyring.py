"""The keyring: trusts only hub keys that follow from pinned ones, and changes the node's own key safely."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.agent.config import AgentLimits
from computepool.agent.context import Node
from computepool.agent.hub_link import identity as identities
from computepool.agent.hub_link.identity import Identity
from computepool.agent.hub_link.keyring import ASK_S, Keyring
from computepool.core.errors import Unauthenticated, Unavailable
from computepool.protocol.hub_keys import Endorsement, HubKeys, endorsed_text, rekey_text
from computepool.protocol.nodes.nodes import RekeyReply, RekeyRequest
from computepool.protocol.tokens import JobToken, b64, is_signed_by, public_key, public_text, sign_job_token


class Chain:
    """The successive keys of a hub."""

    def __init__(self, length: int) -> None:
        self.keys = [Ed25519PrivateKey.generate() for _ in range(length)]

    def published(self, current: int, *, version: int | None = None) -> HubKeys:
        names = {f"k{n}": public_text(key) for n, key in enumerate(self.keys)}
        links = [
            Endorsement(
                kid=f"k{n}",
                key=names[f"k{n}"],
                by=f"k{n - 1}",
                signature=b64(self.keys[n - 1].sign(endorsed_text(f"k{n}", names[f"k{n}"]))),
            )
            for n in range(1, len(self.keys))
        ]
        live = {f"k{n}": names[f"k{n}"] for n in range(current, len(self.keys))}
        said = HubKeys(
            keys=live, current=f"k{current}", endorsements=links, version=current if version is None else version
        )
        return said.model_copy(update={"signature": b64(self.keys[current].sign(said.signed_text()))})

    def token(self, number: int) -> str:
        claims = JobToken(node_id="node_0", grants={}, issued_s=0, expires_s=60)
        return sign_job_token(claims, key=self.keys[number], kid=f"k{number}")


class Wire:
    """The client as the keyring uses it; the other end does what the test says."""

    def __init__(self, published: HubKeys | None) -> None:
        self.published = published
        self.announced = 0
        self.rekeyed: list[RekeyRequest] = []
        self.fails: Exception | None = None
        self.identified = 0

    async def hub_keys(self) -> HubKeys:
        self.announced += 1
        if self.published is None:
            raise Unavailable("The hub cannot be reached.")
        return self.published

    async def rekey(self, request: RekeyRequest) -> RekeyReply:
        self.rekeyed.append(request)
        if self.fails is not None:
            raise self.fails
        return RekeyReply(node_id="node_0", old_accepted_until_ms=7)

    def identify(self, _identity: Identity) -> None:
        self.identified += 1


class Steady:
    def __init__(self) -> None:
        self.now = 1_000.0

    def steady(self) -> float:
        return self.now


CHAIN = Chain(4)


@pytest.fixture
def identity() -> Identity:
    return Identity(
        key=Ed25519PrivateKey.generate(),
        node_id="node_0",
        owner="acc",
        hub_keys={"k0": CHAIN.keys[0].public_key()},
        hub_url="http://h",
    )


def keyring(identity: Identity, wire: Wire, path: Path, clock: Steady | None = None) -> Keyring:
    node = Node(client=wire, identity=identity, clock=clock or Steady(), limits=AgentLimits())  # type: ignore[arg-type]
    return Keyring(node, path / "identity.json")


async def test_an_unknown_hub_key_is_fetched_and_saved(identity: Identity, tmp_path: Path) -> None:
    wire = Wire(CHAIN.published(2))
    await keyring(identity, wire, tmp_path).learn_key_of(CHAIN.token(2))
    assert set(identity.hub_keys) == {"k2", "k3"}
    loaded = identities.load(tmp_path / "identity.json")
    assert loaded is not None
    assert (set(loaded.hub_keys), loaded.hub_keys_version) == ({"k2", "k3"}, 2)


async def test_nothing_is_fetched_for_a_known_key_or_an_invalid_token(identity: Identity, tmp_path: Path) -> None:
    wire = Wire(None)
    ring = keyring(identity, wire, tmp_path)
    for token in (CHAIN.token(0), None, "", "nonsense", "a.b.c"):
        await ring.learn_key_of(token)
    assert wire.announced == 0


async def test_keys_are_fetched_once_a_minute_at_most_and_known_keys_stay(identity: Identity, tmp_path: Path) -> None:
    clock, wire = Steady(), Wire(None)
    ring = keyring(identity, wire, tmp_path, clock)
    for _ in range(50):
        await ring.learn_key_of(CHAIN.token(1))
    assert (wire.announced, set(identity.hub_keys)) == (1, {"k0"})
    clock.now += ASK_S
    wire.published = CHAIN.published(1)
    await ring.learn_key_of(CHAIN.token(1))
    assert (wire.announced, set(identity.hub_keys)) == (2, {"k1", "k2", "k3"})


async def test_keys_that_do_not_follow_from_pinned_ones_are_rejected(identity: Identity, tmp_path: Path) -> None:
    evil = Chain(2)
    for published in (
        evil.published(0),
        evil.published(1),
        CHAIN.published(1).model_copy(update={"signature": "A" * 86}),
    ):
        wire = Wire(published)
        ring = keyring(identity, wire, tmp_path)
        await ring.learn_key_of(evil.token(1))
        with pytest.raises(Unauthenticated):
            await ring.refresh()
        assert set(identity.hub_keys) == {"k0"}
    assert not (tmp_path / "identity.json").exists()


async def test_an_older_list_of_keys_is_rejected(identity: Identity, tmp_path: Path) -> None:
    wire = Wire(CHAIN.published(2))
    ring = keyring(identity, wire, tmp_path)
    await ring.refresh()
    wire.published = CHAIN.published(2, version=1)
    with pytest.raises(Unauthenticated, match="older"):
        await ring.refresh()
    wire.published = CHAIN.published(0)
    with pytest.raises(Unauthenticated):
        await ring.refresh()
    assert set(identity.hub_keys) == {"k2", "k3"}


async def test_a_new_node_key_is_signed_by_the_old_one_and_saved(identity: Identity, tmp_path: Path) -> None:
    wire, old = Wire(None), identity.key
    assert await keyring(identity, wire, tmp_path).rekey() == 7
    [sent] = wire.rekeyed
    text = rekey_text("node_0", sent.public_key)
    assert is_signed_by(old.public_key(), sent.endorsement, text)
    assert is_signed_by(public_key(sent.public_key), sent.proof, text)
    assert public_text(identity.key) == sent.public_key
    assert wire.identified == 1
    kept = json.loads((tmp_path / "identity.json").read_text())
    assert kept["private_key"] == b64(identity.key.private_bytes_raw())
    assert [path.name for path in tmp_path.iterdir()] == ["identity.json"]


async def test_after_a_lost_reply_the_same_new_key_is_sent_again(identity: Identity, tmp_path: Path) -> None:
    wire, old = Wire(None), identity.key
    ring = keyring(identity, wire, tmp_path)
    wire.fails = Unavailable("The hub cannot be reached.")
    with pytest.raises(Unavailable):
        await ring.rekey()
    assert identity.key is old
    wire.fails = None
    await keyring(identity, wire, tmp_path).resume()  # after a restart
    first, second = wire.rekeyed
    assert first.public_key == second.public_key == public_text(identity.key)


async def test_the_new_key_is_used_if_the_old_one_has_expired(identity: Identity, tmp_path: Path) -> None:
    wire = Wire(None)
    wire.fails = Unauthenticated("The token was refused.")
    new = identities.load_key(tmp_path / "node.next.key")
    await keyring(identity, wire, tmp_path).resume()
    assert public_text(identity.key) == public_text(new)
    assert not (tmp_path / "node.next.key").exists()


async def test_keys_that_cannot_be_saved_are_used_and_saved_at_the_next_start(
    identity: Identity, tmp_path: Path
) -> None:
    (tmp_path / "identity.json").mkdir()  # What is written cannot take its place.
    wire = Wire(CHAIN.published(1))
    ring = keyring(identity, wire, tmp_path)
    await ring.learn_key_of(CHAIN.token(1))
    assert set(identity.hub_keys) == {"k1", "k2", "k3"}
    assert await ring.rekey() == 7
    [sent] = wire.rekeyed
    assert public_text(identity.key) == sent.public_key
    assert wire.identified == 1
    assert (tmp_path / "node.next.key").exists(), "the next start goes on with the same key"
    (tmp_path / "identity.json").rmdir()
    await keyring(identity, wire, tmp_path).resume()
    assert {request.public_key for request in wire.rekeyed} == {sent.public_key}
    kept = identities.load(tmp_path / "identity.json")
    assert kept is not None
    assert public_text(kept.key) == sent.public_key
    assert not (tmp_path / "node.next.key").exists()
