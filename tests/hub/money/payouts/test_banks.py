"""The two banks: the manual one and its CSV file, and how RazorpayX's answers are read."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from computepool.core.errors import Forbidden, NotFound
from computepool.core.money.payouts import BankStatus, BankTarget, UpiTarget
from computepool.hub.money.banks.base import Order
from computepool.hub.money.banks.choice import Manual, open_bank
from computepool.hub.money.banks.razorpayx import RazorpayX
from computepool.hub.money.csv_files import csv_lines, safe_cell
from computepool.hub.settings import Settings
from tests.hub.money.payouts.bank import NEVER_ANSWERED, Conduct, MisbehavingBank, webhook

RAO = BankTarget(account_number="050100123456789", ifsc="HDFC0000123", name="Asha Rao")
ORDER = Order(reference="payout_1", paise=50_000, target=UpiTarget("asha@okaxis"), account_id="acc_1")


def settings_for(bank: MisbehavingBank, **changes: object) -> Settings:
    return Settings(**{**bank.settings(), "payout_call_s": 3, **changes})


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "＝1+1"])
def test_no_cell_is_a_formula(cell: str) -> None:
    assert safe_cell(cell) == f"'{cell}"
    [row] = csv.reader(io.StringIO(csv_lines([[cell, -5]]), newline=""))
    assert row == [f"'{cell}", "-5"]


@given(st.text(max_size=30))
def test_a_safe_cell_keeps_its_text(text: str) -> None:
    assert safe_cell(text).removeprefix("'").endswith(text.removeprefix("'"))
    assert not safe_cell(text).startswith(("=", "+", "-", "@"))


async def test_the_manual_bank_accepts_every_order() -> None:
    bank = Manual()
    assert (await bank.submit(ORDER)).status is BankStatus.PROCESSING
    assert (await bank.look_up(ORDER, None)).status is BankStatus.PROCESSING
    with pytest.raises(NotFound):
        bank.read_notice(b"{}", "")


async def test_an_unknown_provider_is_refused() -> None:
    with pytest.raises(NotFound):
        async with open_bank("nobody", Settings()):
            pass


@pytest.mark.parametrize(
    ("conduct", "word"),
    [
        (Conduct.PAY, BankStatus.PAID),
        (Conduct.PROCESS, BankStatus.PROCESSING),
        (Conduct.FAIL, BankStatus.REFUSED),
        (Conduct.REFUSE, BankStatus.REFUSED),
        (Conduct.HANG, BankStatus.UNCLEAR),
        (Conduct.HANG_PAID, BankStatus.UNCLEAR),
        (Conduct.ERROR, BankStatus.UNCLEAR),
        (Conduct.RESET, BankStatus.UNCLEAR),
        (Conduct.GARBLE_PAID, BankStatus.UNCLEAR),
        (Conduct.BUSY, BankStatus.UNCLEAR),
        (Conduct.LOCKED_OUT, BankStatus.UNCLEAR),
    ],
)
async def test_every_answer_of_the_bank_is_read_as_what_it_proves(
    bank: MisbehavingBank, conduct: Conduct, word: BankStatus
) -> None:
    bank.conduct.append(conduct)
    patience_s = 1 if conduct in NEVER_ANSWERED else 20
    async with open_bank("razorpayx", settings_for(bank, payout_call_s=patience_s)) as provider:
        answer = await provider.submit(ORDER)
        assert answer.status is word
        assert (answer.ref is not None) == (conduct in (Conduct.PAY, Conduct.PROCESS, Conduct.FAIL))


async def test_the_same_order_twice_is_one_payout(bank: MisbehavingBank) -> None:
    async with open_bank("razorpayx", settings_for(bank)) as provider:
        assert await provider.submit(ORDER) == await provider.submit(ORDER)
        assert (await provider.look_up(ORDER, None)).status is BankStatus.PAID
        other = Order(reference="payout_2", paise=1, target=ORDER.target, account_id="acc_1")
        assert (await provider.look_up(other, None)).status is BankStatus.ABSENT
        assert (await provider.look_up(ORDER, "pout_none")).status is BankStatus.UNCLEAR
    assert len(bank.books.payouts) == 1


async def test_another_body_under_the_same_key_is_no_refusal(bank: MisbehavingBank) -> None:
    """The refusal proves that the bank has had this order before."""
    async with open_bank("razorpayx", settings_for(bank)) as provider:
        await provider.submit(ORDER)
        other = Order(reference=ORDER.reference, paise=99_900, target=ORDER.target, account_id="acc_1")
        assert (await provider.submit(other)).status is BankStatus.UNCLEAR
        assert (await provider.look_up(other, None)).status is BankStatus.UNCLEAR, "another amount is not ours"


async def test_a_wrong_secret_never_fails_a_payout(bank: MisbehavingBank) -> None:
    async with open_bank("razorpayx", settings_for(bank, razorpayx_key_secret="no")) as provider:
        assert (await provider.submit(ORDER)).status is BankStatus.UNCLEAR
        assert (await provider.look_up(ORDER, None)).status is BankStatus.UNCLEAR


@pytest.mark.parametrize(("paise", "mode"), [(50_000, "IMPS"), (50_000_000, "IMPS"), (50_000_001, "NEFT")])
async def test_large_transfers_go_by_neft(bank: MisbehavingBank, paise: int, mode: str) -> None:
    order = Order(reference="payout_1", paise=paise, target=RAO, account_id="acc_1")
    async with open_bank("razorpayx", settings_for(bank)) as provider:
        await provider.submit(order)
    assert [payout["mode"] for payout in bank.books.payouts] == [mode]


@pytest.mark.parametrize(
    ("status", "word"),
    [
        *((status, BankStatus.PROCESSING) for status in ("queued", "pending", "scheduled", "processing")),
        ("processed", BankStatus.PAID),
        *((status, BankStatus.REFUSED) for status in ("reversed", "failed", "rejected", "cancelled")),
        ("", BankStatus.UNCLEAR),
        ("PROCESSED", BankStatus.UNCLEAR),
    ],
)
def test_every_status_of_the_bank_is_read(bank: MisbehavingBank, status: str, word: BankStatus) -> None:
    payout = {"id": "pout_1", "entity": "payout", "amount": 100, "currency": "INR", "reference_id": "payout_1"}
    sent = webhook("payout.updated", payout | {"status": status})
    notice = RazorpayX(settings_for(bank)).read_notice(sent["content"], sent["headers"]["X-Razorpay-Signature"])
    assert notice is not None
    assert (notice.reference, notice.paise, notice.answer.status) == ("payout_1", 100, word)


def test_webhooks_need_a_secret(bank: MisbehavingBank) -> None:
    """An empty secret must not mean that an empty key signs."""
    sent = webhook("payout.processed", {}, secret="")
    with pytest.raises(NotFound):
        RazorpayX(settings_for(bank, razorpayx_webhook_secret="")).read_notice(
            sent["content"], sent["headers"]["X-Razorpay-Signature"]
        )


@pytest.mark.soak
@given(body=st.binary(max_size=100), signature=st.text(max_size=80))
def test_no_random_signature_is_accepted(body: bytes, signature: str) -> None:
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
