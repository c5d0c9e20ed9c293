"""Amounts in Python programs are exact or refused, and a budget is shared exactly among batches."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from computepool import Pool
from computepool.core.money.money import AMOUNT_MAX, CREDIT
from computepool.sdk import BadRequest, InsufficientCredits
from computepool.sdk.client import session
from computepool.sdk.client.amounts import microcredits
from computepool.sdk.jobs import options
from tests.sdk.fake_hub import FakeHub, Refusal


def double(x: int) -> int:
    return 2 * x


@pytest.mark.parametrize(
    ("given", "micro"),
    [
        ("2.5", 2_500_000),
        ("0", 0),
        (3, 3_000_000),
        (0, 0),
        (Decimal("0.000001"), 1),
        (Decimal("1E+3"), 1_000_000_000),
        ("9000000000", AMOUNT_MAX),
    ],
)
def test_amounts_are_exact(given: Any, micro: int) -> None:
    assert microcredits(given, what="budget") == micro


@pytest.mark.parametrize("given", [2.5, 2.0, float("nan"), float("inf"), 0.1 + 0.2])
def test_a_float_is_refused(given: float) -> None:
    with pytest.raises(BadRequest, match=r"max_price: .* is a float, which is not exact"):
        microcredits(given, what="max_price")


@pytest.mark.parametrize(
    "given",
    [-1, "-1", "1e3", "NaN", "", " ", "1,5", "1_000", "0.0000001", Decimal("NaN"), Decimal("-1"), Decimal("1e-7"),
     "9000000001", 10**20, True, None, b"1", [1], "٣"],
    ids=repr,
)  # fmt: skip
def test_an_invalid_amount_is_refused_with_the_name_of_its_option(given: Any) -> None:
    with pytest.raises(BadRequest, match=r"^budget: "):
        microcredits(given, what="budget")


def test_a_submission_carries_its_price_limit_and_budget(hub: FakeHub, pool: Pool) -> None:
    assert pool.submit(double, 4, max_price="2.5", budget=1).result() == 8
    request = next(iter(hub.jobs.values()))["request"]
    assert (request.max_price, request.budget) == (2_500_000, CREDIT)
    assert pool.submit(double, 4, max_price=0).result() == 8
    assert [job["request"].max_price for job in hub.jobs.values()] == [2_500_000, 0]


def test_a_submission_with_a_float_is_not_sent(hub: FakeHub, pool: Pool) -> None:
    with pytest.raises(BadRequest, match=r'pass a string: "0\.3"'):
        pool.submit(double, 1, max_price=0.3)  # type: ignore[typeddict-item]
    assert not hub.jobs


def test_the_batches_of_a_map_share_one_budget(hub: FakeHub, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ITEMS_MAX", 7)
    assert list(pool.map(double, range(50), budget="1.000049", chunksize=1)) == [2 * x for x in range(50)]
    requests = {id(job["request"]): job["request"] for job in hub.jobs.values()}.values()
    assert len(requests) >= 8
    assert all(request.budget == 20_000 * len(request.items) for request in requests)
    assert sum(request.budget for request in requests) == CREDIT


def test_a_budget_needs_a_known_number_of_items(pool: Pool) -> None:
    with pytest.raises(BadRequest, match="pass a list or another sequence"):
        pool.map(double, iter([1, 2]), budget="1")
    with pytest.raises(BadRequest, match="too small"):
        pool.map(double, [1, 2, 3], budget="0.000002")


def test_maps_of_different_lengths_have_different_shares_of_a_budget(hub: FakeHub, pool: Pool) -> None:
    work = pool.options(budget=1)
    assert list(work.map(double, [1, 2])) == [2, 4]
    assert list(work.map(double, [1, 2, 3, 4])) == [2, 4, 6, 8]
    assert work.submit(double, 1).result() == 2
    shares = {request.budget // len(request.items) for request in (job["request"] for job in hub.jobs.values())}
    assert shares == {CREDIT // 2, CREDIT // 4, CREDIT}


def test_insufficient_credits_have_their_own_error(hub: FakeHub, pool: Pool) -> None:
    def refuse(method: str, path: str) -> None:
        if path == "/jobs":
            raise Refusal(402, "insufficient_credits", "16.00 credits must be put on hold; 4.00 are missing.")

    hub.fault = refuse
    with pytest.raises(InsufficientCredits, match=r"4\.00 are missing"):
        pool.submit(double, 1).result()


def test_functions_scripts_commands_and_bare_requirements_are_quoted(hub: FakeHub, pool: Pool, tmp_path: Any) -> None:
    script = tmp_path / "train.py"
    script.write_text("1")
    (tmp_path / "data.csv").write_text("1")
    assert pool.quote(double, items=3, max_price="4").hold_total == 12 * CREDIT
    assert pool.quote(script, ["--x"], timeout="30m").hold_total == 8 * CREDIT
    assert pool.quote(["ffmpeg", "-i", "x"], name="cut").max_price == 16 * CREDIT
    assert pool.quote(vram=16, timeout="2h", inputs=[tmp_path / "data.csv"]).sentences
    names = [(quote.name, quote.kind, quote.items, quote.spec_digest is not None) for quote in hub.quotes]
    assert names == [("double", "function", 3, True), ("train.py", "script", 1, True), ("cut", "command", 1, True),
                     (None, None, 1, False)]  # fmt: skip
    assert (hub.quotes[3].needs.vram_mb, hub.quotes[3].timeout_s) == (16_000, 7_200)
    assert not hub.jobs
    assert not hub.blobs


def test_a_quote_has_the_digest_of_the_submitted_spec(hub: FakeHub, pool: Pool) -> None:
    from computepool.protocol.jobs.jobs import spec_digest

    pool.quote(double, cores=2)
    pool.submit(double, 1, cores=2).result()
    [job] = hub.jobs.values()
    assert hub.quotes[0].spec_digest == spec_digest(job["request"].spec.body())


@pytest.mark.parametrize(
    ("given", "gpus", "vram_mb", "ram_mb"),
    [
        ({"type": "ml"}, 1, 8_000, 8_000),
        ({"type": "ml", "vram": 24, "ram": "1GB"}, 1, 24_000, 1_000),
        ({"type": "ml", "gpus": 0}, 0, 0, 8_000),
        ({"type": "ml", "gpus": 2}, 2, 8_000, 8_000),
        ({"type": "gaming"}, 1, 0, None),
        ({"type": "other"}, 0, 0, None),
        ({}, 0, 0, None),
    ],
)
def test_explicit_options_override_the_defaults_of_a_type(
    given: Any, gpus: int, vram_mb: int, ram_mb: int | None
) -> None:
    needs = options.needs(given)
    assert (needs.gpus, needs.vram_mb, needs.ram_mb) == (gpus, vram_mb, ram_mb)
    assert options.terms(given) == {}  # a type has no price


def test_a_type_is_added_to_the_labels(hub: FakeHub, pool: Pool) -> None:
    pool.submit(double, 1, type="other", labels=["night"]).result()
    assert next(iter(hub.jobs.values()))["request"].spec.labels == ["night", "other"]
    with pytest.raises(BadRequest, match="'toys' is not one of ml, gaming, other"):
        pool.submit(double, 1, type="toys")


def test_verify_and_confidence_exclude_each_other() -> None:
    with pytest.raises(BadRequest, match=r"^Use either verify or confidence, not both\.$"):
        options.terms({"verify": "quorum:3", "confidence": 0.9})
    with pytest.raises(BadRequest, match=r"^verify: write none, adaptive, quorum:K with K from 2 to 5"):
        options.terms({"verify": "quorum:9"})
