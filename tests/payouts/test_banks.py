"""The two banks on their own: the operator's file, and how RazorpayX's answers are read."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from computepool.core.errors import Forbidden, NotFound
from computepool.core.money.payouts import BankTarget, UpiTarget, Word
from computepool.hub.money.banks.base import Order
from computepool.hub.money.banks.choice import open_bank
from computepool.hub.money.banks.manual import COLUMNS, Listed, Manual, list_for_bank, safe_cell
from computepool.hub.money.banks.razorpayx import RazorpayX
from computepool.hub.settings import Settings
from tests.payouts.bank import NEVER_ANSWERED, Conduct, MisbehavingBank, webhook

RAO = BankTarget(account_number="050100123456789", ifsc="HDFC0000123", name="Asha Rao")
ORDER = Order(reference="payout_1", paise=50_000, target=UpiTarget("asha@okaxis"), account_id="acc_1")


def settings_for(bank: MisbehavingBank, **changes: object) -> Settings:
    return Settings(**{**bank.settings(), "payout_call_s": 3, **changes})


def listed(**fields: object) -> Listed:
    defaults = {
        "reference": "payout_1",
        "amount": 612_340_000,
        "target": RAO,
        "account": "pia",
        "requested_at": "2026-11-15",
    }
    return Listed(**(defaults | fields))  # type: ignore[arg-type]


def test_the_file_for_the_bank() -> None:
    text = list_for_bank([listed(), listed(reference="payout_2", target=UpiTarget("asha@okaxis"))])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == list(COLUMNS)
    assert rows[0]["account_number"] == "050100123456789"
    assert (rows[0]["amount_inr"], rows[0]["name"], rows[0]["upi"]) == ("612.34", "Asha Rao", "")
    assert (rows[1]["method"], rows[1]["upi"], rows[1]["ifsc"]) == ("upi", "asha@okaxis", "")


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "＝1+1"])
def test_no_cell_is_a_formula(cell: str) -> None:
    assert safe_cell(cell) == f"'{cell}"
    text = list_for_bank([listed(account=cell)])
    [row] = csv.DictReader(io.StringIO(text, newline=""))
    assert row["account"].startswith("'")


@given(st.text(max_size=30))
def test_a_safe_cell_keeps_its_text(text: str) -> None:
    assert safe_cell(text).removeprefix("'").endswith(text.removeprefix("'"))
    assert not safe_cell(text).startswith(("=", "+", "-", "@"))


async def test_the_operator_takes_everything() -> None:
    bank = Manual()
    assert (await bank.submit(ORDER)).word is Word.PROCESSING
    assert (await bank.look_up(ORDER, None)).word is Word.PROCESSING
    with pytest.raises(NotFound):
        bank.read_notice(b"{}", "")


async def test_an_unknown_provider() -> None:
    with pytest.raises(NotFound):
        async with open_bank("nobody", Settings()):
            pass


@pytest.mark.parametrize(
    ("conduct", "word"),
    [
        (Conduct.PAY, Word.PAID),
        (Conduct.PROCESS, Word.PROCESSING),
        (Conduct.FAIL, Word.REFUSED),
        (Conduct.REFUSE, Word.REFUSED),
        (Conduct.HANG, Word.UNCLEAR),
        (Conduct.HANG_PAID, Word.UNCLEAR),
        (Conduct.ERROR, Word.UNCLEAR),
        (Conduct.RESET, Word.UNCLEAR),
        (Conduct.GARBLE_PAID, Word.UNCLEAR),
        (Conduct.BUSY, Word.UNCLEAR),
        (Conduct.LOCKED_OUT, Word.UNCLEAR),
    ],
)
async def test_how_an_answer_is_read(bank: MisbehavingBank, conduct: Conduct, word: Word) -> None:
    bank.conduct.append(conduct)
    patience_s = 0.25 if conduct in NEVER_ANSWERED else 3
    async with open_bank("razorpayx", settings_for(bank, payout_call_s=patience_s)) as provider:
        answer = await provider.submit(ORDER)
        assert answer.word is word
        assert (answer.ref is not None) == (conduct in (Conduct.PAY, Conduct.PROCESS, Conduct.FAIL))


async def test_the_same_order_twice_is_one_payout(bank: MisbehavingBank) -> None:
    async with open_bank("razorpayx", settings_for(bank)) as provider:
        assert await provider.submit(ORDER) == await provider.submit(ORDER)
        assert (await provider.look_up(ORDER, None)).word is Word.PAID
        other = Order(reference="payout_2", paise=1, target=ORDER.target, account_id="acc_1")
        assert (await provider.look_up(other, None)).word is Word.ABSENT
        assert (await provider.look_up(ORDER, "pout_none")).word is Word.UNCLEAR
    assert len(bank.books.payouts) == 1


async def test_another_body_under_the_same_key_is_no_refusal(bank: MisbehavingBank) -> None:
    """It proves that the bank has had this order before."""
    async with open_bank("razorpayx", settings_for(bank)) as provider:
        await provider.submit(ORDER)
        other = Order(reference=ORDER.reference, paise=99_900, target=ORDER.target, account_id="acc_1")
        assert (await provider.submit(other)).word is Word.UNCLEAR
        assert (await provider.look_up(other, None)).word is Word.UNCLEAR, "another amount is not ours"


async def test_a_wrong_secret_never_fails_a_payout(bank: MisbehavingBank) -> None:
    async with open_bank("razorpayx", settings_for(bank, razorpayx_key_secret="no")) as provider:
        assert (await provider.submit(ORDER)).word is Word.UNCLEAR
        assert (await provider.look_up(ORDER, None)).word is Word.UNCLEAR


@pytest.mark.parametrize(("paise", "mode"), [(50_000, "IMPS"), (50_000_000, "IMPS"), (50_000_001, "NEFT")])
async def test_large_transfers_go_another_way(bank: MisbehavingBank, paise: int, mode: str) -> None:
    order = Order(reference="payout_1", paise=paise, target=RAO, account_id="acc_1")
    async with open_bank("razorpayx", settings_for(bank)) as provider:
        await provider.submit(order)
    assert [payout["mode"] for payout in bank.books.payouts] == [mode]


@pytest.mark.parametrize(
    ("status", "word"),
    [
        *((status, Word.PROCESSING) for status in ("queued", "pending", "scheduled", "processing")),
        ("processed", Word.PAID),
        *((status, Word.REFUSED) for status in ("reversed", "failed", "rejected", "cancelled")),
        ("", Word.UNCLEAR),
        ("PROCESSED", Word.UNCLEAR),
    ],
)
def test_every_status(bank: MisbehavingBank, status: str, word: Word) -> None:
    payout = {
        "id": "pout_1",
        "entity": "payout",
        "amount": 100,
        "currency": "INR",
        "reference_id": "payout_1",
    }
    sent = webhook("payout.updated", payout | {"status": status})
    notice = RazorpayX(settings_for(bank)).read_notice(
        sent["content"], sent["headers"]["X-Razorpay-Signature"]
    )
    assert notice is not None
    assert (notice.reference, notice.paise, notice.answer.word) == ("payout_1", 100, word)


def test_webhooks_need_a_secret(bank: MisbehavingBank) -> None:
    """An empty secret must not mean that an empty key signs."""
    sent = webhook("payout.processed", {}, secret="")
    with pytest.raises(NotFound):
        RazorpayX(settings_for(bank, razorpayx_webhook_secret="")).read_notice(
            sent["content"], sent["headers"]["X-Razorpay-Signature"]
        )


@given(body=st.binary(max_size=100), signature=st.text(max_size=80))
def test_no_signature_by_chance(body: bytes, signature: str) -> None:
    provider = RazorpayX(Settings(razorpayx_webhook_secret="s"))  # type: ignore[arg-type]
    with pytest.raises(Forbidden):
        provider.read_notice(body, signature)


# settings


def test_a_provider_needs_its_keys(tmp_path: Path) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(data_dir=tmp_path, payout_provider="razorpayx", razorpayx_key_secret="hush")  # type: ignore[arg-type]
    assert "razorpayx_key_id" in str(refused.value)
    assert "hush" not in str(refused.value)


def test_secrets_are_not_printed(bank: MisbehavingBank) -> None:
    shown = repr(settings_for(bank)) + str(settings_for(bank)) + settings_for(bank).model_dump_json()
    for secret in ("very secret indeed", "shared with the hub"):
        assert secret not in shown
