"""Accounts, keys, one-time codes, secrets, idempotency records, hubs and nodes."""

from __future__ import annotations

import asyncio

import pytest

from computepool.core.errors import Conflict
from computepool.hub.db.session import Connection, Store, Tx
from computepool.hub.identity import rows as account_rows
from computepool.hub.identity.signing.secrets import load_secrets
from computepool.hub.nodes import rows as node_rows
from computepool.testing.clock import FakeClock
from computepool.testing.factories import add_account, add_node
from tests.hub.db.conftest import MakeStore


def add_code(tx: Tx, *, account_id: str, code_hash: str = "hash", life_ms: int = 1_000) -> None:
    account_rows.insert_code(
        tx, hash=code_hash, purpose="enrol", account_id=account_id, expires_at_ms=tx.now_ms + life_ms
    )


def use(tx: Tx, purpose: str = "enrol") -> str | None:
    return account_rows.use_code(tx, code_hash="hash", purpose=purpose)


# accounts and keys


async def test_an_account_name_is_given_once(store: Store) -> None:
    def make(tx: Tx, account_id: str) -> bool:
        return account_rows.insert_account(tx, account_id=account_id, name="ada", roles=["admin", "submitter"])

    made = await asyncio.gather(*(store.write(lambda tx, n=number: make(tx, f"acc_{n}")) for number in range(10)))
    assert made == [True] + [False] * 9
    row = await store.read(lambda connection: account_rows.find_account(connection, "ada"))
    assert row is not None
    assert (row.id, row.roles) == ("acc_0", "admin,submitter")


async def test_two_hubs_give_a_name_once(migrated_url: str, make_store: MakeStore) -> None:
    hubs = [make_store(migrated_url) for _ in range(2)]
    for number in range(20):

        def make(tx: Tx, account_id: str, name: str = f"name{number}") -> bool:
            return account_rows.insert_account(tx, account_id=account_id, name=name, roles=[])

        made = await asyncio.gather(
            *(hub.write(lambda tx, id_=f"{hub.hub_id}-{number}": make(tx, id_)) for hub in hubs)
        )
        assert sorted(made) == [False, True]


async def test_pages_of_accounts(store: Store) -> None:
    ids = await store.write(lambda tx: [add_account(tx) for _ in range(5)])
    first = await store.read(lambda c: account_rows.list_accounts(c, after="", limit=3))
    rest = await store.read(lambda c: account_rows.list_accounts(c, after=first[-1].id, limit=3))
    assert [row.id for row in (*first, *rest)] == ids


async def test_a_key_is_revoked_once_and_keeps_its_owner(store: Store, clock: FakeClock) -> None:
    def unit(tx: Tx) -> str:
        account_id = add_account(tx, name="ada")
        account_rows.insert_key(tx, id="k1", account_id=account_id, kind="key", name="laptop", hash="h")
        account_rows.insert_key(tx, id="k2", account_id=account_id, kind="cookie", name="browser", hash="h")
        account_rows.touch_keys(tx, {"k1": 42})
        return account_id

    account_id = await store.write(unit)
    row = await store.read(lambda connection: account_rows.get_key(connection, "k1"))
    assert row is not None
    assert (row.account_name, row.last_used_ms, row.revoked_at_ms) == ("ada", 42, None)
    listed = await store.read(
        lambda c: account_rows.list_keys(c, account_id=account_id, kinds=("key",), after="", limit=9)
    )
    assert [key.id for key in listed] == ["k1"]
    assert await store.write(lambda tx: account_rows.revoke_key(tx, "k1"))
    assert not await store.write(lambda tx: account_rows.revoke_key(tx, "k1"))
    row = await store.read(lambda connection: account_rows.get_key(connection, "k1"))
    assert row is not None
    assert row.revoked_at_ms == clock.now_ms()


# one-time codes


async def test_a_code_is_used_once_however_many_try(store: Store) -> None:
    account_id = await store.write(add_account)
    await store.write(lambda tx: add_code(tx, account_id=account_id))
    answers = await asyncio.gather(*(store.write(use) for _ in range(50)))
    assert sorted(map(str, answers)) == sorted([account_id] + ["None"] * 49)


async def test_two_hubs_use_a_code_once(migrated_url: str, make_store: MakeStore) -> None:
    hubs = [make_store(migrated_url) for _ in range(2)]
    account_id = await hubs[0].write(add_account)
    await hubs[0].write(lambda tx: add_code(tx, account_id=account_id))
    answers = await asyncio.gather(*(hub.write(use) for hub in hubs for _ in range(10)))
    assert [answer for answer in answers if answer is not None] == [account_id]


async def test_a_code_works_only_for_its_purpose_and_until_it_expires(store: Store, clock: FakeClock) -> None:
    account_id = await store.write(add_account)
    await store.write(lambda tx: add_code(tx, account_id=account_id, life_ms=1_000))
    assert await store.write(lambda tx: use(tx, purpose="signin")) is None
    clock.advance(1_000)
    assert await store.write(use) is None
    clock.advance(-1)
    assert await store.write(use) == account_id


async def test_a_code_used_by_a_failed_unit_stays_valid(store: Store) -> None:
    account_id = await store.write(add_account)
    await store.write(lambda tx: add_code(tx, account_id=account_id))

    def refuse(tx: Tx) -> None:
        assert use(tx) == account_id
        raise Conflict("something else was wrong")

    with pytest.raises(Conflict):
        await store.write(refuse)
    assert await store.write(use) == account_id


async def test_old_codes_are_pruned(store: Store, clock: FakeClock) -> None:
    account_id = await store.write(add_account)
    await store.write(lambda tx: add_code(tx, account_id=account_id, life_ms=1_000))
    await store.write(lambda tx: account_rows.prune_codes(tx, before_ms=tx.now_ms + 1_000))
    assert await store.write(use) == account_id
    await store.write(lambda tx: account_rows.prune_codes(tx, before_ms=tx.now_ms + 1_001))
    await store.write(lambda tx: add_code(tx, account_id=account_id))


# idempotency, secrets, hubs


async def test_a_reply_is_kept_under_its_account_route_and_key(store: Store, clock: FakeClock) -> None:
    def keep(tx: Tx, reply: str) -> None:
        account_rows.insert_reply(tx, account_id="a", route="jobs", key="k", request_hash="h", reply=reply)

    def get(connection: Connection, **scope: str) -> str | None:
        row = account_rows.get_reply(connection, **({"account_id": "a", "route": "jobs", "key": "k"} | scope))
        return None if row is None else str(row.reply)

    await store.write(lambda tx: keep(tx, "first"))
    with pytest.raises(Conflict):
        await store.write(lambda tx: keep(tx, "second"))
    assert await store.read(get) == "first"
    for other in ({"account_id": "b"}, {"route": "groups"}, {"key": "l"}):
        assert await store.read(lambda connection, other=other: get(connection, **other)) is None
    await store.write(lambda tx: account_rows.prune_replies(tx, before_ms=clock.now_ms()))
    assert await store.read(get) == "first"
    await store.write(lambda tx: account_rows.prune_replies(tx, before_ms=clock.now_ms() + 1))
    assert await store.read(get) is None


async def test_the_first_secret_stays(store: Store) -> None:
    made = [
        await store.write(lambda tx, value=value: account_rows.insert_secret(tx, name="pepper", value=value))
        for value in ("first", "second")
    ]
    assert made == [True, False]
    assert await store.read(account_rows.get_secrets) == {"pepper": "first"}


async def test_hubs_that_start_together_share_their_secrets(
    migrated_url: str, make_store: MakeStore, clock: FakeClock
) -> None:
    hubs = [make_store(migrated_url) for _ in range(4)]
    loaded = await asyncio.gather(*(asyncio.to_thread(load_secrets, hub, clock) for hub in hubs))
    assert len({secrets.kid for secrets in loaded}) == 1
    assert len({secrets.digest("code") for secrets in loaded}) == 1
    assert all(secrets.published == loaded[0].published for secrets in loaded)
    assert list(loaded[0].published.keys) == [loaded[0].kid, loaded[0].published.next]


async def test_a_hub_is_live_while_it_sends_heartbeats(store: Store, clock: FakeClock) -> None:
    async def beat(hub_id: str) -> None:
        await store.write(lambda tx: account_rows.beat_hub(tx, hub_id=hub_id, address="http://hub"))

    async def others(since_ms: int) -> int:
        return await store.read(lambda c: account_rows.other_hubs(c, hub_id="one", since_ms=since_ms))

    await beat("one")
    await beat("two")
    started_ms = clock.now_ms()
    assert await others(started_ms) == 1
    clock.advance(5_000)
    assert await others(clock.now_ms()) == 0
    await beat("two")
    assert await others(clock.now_ms()) == 1
    await store.write(lambda tx: account_rows.remove_hub(tx, hub_id="two"))
    assert await others(0) == 0


# nodes


async def test_a_node_is_found_by_its_key_and_changes_state_only_from_the_expected_one(store: Store) -> None:
    node_id = await store.write(lambda tx: add_node(tx, public_key="key"))
    row = await store.read(lambda connection: node_rows.find_node_by_key(connection, "key"))
    assert row is not None
    assert (row.id, row.state, row.consecutive_faults) == (node_id, "active", 0)
    assert not await store.write(lambda tx: node_rows.set_state(tx, node_id=node_id, before="paused", after="revoked"))
    assert await store.write(lambda tx: node_rows.set_state(tx, node_id=node_id, before="active", after="paused"))
    with pytest.raises(Conflict):
        await store.write(lambda tx: add_node(tx, public_key="key"))


async def test_a_nodes_last_contact_never_goes_back_in_time(store: Store, clock: FakeClock) -> None:
    first, second = await store.write(lambda tx: (add_node(tx), add_node(tx)))
    later_ms = clock.now_ms() + 1_000
    await store.write(lambda tx: node_rows.touch_nodes(tx, {first: later_ms, second: later_ms + 1, "node_x": 1}))
    await store.write(lambda tx: node_rows.touch_nodes(tx, {first: later_ms - 1}))
    await store.write(lambda tx: node_rows.touch_nodes(tx, {}))

    def seen(connection: Connection) -> list[int]:
        return [row.last_seen_ms for row in node_rows.list_nodes(connection, after="", limit=9, account_id=None)]

    assert await store.read(seen) == [later_ms, later_ms + 1]
