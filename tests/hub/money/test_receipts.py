"""Receipts, checked offline: any change in one is found."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings, strategies as st
from pydantic import ValidationError

from computepool.cli.job import receipt_check
from computepool.core.money.money import CREDIT
from computepool.hub.money import credits as credit_service
from computepool.protocol.money.receipts import canonical
from computepool.protocol.tokens import b64, public_text
from computepool.testing.clock import FakeClock
from computepool.testing.hub import HubDouble, running_hub
from tests.hub.fixtures import BOTH, hub_fixture
from tests.hub.submitting import submit

Document = dict[str, Any]


hub = hub_fixture(on=BOTH, tick_s=10_000, signup_grant=100 * CREDIT)


async def settled(hub: HubDouble, sam: httpx2.AsyncClient, owner: httpx2.AsyncClient, **submission: Any) -> list[str]:
    """Sam's jobs, all done and paid for."""
    node = await hub.node(owner, region="in")
    # By name: else they would go to a node that has done well before.
    asked = {"needs": {"host": node.node_id}} | submission
    ids = await submit(sam, spec={"timeout_s": 3600}, **asked)
    for grant in await node.take(len(ids)):
        hub.hub.clock.advance(30_000)  # type: ignore[attr-defined]
        await node.report(grant.attempt_id, ran_ms=25_001, result='{"loss": 0.25}')
    return ids


async def receipt_of(client: httpx2.AsyncClient, job_id: str) -> Document:
    answer = await client.get(f"/jobs/{job_id}/receipt")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def keys(hub: HubDouble) -> dict[str, str]:
    return (await hub.client().get("/hub/keys")).json()["keys"]


async def test_a_receipt_passes_every_check(hub: HubDouble) -> None:
    sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
    [_, job_id] = await settled(hub, sam, pia, items=2)
    document = await receipt_of(sam, job_id)
    assert document == await receipt_of(pia, job_id) == await receipt_of(hub.admin, job_id)
    receipt = document["receipt"]
    assert (receipt["charge"], receipt["pay"], receipt["fee"]) == (38_890, 31_112, 7_778)
    assert (receipt["hold"], receipt["jobs"], receipt["refund"]) == (12_000_000, 2, 12_000_000 - 38_890)
    assert [row["kind"] for row in receipt["transfers"]] == ["hold", "pay", "fee", "refund"]
    first, last = receipt["transfers"][0]["seq"], receipt["transfers"][-1]["seq"]
    found = receipt_check.check(document, trusted=await keys(hub))
    assert [one.text for one in found if not one.ok] == []
    assert [one.text for one in found] == [
        f"It was signed with key {receipt['kid']} and has not changed since.",
        "That key is a known key of the hub.",
        (
            "The spot price of 5.60 lies between 1.40 and 22.40, around"
            " 10.00 × 0.80 (cpu) × 0.70 (in) = 5.60 by price table 1."
        ),
        "1 core at that price: 5.60 per hour.",
        "That is within the limit of 12.00 per hour.",
        "It was leased, started, finished and accepted in this order.",
        "25.001 s were billed, no more than the hub saw and the time limit allows.",
        "Attempt 1 of the job was paid for.",
        "5.60 per hour for that time, rounded down, is 0.03889.",
        "The fee is 20 % of it, 0.007778; the owner receives 0.031112.",
        "12.00 were put on hold, and 11.96111 were refunded.",
        "One run was paid for.",
        "The transfers are exactly these amounts, between these accounts, once.",
        "They are about this job and attempt, and were made when the result was accepted.",
        "24.00 were put on hold for the 2 jobs of the submission.",
        "Each of the 4 ledger rows has the hash of its content.",
        f"They are linked in the ledger's chain (rows {first} to {last}).",
    ]


async def test_jobs_on_own_nodes_with_budgets_and_from_earnings_have_receipts(hub: HubDouble) -> None:
    """On one's own node, with a budget, and paid from earnings that matured."""
    pia = await hub.account("pia", "provider", "submitter")
    sam = await hub.account("sam", "submitter")
    [own] = await settled(hub, pia, pia, needs={})  # not by name: for that one nothing would be set aside
    [budgeted] = await settled(hub, sam, pia, budget=200_000)
    for job_id, client in ((own, pia), (budgeted, sam)):
        document = await receipt_of(client, job_id)
        assert [one.text for one in receipt_check.check(document, trusted={}) if not one.ok] == []
    hub.hub.clock.advance(8 * 24 * 3600 * 1000)  # type: ignore[attr-defined]
    assert await credit_service.mature(hub.hub) == 1
    have = (await pia.get("/credits")).json()
    assert have["withdrawable"] > 1
    node = await hub.node(await hub.account("eve", "provider"), name="eves", tags=["eves"])
    money = {"budget": have["available"] - 1, "max_price": 10**14}  # all but a crumb, so that earnings are in it
    [job_id] = await submit(pia, spec={"timeout_s": 3600}, needs={"tags": ["eves"]}, **money)
    [grant] = await node.take()
    await node.report(grant.attempt_id)
    document = await receipt_of(pia, job_id)
    assert sum(row["kind"] == "hold" for row in document["receipt"]["transfers"]) == 2
    assert [one.text for one in receipt_check.check(document, trusted={}) if not one.ok] == []


async def test_there_is_no_receipt_before_or_without_a_result(hub: HubDouble) -> None:
    sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
    [job_id] = await submit(sam, needs={"cores": 500}, max_price=CREDIT)
    answer = await sam.get(f"/jobs/{job_id}/receipt")
    assert (answer.status_code, "this one is queued" in answer.json()["detail"]) == (409, True)
    node = await hub.node(pia)
    [failing] = await submit(sam)
    [grant] = await node.take()
    await node.report(grant.attempt_id, outcome="failed", reason="exit_nonzero", exit_code=1)
    assert (await sam.get(f"/jobs/{failing}/receipt")).status_code == 409
    assert (await pia.get(f"/jobs/{job_id}/receipt")).status_code == 404


# what is changed is found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Document, dict[str, str]]:
    async def make() -> tuple[Document, dict[str, str]]:
        async with running_hub(tmp_path_factory.mktemp("hub"), clock=FakeClock(), tick_s=10_000) as hub:
            sam, pia = await hub.account("sam", "submitter"), await hub.account("pia", "provider")
            [job_id, _] = await settled(hub, sam, pia, items=2)
            return await receipt_of(sam, job_id), await keys(hub)

    return asyncio.run(make())


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    else:
        yield path


def changed(document: Document, path: tuple[str | int, ...], value: Any) -> Document:
    other = copy.deepcopy(document)
    place: Any = other
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return other


def refused(document: Document, trusted: dict[str, str]) -> bool:
    """Not a receipt at all, or one that does not hold."""
    try:
        return not all(one.ok for one in receipt_check.check(document, trusted=trusted))
    except ValidationError:
        return True


def other_than(value: Any) -> st.SearchStrategy[Any]:
    if value is None:
        return st.text(min_size=1, max_size=8)
    if isinstance(value, int):
        near = st.sampled_from([value + 1, value - 1, -value, value * 2 + 1, 0, float(value), str(value), None])
        return (near | st.integers(-(2**70), 2**70)).filter(lambda new: new != value or type(new) is not type(value))
    flipped = st.integers(0, max(0, len(value) - 1)).map(
        lambda at: value[:at] + ("A" if value[at : at + 1] != "A" else "B") + value[at + 1 :]
    )
    return (flipped | st.text(max_size=50) | st.none()).filter(lambda new: new != value)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_is_changed_the_check_fails(made: tuple[Document, dict[str, str]], data: st.DataObject) -> None:
    document, trusted = made
    assert not refused(document, trusted)
    assert not refused(document, {})
    path = data.draw(st.sampled_from(list(leaves(document))))
    value: Any = document
    for part in path:
        value = value[part]
    other = changed(document, path, data.draw(other_than(value)))
    assert refused(other, trusted)
    assert refused(other, {})


def test_every_single_field_is_covered(made: tuple[Document, dict[str, str]]) -> None:
    document, _ = made
    for path in leaves(document):
        value: Any = document
        for part in path:
            value = value[part]
        wrong = value + 1 if isinstance(value, int) else f"{value}x" if value is not None else "x"
        assert refused(changed(document, path, wrong), {}), path


def test_nothing_can_be_added_removed_or_moved(made: tuple[Document, dict[str, str]]) -> None:
    document, trusted = made
    assert refused(document | {"more": 1}, trusted)
    assert refused({"receipt": document["receipt"]}, trusted)
    receipt = document["receipt"]
    for name in receipt:
        assert refused(document | {"receipt": {k: v for k, v in receipt.items() if k != name}}, trusted)
    rows = receipt["transfers"]
    for wrong in (rows[1:], rows[:-1], rows[::-1], [*rows, rows[-1]], []):
        assert refused(document | {"receipt": receipt | {"transfers": wrong}}, trusted)
    # The last character of the signature carries bits that no decoder looks at.
    signature = document["signature"]
    for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef":
        if letter != signature[-1]:
            assert refused(document | {"signature": signature[:-1] + letter}, trusted)


def resigned(document: Document, key: Ed25519PrivateKey, **changes: Any) -> Document:
    receipt = document["receipt"] | changes | {"key": public_text(key)}
    return {"receipt": receipt, "signature": b64(key.sign(canonical(receipt)))}


def test_a_stranger_signs_in_vain(made: tuple[Document, dict[str, str]]) -> None:
    document, trusted = made
    forged = resigned(document, Ed25519PrivateKey.generate())
    assert refused(forged, trusted)
    assert not refused(forged, {})  # which is why the check says when it does not know the key


#: What follows from other parts of a receipt. Even the hub could not sign another value without being found out.
COMPUTED = (
    "price", "charge", "pay", "fee", "refund", "hold", "jobs", "submitter", "owner", "attempt_id", "job_id",
    "accepted_at_ms",
)  # fmt: skip


@pytest.mark.parametrize("field", COMPUTED)
def test_not_even_the_hub_can_sign_other_numbers(made: tuple[Document, dict[str, str]], field: str) -> None:
    document, _ = made
    value = document["receipt"][field]
    wrong = value + 1 if isinstance(value, int) else f"{value}x"
    assert refused(resigned(document, Ed25519PrivateKey.generate(), **{field: wrong}), {})


def test_the_text_that_is_signed_is_canonical() -> None:
    assert canonical({"b": 1, "a": "é"}) == b'{"a":"\\u00e9","b":1}'
    assert json.loads(canonical({"b": [1, {"d": None}]})) == {"b": [1, {"d": None}]}
