"""The hub's signing key rotates without interruption, and nobody else can replace it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from computepool.cli.job import receipt_check
from computepool.core.errors import Unauthenticated
from computepool.hub.identity.signing import rotation, rows as signing_key_rows
from computepool.hub.main import list_keys, rotate_key
from computepool.hub.settings import Settings
from computepool.protocol.hub_keys import Endorsement, HubKeys, endorsed_text, verify_published
from computepool.protocol.tokens import b64, public_key, public_text, verify_job_token
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.fixtures import two_hubs
from tests.hub.submitting import submit

DAY_MS = 86400_000


async def published(hub: HubDouble) -> HubKeys:
    return HubKeys.model_validate((await hub.client().get("/hub/keys")).json())


async def rotate(hub: HubDouble) -> HubKeys:
    answer = await hub.admin.post("/hub/keys/rotate")
    assert answer.status_code == 200, answer.text
    return HubKeys.model_validate(answer.json())


async def test_the_next_key_is_known_before_it_signs(any_hub: HubDouble) -> None:
    before = await published(any_hub)
    assert set(before.keys) == {before.current, before.next}
    node = await any_hub.node()
    after = await rotate(any_hub)
    assert (after.current, after.version > before.version) == (before.next, True)
    assert set(after.keys) == {before.current, after.current, after.next}
    await submit(any_hub.admin)
    await node.take()
    assert node.last is not None
    pinned = {kid: public_key(text) for kid, text in before.keys.items()}  # as at its enrolment
    now_s = any_hub.hub.now_ms() // 1000
    assert verify_job_token(node.last.token or "", keys=pinned, node_id=node.node_id, now_s=now_s)


async def test_a_client_that_missed_many_rotations_accepts_the_new_keys(hub: HubDouble) -> None:
    before = await published(hub)
    for _ in range(5):
        after = await rotate(hub)
    found = verify_published(before.keys, after, seen=before.version)
    assert after.current in found.keys
    with pytest.raises(Unauthenticated, match="older"):
        verify_published(found.keys, before.model_copy(), seen=after.version)


async def test_after_the_overlap_the_private_half_is_gone_and_receipts_stay_good(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock) as hub:
        old = await published(hub)
        receipt = await _receipt(hub)
        assert receipt["receipt"]["kid"] == old.current
        await rotate(hub)
        clock.advance(2 * DAY_MS - 1)
        await rotation.tend(hub.hub)
        assert old.current in (await published(hub)).keys
        clock.advance(1)
        await rotation.tend(hub.hub)
        now = await published(hub)
        assert old.current not in now.keys
        assert now.retired == {old.current: old.keys[old.current]}
        [gone] = [key for key in list_keys(hub.hub.settings) if key["state"] == "retired"]
        assert gone["kid"] == old.current
        rows = await hub.hub.store.read(signing_key_rows.list_keys)
        assert [row.private_key is None for row in rows] == [True, False, False]
        checks = receipt_check.check(receipt, trusted=now.all())
        assert all(check.ok for check in checks)
        verify_published(old.keys, now)


async def _receipt(hub: HubDouble) -> dict[str, Any]:
    node = await hub.node()
    [job_id] = await submit(await hub.account("ann", "submitter"))
    [grant] = await node.take()
    await node.report(grant.attempt_id)
    answer = await hub.admin.get(f"/jobs/{job_id}/receipt")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_key_rotates_by_itself_and_once_however_many_hubs_look(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_hub(tmp_path, clock=clock, key_rotation_days=90) as hub:
        first = await published(hub)
        clock.advance(hub.hub.identity.secrets.since_ms + 90 * DAY_MS - 1 - clock.now_ms())
        await rotation.tend(hub.hub)
        assert (await published(hub)).current == first.current
        clock.advance(1)
        for _ in range(3):
            await rotation.tend(hub.hub)
        assert (await published(hub)).current == first.next
        # Long switched off: one rotation, not one for each period that was missed.
        clock.advance(1000 * DAY_MS)
        await rotation.tend(hub.hub)
        await rotation.tend(hub.hub)
        assert len(await hub.hub.store.read(signing_key_rows.list_keys)) == 4


async def test_a_rotation_on_the_database_is_noticed(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub:
        before = await published(hub)
        listed = rotate_key(hub.hub.settings)
        assert [key["state"] for key in listed] == ["accepted", "current", "next"]
        assert not any("private_key" in key for key in listed)
        await rotation.tend(hub.hub)
        assert (await published(hub)).current == before.next


@pytest.mark.soak
async def test_another_hub_follows_at_once(migrated_url: str, tmp_path: Path) -> None:
    async with two_hubs(tmp_path, migrated_url) as (one, two):
        after = await rotate(two)
        async with asyncio.timeout(60):
            while (await published(one)) != after:  # noqa: ASYNC110 - it is told by the database
                await asyncio.sleep(0.01)


def test_the_overlap_outlives_every_token() -> None:
    with pytest.raises(ValueError, match="key_overlap_s"):
        Settings(key_overlap_s=47 * 3600)


# a man in the middle

EVIL = Ed25519PrivateKey.generate()
EVIL_KEY = public_text(EVIL)


def resigned(keys: HubKeys, key: Ed25519PrivateKey) -> HubKeys:
    return keys.model_copy(update={"signature": b64(key.sign(keys.signed_text()))})


def endorsed(by: str, signer: Ed25519PrivateKey, kid: str = "evil") -> Endorsement:
    return Endorsement(kid=kid, key=EVIL_KEY, by=by, signature=b64(signer.sign(endorsed_text(kid, EVIL_KEY))))


def changed(of: HubKeys, **changes: Any) -> HubKeys:
    return of.model_copy(update=changes)


FORGERIES = {
    "a key of his own": lambda k: changed(k, keys={**k.keys, "evil": EVIL_KEY}),
    "his key alone, signed by it": lambda k: resigned(changed(k, keys={"evil": EVIL_KEY}, current="evil"), EVIL),
    "his key, endorsed by itself": lambda k: resigned(
        changed(k, keys={**k.keys, "evil": EVIL_KEY}, current="evil", endorsements=[endorsed("evil", EVIL)]), EVIL
    ),
    "his key, in the name of the hub's": lambda k: resigned(
        changed(k, keys={**k.keys, "evil": EVIL_KEY}, current="evil", endorsements=[endorsed(k.current, EVIL)]), EVIL
    ),
    "his key under the hub's name": lambda k: resigned(changed(k, keys={**k.keys, k.current: EVIL_KEY}), EVIL),
    "his key, endorsed under the hub's name": lambda k: resigned(
        changed(
            k, keys={k.current: EVIL_KEY}, endorsements=[endorsed(k.next or "", EVIL, kid=k.current), *k.endorsements]
        ),
        EVIL,
    ),
    "a key taken away": lambda k: changed(k, keys={k.current: k.keys[k.current]}),
    "no keys at all": lambda k: changed(k, keys={}),
    "another one signs": lambda k: changed(k, current=k.next or ""),
    "a later version": lambda k: changed(k, version=k.version + 1),
    "retired ones added": lambda k: changed(k, retired={"evil": EVIL_KEY}),
    "no signature": lambda k: changed(k, signature=""),
}


@pytest.mark.parametrize("kind", list(FORGERIES))
async def test_a_forged_list_of_keys_is_refused(hub: HubDouble, kind: str) -> None:
    pinned = (await published(hub)).keys
    honest = await rotate(hub)
    assert verify_published(pinned, honest) == honest  # the control
    with pytest.raises(Unauthenticated):
        verify_published(pinned, FORGERIES[kind](honest))


async def test_a_client_with_unknown_keys_accepts_no_list(hub: HubDouble) -> None:
    with pytest.raises(Unauthenticated, match="not signed by a known key"):
        verify_published({"evil": EVIL_KEY}, await published(hub))
