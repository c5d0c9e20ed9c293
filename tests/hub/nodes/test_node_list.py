"""The list of nodes with filters, and a node's view for its owner, for others and for an administrator."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from computepool.core.isolation import Level
from computepool.core.money.money import CREDIT
from computepool.hub.nodes import node_list
from computepool.testing.hub import HubDouble
from tests.hub.working import got

_CARD = {"name": "NVIDIA H100", "tier": "h100", "vram_mb": 81_559}


async def names(client: httpx2.AsyncClient, **query: Any) -> list[str]:
    """The names on all pages, in order."""
    found: list[str] = []
    after: str | None = None
    while True:
        answer = await client.get("/nodes", params={**query, **({} if after is None else {"after": after})})
        assert answer.status_code == 200, answer.text
        found += [node["name"] for node in answer.json()["nodes"]]
        after = answer.json()["next"]
        if after is None:
            return found


async def test_the_list_of_nodes_can_be_filtered(any_hub: HubDouble) -> None:
    pia, olaf = await any_hub.account("pia", "provider"), await any_hub.account("olaf", "provider")
    attic = await any_hub.node(pia, name="Attic 100%", region="de")
    await any_hub.node(pia, name="rack", gpus=[_CARD], region="in-south")
    lab = await any_hub.node(olaf, name="lab", region="de")
    for node in (attic, lab):
        await node.poll(wait_ms=0)
    await olaf.post(f"/nodes/{lab.node_id}/state", json={"state": "paused"})
    regions = {node["name"]: node["region"] for node in (await got(pia, "/nodes"))["nodes"]}

    assert await names(pia) == ["Attic 100%", "rack", "lab"]
    assert await names(pia, mine=True) == ["Attic 100%", "rack"]
    assert await names(pia, q="ATTIC") == ["Attic 100%"]
    assert await names(pia, q="%") == ["Attic 100%"], "it is a part of a name, no pattern"
    assert await names(pia, q="olaf") == ["lab"]
    assert await names(pia, q=lab.node_id) == ["lab"]
    assert await names(pia, state="paused") == ["lab"]
    assert await names(pia, state=["paused", "active"]) == ["Attic 100%", "rack", "lab"]
    assert await names(pia, tier="h100") == ["rack"]
    assert await names(pia, region=regions["rack"]) == ["rack"]
    assert await names(pia, region=regions["lab"], state="active") == ["Attic 100%"]
    assert await names(pia, online=False, tier="h100") == []
    assert (await pia.get("/nodes", params={"state": "asleep"})).status_code == 422


@pytest.mark.soak
async def test_a_page_with_few_matches_continues(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limited number of nodes is scanned for one page, and none is left out or repeated."""
    monkeypatch.setattr(node_list, "_STEP", 2)
    monkeypatch.setattr(node_list, "SCANNED_MAX", 4)
    pia = await hub.account("pia", "provider")
    for number in range(11):
        await hub.node(pia, name=f"n{number}", gpus=[_CARD] if number % 5 == 0 else [])
    for limit in (1, 2, 3, 100):
        assert await names(pia, limit=limit) == [f"n{number}" for number in range(11)]
        assert await names(pia, limit=limit, tier="h100") == ["n0", "n5", "n10"]
        assert await names(pia, limit=limit, tier="cpu") == [f"n{n}" for n in range(11) if n % 5]


async def test_a_nodes_view_depends_on_who_asks(hub: HubDouble) -> None:
    pia, sam = await hub.account("pia", "provider"), await hub.account("sam", "submitter")
    node = await hub.node(pia, name="attic", isolation="namespace")
    await node.poll(wait_ms=0)
    path = f"/nodes/{node.node_id}"
    await pia.put("/market/floor", json={"floor": 2 * CREDIT})
    seen = await got(pia, path)
    assert seen["sentence"] == "The node is online and takes jobs that fit."
    assert seen["sandbox"] == Level.NAMESPACE.meaning
    assert (seen["floor"], seen["floor_is_default"]) == (2 * CREDIT, True)
    assert seen["can_manage"] is True
    assert seen["can_pardon"] is False
    await pia.put(f"{path}/floor", json={"floor": 3 * CREDIT})
    seen = await got(pia, path)
    assert (seen["floor"], seen["floor_is_default"]) == (3 * CREDIT, False)

    others = await got(sam, path)
    assert (others["floor"], others["can_manage"], others["can_pardon"]) == (None, False, False)
    await pia.post(f"{path}/state", json={"state": "paused"})
    assert (await got(sam, path))["sentence"] == "The node is paused: it takes no new jobs until its owner resumes it."
    await pia.post(f"{path}/revoke")
    assert (await got(sam, path))["sentence"] == "The node was revoked: its key is refused permanently."
    assert await names(sam, state="revoked") == ["attic"]
