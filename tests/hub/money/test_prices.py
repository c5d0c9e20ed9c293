"""The price table: consecutive versions, precise refusals, and leased jobs that keep their prices."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from computepool.core.money.money import CREDIT
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.fixtures import hub_fixture
from tests.hub.submitting import submit
from tests.hub.untouched import untouched

EDITED = ("base", "tiers", "regions", "fee_ppm", "spot_range", "payout_min")


hub = hub_fixture(tick_s=10_000)


async def edited(client: httpx2.AsyncClient, **changes: Any) -> dict[str, Any]:
    """The newest table, as a request, with these changes."""
    table = (await client.get("/prices")).json()
    return {name: table[name] for name in EDITED} | {"based_on": table["version"]} | changes


async def test_the_first_price_table_is_the_documented_one(hub: HubDouble, sam: httpx2.AsyncClient) -> None:
    table = (await sam.get("/prices")).json()
    assert (table["version"], table["economy"], table["base"]) == (1, "market", 10 * CREDIT)
    assert (table["fee_ppm"], table["payout_min"], table["spot_range"]) == (200_000, 500 * CREDIT, 4)
    assert table["regions"] == {"in": 70, "eu": 95, "us": 100, "uk": 100}
    assert (table["tiers"]["rtx-4090"], table["tiers"]["gtx-1080ti"], table["tiers"]["cpu"]) == (300, 150, 80)


async def test_a_new_version_holds_and_the_old_one_stays(hub: HubDouble) -> None:
    old = (await hub.admin.get("/prices")).json()
    answer = await hub.admin.put("/prices", json=await edited(hub.admin, base=12 * CREDIT))
    assert answer.status_code == 200, answer.text
    new = answer.json()
    assert (new["version"], new["base"], new["digest"] != old["digest"]) == (2, 12 * CREDIT, True)
    assert (await hub.admin.get("/prices")).json() == new
    assert (await hub.admin.get("/prices/1")).json() == old
    assert (await hub.admin.get("/prices/3")).status_code == 404
    versions = (await hub.admin.get("/prices/versions")).json()["versions"]
    assert [(one["version"], one["digest"]) for one in versions] == [(2, new["digest"]), (1, old["digest"])]
    assert versions[0]["created_by"] == (await hub.admin.get("/me")).json()["id"]
    assert hub.hub.money.market.table.base == 12 * CREDIT
    events = (await hub.admin.get("/events", params={"limit": 500})).json()["events"]
    assert [e["reason"] for e in events if e["action"] == "prices.changed"] == ["version 1", "version 2"]


async def test_a_change_of_an_old_table_is_refused(hub: HubDouble) -> None:
    request = await edited(hub.admin, base=12 * CREDIT)
    assert (await hub.admin.put("/prices", json=request)).status_code == 200
    async with untouched(hub):
        answer = await hub.admin.put("/prices", json=request)
    assert (answer.status_code, answer.json()["field"]) == (409, "based_on")
    assert "version 2 is the newest" in answer.json()["detail"]


async def test_of_many_who_change_the_same_table_one_succeeds(hub: HubDouble) -> None:
    requests = [await edited(hub.admin, base=number * CREDIT) for number in range(1, 9)]
    answers = await asyncio.gather(*(hub.admin.put("/prices", json=request) for request in requests))
    assert sorted(answer.status_code for answer in answers) == [200, *[409] * 7]
    assert (await hub.admin.get("/prices")).json()["version"] == 2


BAD: list[tuple[dict[str, Any], str]] = [
    *(({"base": bad}, "base") for bad in (-1, 1.5, "10", True, 10**13, 10**30)),
    *(({"fee_ppm": bad}, "fee_ppm") for bad in (-1, 200_001, 900_000, 1_000_000, 0.2, "20%", True)),
    *(({"spot_range": bad}, "spot_range") for bad in (0, 101, 1.5)),
    *(({"payout_min": bad}, "payout_min") for bad in (0, -5, 1.5, 999_999)),
    *(({"regions": {"in": bad}}, "regions") for bad in (0, -70, 100_001)),
    ({"regions": {"india": 60, "in": 70}}, "regions"),
    ({"tiers": {"cpu": 80}}, "tiers"),
    ({"tiers": {"cpu": 0, "gpu": 100}}, "tiers"),
    ({"tiers": {"cpu": 80, "gpu": 100_001}}, "tiers"),
    ({"tiers": {"cpu": 0.8, "gpu": 1}}, "tiers.cpu"),
    ({"tiers": {"cpu": 80, "gpu": 100, "RTX 4090": 300}}, "tiers.RTX 4090.[key]"),
    ({"regions": {"": 70}}, "regions..[key]"),
    ({"economy": "none"}, "economy"),
    ({"based_on": 0}, "based_on"),
    ({"based_on": "1"}, "based_on"),
]


async def test_bad_tables_change_nothing(hub: HubDouble) -> None:
    good = await edited(hub.admin)
    async with untouched(hub):
        for changes, field in BAD:
            answer = await hub.admin.put("/prices", json=good | changes)
            assert answer.status_code == 422, (changes, answer.text)
            assert answer.json()["field"] == field, (changes, answer.text)
        for name in EDITED:
            part = {key: value for key, value in good.items() if key != name}
            answer = await hub.admin.put("/prices", json=part)
            assert (answer.status_code, answer.json()["field"]) == (422, name)
    assert hub.hub.money.market.table.version == 1


async def test_the_fee_is_bounded_by_a_setting(hub: HubDouble, tmp_path: Path) -> None:
    answer = await hub.admin.put("/prices", json=await edited(hub.admin, fee_ppm=900_000))
    said = "The fee is at most 20 %; to allow more, set COMPUTEPOOL_FEE_MAX_PERCENT on the hub."
    assert (answer.status_code, answer.json()["detail"]) == (422, said)
    assert (await hub.admin.get("/prices")).json()["fee_max_ppm"] == 200_000
    (tmp_path / "greedy").mkdir()
    async with running_hub(tmp_path / "greedy", fee_max_percent=30) as greedy:
        assert (await greedy.admin.get("/prices")).json()["fee_max_ppm"] == 300_000
        for fee_ppm, status in ((300_001, 422), (300_000, 200)):
            answer = await greedy.admin.put("/prices", json=await edited(greedy.admin, fee_ppm=fee_ppm))
            assert answer.status_code == status, answer.text


async def test_regions_are_kept_under_the_names_they_are_looked_up_by(hub: HubDouble) -> None:
    answer = await hub.admin.put("/prices", json=await edited(hub.admin, regions={"india": 65, "germany": 90}))
    assert answer.json()["regions"] == {"in": 65, "eu": 90}


async def test_leased_jobs_keep_their_price_and_their_table(hub: HubDouble) -> None:
    sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
    node = await hub.node(pia)
    [before] = await submit(sam, spec={"timeout_s": 3600})
    [grant] = await node.take()
    answer = await hub.admin.put("/prices", json=await edited(hub.admin, base=5 * CREDIT, fee_ppm=100_000))
    assert answer.status_code == 200, answer.text
    [after] = await submit(sam, spec={"timeout_s": 3600})
    [second] = await node.take()
    assert (grant.price, second.price) == (8 * CREDIT, 4 * CREDIT)
    hub.hub.clock.advance(360_000)  # type: ignore[attr-defined]
    for held in (grant, second):
        await node.report(held.attempt_id, ran_ms=360_000)
    first_cost = (await sam.get(f"/jobs/{before}/cost")).json()
    second_cost = (await sam.get(f"/jobs/{after}/cost")).json()
    assert (first_cost["price_version"], first_cost["charge"], first_cost["fee"]) == (1, 800_000, 160_000)
    assert (second_cost["price_version"], second_cost["charge"], second_cost["fee"]) == (2, 400_000, 40_000)


@pytest.mark.parametrize("economy", ["time-bank", "none"])
async def test_other_economies_have_fixed_prices(tmp_path: Path, economy: str) -> None:
    async with running_hub(tmp_path, economy=economy) as hub:
        answer = await hub.admin.put("/prices", json=await edited(hub.admin, base=CREDIT))
        assert answer.status_code == 409
        assert "its prices are fixed" in answer.json()["detail"]
