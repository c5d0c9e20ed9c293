"""Guarded writes of payouts: eligible, stale, and by two hubs at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from computepool.hub.app import create_app
from computepool.hub.db.session import Tx
from computepool.hub.main import check
from computepool.hub.money.payouts import rows as payout_rows
from computepool.hub.money.payouts.rows import PayoutRow
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.money.payouts.conftest import UPI, Scene
from tests.hub.money.payouts.earning import LEAST, earn


async def _row(scene: Scene, payout_id: str) -> PayoutRow:
    row = await scene.hub.hub.store.read(lambda connection: payout_rows.get(connection, payout_id))
    assert row is not None
    return row


async def test_a_change_is_guarded_by_the_state(any_scene: Scene) -> None:
    scene = any_scene
    await scene.earn(LEAST)
    believed = await _row(scene, await scene.ask())
    await scene.round()  # now it is paid

    def unit(tx: Tx) -> list[bool]:
        return [
            payout_rows.change(tx, believed, state="rejected"),
            payout_rows.claim(tx, believed, until_ms=tx.now_ms + 1),
        ]

    assert await scene.hub.hub.store.write(unit) == [False, False]
    assert (await _row(scene, believed.id)).state == "paid"


async def test_a_claim_is_taken_once(any_scene: Scene) -> None:
    scene = any_scene
    payout_id = await scene.ask_earned()
    believed = await _row(scene, payout_id)
    until_ms = scene.clock.now_ms() + 1_000

    def unit(tx: Tx) -> bool:
        return payout_rows.claim(tx, believed, until_ms=until_ms)

    assert await asyncio.gather(*(scene.hub.hub.store.write(unit) for _ in range(3))) == [True, False, False]
    claimed = await _row(scene, payout_id)
    assert (claimed.tries, claimed.next_try_ms) == (1, until_ms)
    assert await scene.round() == 0, "it is somebody's until the claim ends"
    assert await scene.round(after_s=2) == 1


@pytest.mark.soak
async def test_two_hubs_decide_differently(tmp_path: Path, migrated_url: str) -> None:
    """One hub gets the owner's cancellation and the other an administrator's decision, at the same time."""
    settings = {"payout_round_s": 3600, "payouts_open_max": 1_000}
    async with running_hub(tmp_path, database_url=migrated_url, **settings) as first:
        pia = await first.account("pia", "provider")
        await earn(first, (await pia.get("/me")).json()["id"], 60 * LEAST)
        app = create_app(first.hub.settings)
        async with app.router.lifespan_context(app):
            second = HubDouble(app, first.admin_key)
            for number in range(30):
                payout_id = (await pia.post("/payouts", json={"amount": LEAST, **UPI})).json()["id"]
                word, body = [("approve", None), ("reject", {"reason": "no"})][number % 2]
                answers = await asyncio.gather(
                    pia.post(f"/payouts/{payout_id}/cancel"),
                    second.admin.post(f"/payouts/{payout_id}/{word}", json=body),
                )
                # An approved payout may still be cancelled afterwards; otherwise one of the two wins.
                done = [answer.status_code for answer in answers]
                assert done in ([200, 409], [409, 200]) or (word == "approve" and done == [200, 200]), done
            await second.close()
        assert check(first.hub.settings) == []
