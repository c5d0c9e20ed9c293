"""What people type in the place of an id: its beginning, a name, or `last`; among what they may see."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from computepool.testing.hub import HubDouble
from tests.hub.submitting import submit


async def ask(client: httpx2.AsyncClient, kind: str, word: str) -> httpx2.Response:
    return await client.get("/find", params={"kind": kind, "word": word})


async def found(client: httpx2.AsyncClient, kind: str, word: str) -> str:
    answer = await ask(client, kind, word)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def refused(client: httpx2.AsyncClient, kind: str, word: str) -> tuple[int, str]:
    answer = await ask(client, kind, word)
    return answer.status_code, str(answer.json().get("detail"))


async def named(client: httpx2.AsyncClient, name: str, **fields: Any) -> str:
    [job_id] = await submit(client, spec={"name": name}, **fields)
    return job_id


async def test_a_job_goes_by_its_id_the_beginning_of_it_its_name_its_key_and_last(any_hub: HubDouble) -> None:
    ann = await any_hub.account("ann", "submitter")
    first, second = await named(ann, "train.py"), await named(ann, "render.py")
    for word in (first, first[:-3], first.removeprefix("job_"), first[4:-2].upper(), "train.py"):
        assert await found(ann, "job", word) == first
    assert await found(ann, "job", "last") == second


@pytest.mark.soak
async def test_a_beginning_of_several_ids_is_an_error_that_lists_them(any_hub: HubDouble) -> None:
    ann = await any_hub.account("ann", "submitter")
    both = [await named(ann, "train.py"), await named(ann, "train.py")]
    for word in ("job_0", "train.py"):
        status, words = await refused(ann, "job", word)
        assert status == 409
        assert all(job_id in words for job_id in both)
        assert "train.py" in words


@pytest.mark.soak
async def test_what_is_not_there_is_said_with_what_could_be_given(hub: HubDouble) -> None:
    ann = await hub.account("ann", "submitter")
    for word in ("last", "job_01h", "nope", "%", "_", "job_'; drop table jobs"):
        status, words = await refused(ann, "job", word)
        assert status == 404
        assert "pool jobs list" in words
    for kind in ("job", "node", "group", "account"):
        assert (await refused(ann, kind, ""))[0] == 422
    assert (await refused(ann, "planet", "last"))[0] == 422


@pytest.mark.soak
async def test_nobody_finds_others_jobs_groups_or_accounts(any_hub: HubDouble) -> None:
    ann, bob = await any_hub.account("ann", "submitter"), await any_hub.account("bob", "submitter")
    job_id = await named(ann, "secret.py")
    group_id = (await ann.post("/groups", json={"name": "sweep"})).json()["id"]
    ann_id = (await ann.get("/me")).json()["id"]
    for kind, words in (
        ("job", (job_id, job_id[:-2], "secret.py", "last")),
        ("group", (group_id, group_id[:-2], "sweep", "last")),
        ("account", (ann_id, ann_id[:-2], "ann")),
    ):
        for word in words:
            assert (await refused(bob, kind, word))[0] == 404
    # An administrator sees ids of all, but `last` and names are his own.
    assert await found(any_hub.admin, "job", job_id[:-2]) == job_id
    assert await found(any_hub.admin, "account", "ann") == ann_id
    assert (await refused(any_hub.admin, "job", "last"))[0] == 404
    assert await found(ann, "account", "ann") == ann_id


async def test_a_group_goes_by_its_newest_name(any_hub: HubDouble) -> None:
    ann = await any_hub.account("ann", "submitter")
    ids = [(await ann.post("/groups", json={"name": "sweep"})).json()["id"] for _ in range(2)]
    assert [await found(ann, "group", word) for word in (ids[0][:-1], "sweep", "last")] == [ids[0], ids[1], ids[1]]


@pytest.mark.soak
async def test_a_node_goes_by_its_name_ones_own_first(any_hub: HubDouble) -> None:
    ann = await any_hub.account("ann", "submitter", "provider")
    bob = await any_hub.account("bob", "provider")
    own, other = await any_hub.node(ann, name="studio"), await any_hub.node(bob, name="Studio")
    third = await any_hub.node(bob, name="attic")
    assert await found(ann, "node", "STUDIO") == own.node_id
    assert await found(bob, "node", "studio") == other.node_id
    assert await found(ann, "node", "attic") == third.node_id
    assert await found(ann, "node", third.node_id[:-1]) == third.node_id
    assert await found(ann, "node", "last") == own.node_id
    status, words = await refused(any_hub.admin, "node", "studio")
    assert (status, own.node_id in words, other.node_id in words) == (409, True, True)


@pytest.mark.parametrize("kind", ["job", "group"])
async def test_a_search_by_name_looks_at_the_newest_alone(hub: HubDouble, kind: str) -> None:
    """Nobody makes the hub read millions of rows by asking for a name that none has."""
    hub.hub.settings.find_names_max = 2
    ann = await hub.account("ann", "submitter")
    for name in ("old", "new", "newest"):
        if kind == "job":
            await named(ann, name)
        else:
            await ann.post("/groups", json={"name": name})
    assert (await ask(ann, kind, "new")).status_code == 200
    assert (await ask(ann, kind, "old")).status_code == 404
