"""The rules of payouts as values: what is valid, who must approve, and that no answer leads astray."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, strategies as st

from computepool.core.errors import BadRequest
from computepool.core.money.money import CREDIT
from computepool.core.money.payouts import (
    AT_THE_BANK,
    CANCELLABLE,
    DECIDED,
    PAISA,
    RETURNED,
    Absence,
    ApprovalRules,
    BankReply,
    BankRequest,
    BankStatus,
    BankTarget,
    PayoutReason,
    PayoutState,
    UpiTarget,
    approver_refusal,
    bank_target,
    check_amount,
    contradicts,
    judge,
    judge_absence,
    may_become,
    needs_approval,
    paise_of,
    reason_parts,
    reason_text,
    rupees_of,
    target_from_json,
    target_to_json,
    upi_target,
)

RULES = ApprovalRules(first=True, above=10_000 * CREDIT, not_own=False, two_approvals=False)
BAD_NUMBERS = (
    "", "12345678", "1" * 19, "12345678a", "123 456 789", "-123456789", "١٢٣٤٥٦٧٨٩", "123456789\n",
)  # fmt: skip
BAD_IFSC = (
    "", "SBIN1001234", "sbin0001234", "SBI00001234", "SBIN000123", "SBIN00012345", "SBIN0001234 ", "SBIN0001234\n",
    "SBIN０001234",
)  # fmt: skip
BAD_NAMES = (
    "", "ab", " Asha", "Asha ", "=cmd", "+Asha", "-Asha", "@Asha", "A\nB C", "x" * 121, "Аша Рао", "a\x00bc",
)  # fmt: skip
GOOD_BANK = {"account_number": "123456789", "ifsc": "SBIN0001234", "name": "Asha Rao"}


# targets


@pytest.mark.parametrize(
    "text", ["asha@okaxis", "a@b", "9876543210@ybl", "a.b-c_d@upi", f"{'x' * 252}@upi", "A1@Paytm1"]
)
def test_a_good_upi_id_is_stored_in_lower_case(text: str) -> None:
    assert upi_target(text) == UpiTarget(text.lower())


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "@", "a@", "@b", "asha", "asha@@okaxis", "asha@ok axis", " asha@okaxis", "asha@okaxis\n", "asha@ok.axis",
        "as ha@okaxis", "asha@1axis", ".asha@okaxis", "=1+1@okaxis", "अशा@okaxis", "asha@ökaxis",
        "a\x00b@okaxis", f"{'x' * 253}@upi",
        "asha@okaxis@okaxis", "asha＠okaxis", "a/b@okaxis", "١٢٣@upi",
    ],
)  # fmt: skip
def test_a_bad_upi_id_is_refused(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        upi_target(text)
    assert refused.value.field == "upi"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("account_number", value) for value in BAD_NUMBERS),
        *(("ifsc", value) for value in BAD_IFSC),
        *(("name", value) for value in BAD_NAMES),
    ],
)  # fmt: skip
def test_a_bad_bank_account_is_refused_with_its_field(field: str, value: str) -> None:
    with pytest.raises(BadRequest) as refused:
        bank_target(**(GOOD_BANK | {field: value}))
    assert refused.value.field == f"bank.{field}"


@pytest.mark.soak
@given(
    number=st.from_regex(r"[0-9]{9,18}", fullmatch=True),
    ifsc=st.from_regex(r"[A-Z]{4}0[A-Z0-9]{6}", fullmatch=True),
    name=st.sampled_from(["Asha Rao", "O'Neil (Jr.)", "M/S Rao-Rao", "abc", "x" * 120]),
)
def test_a_good_bank_account_survives_storage(number: str, ifsc: str, name: str) -> None:
    if not (number + ifsc).isascii():
        return
    target = bank_target(account_number=number, ifsc=ifsc, name=name)
    assert target_from_json(target_to_json(target)) == target
    assert number not in target.mask() or len(number) <= 4


@given(st.text(max_size=300))
def test_any_text_is_a_upi_id_or_refused(text: str) -> None:
    try:
        target = upi_target(text)
    except BadRequest:
        return
    assert 3 <= len(text) <= 256
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*@[a-z][a-z0-9]*", target.upi)
    assert target_from_json(target_to_json(target)) == target
    assert json.loads(target_to_json(target)) == {"upi": text.lower()}


@given(st.from_regex(r"[a-z][a-z0-9]{2,20}@[a-z]{3,8}", fullmatch=True))
def test_a_masked_target_does_not_give_the_target_away(text: str) -> None:
    if not text.isascii():
        return
    name, _, handle = text.partition("@")
    shown, _, same = upi_target(text).mask().partition("@")
    assert same == handle
    assert shown.endswith("***")
    assert len(shown.removesuffix("***")) <= min(2, len(name) // 2)


def test_a_masked_bank_account_shows_four_digits() -> None:
    target = BankTarget(account_number="50100123456789", ifsc="HDFC0000123", name="Asha Rao")
    assert target.mask() == "***6789 at HDFC0000123"


# amounts


@given(st.integers(min_value=1, max_value=9_000_000_000_000_000), st.integers(min_value=0, max_value=1_000 * CREDIT))
def test_an_amount_is_whole_paise_and_not_too_small(amount: int, least: int) -> None:
    good = amount % PAISA == 0 and amount >= least
    if not good:
        with pytest.raises(BadRequest) as refused:
            check_amount(amount, least=least)
        assert refused.value.field == "amount"
        return
    check_amount(amount, least=least)
    assert paise_of(amount) * PAISA == amount
    rupees, paise = rupees_of(amount).split(".")
    assert int(rupees) * CREDIT + int(paise) * PAISA == amount


# approval


@pytest.mark.parametrize(
    ("amount", "paid_before", "expected"),
    [
        (500, True, None),
        (10_000, True, None),
        (10_001, True, PayoutReason.LARGE),
        (500, False, PayoutReason.FIRST),
        (10_001, False, PayoutReason.LARGE),
    ],
)
def test_first_and_large_payouts_need_approval(amount: int, paid_before: bool, expected: PayoutReason | None) -> None:
    assert needs_approval(amount * CREDIT, RULES, paid_before=paid_before) is expected


@pytest.mark.parametrize(
    ("rules", "approver", "approved_by", "allowed"),
    [
        (RULES, "owner", None, True),
        (replace(RULES, not_own=True), "owner", None, False),
        (replace(RULES, not_own=True), "ann", None, True),
        (replace(RULES, two_approvals=True), "owner", "ann", False),
        (replace(RULES, two_approvals=True), "ann", "ann", False),
        (replace(RULES, two_approvals=True), "bob", "ann", True),
    ],
)
def test_who_may_approve_a_payout(rules: ApprovalRules, approver: str, approved_by: str | None, allowed: bool) -> None:
    refusal = approver_refusal(rules, owner="owner", approver=approver, approved_by=approved_by)
    assert (refusal is None) == allowed


# states


def test_what_is_decided_stays_so() -> None:
    for before, after in product(DECIDED, PayoutState):
        assert not may_become(before, after)


def test_every_state_can_be_reached_and_left() -> None:
    reached = {PayoutState.REQUESTED}
    while more := {after for before in reached for after in PayoutState if may_become(before, after)} - reached:
        reached |= more
    assert reached == set(PayoutState)
    for state in set(PayoutState) - DECIDED:
        assert any(may_become(state, end) for end in DECIDED)


def test_only_what_the_bank_never_had_can_be_called_back() -> None:
    for state in PayoutState:
        assert may_become(state, PayoutState.REJECTED) == (state in CANCELLABLE)
    assert not CANCELLABLE & AT_THE_BANK
    assert RETURNED < DECIDED


@given(st.lists(st.sampled_from(PayoutState), max_size=20))
def test_no_sequence_of_states_both_pays_and_returns(wanted: list[PayoutState]) -> None:
    """Whatever is tried, money leaves its account at most once, and only from a payout that is not decided."""
    state, moves = PayoutState.REQUESTED, 0
    for after in wanted:
        if may_become(state, after):
            assert state not in DECIDED
            moves += after in DECIDED
            state = after
    assert moves <= 1


# answers


@pytest.mark.parametrize(("word", "asked"), list(product(BankStatus, BankRequest)))
def test_an_answer_leads_only_to_states_that_it_proves(word: BankStatus, asked: BankRequest) -> None:
    step = judge(BankReply(word), asked)
    if step is None:
        assert asked is BankRequest.LOOK_UP
        assert word in (BankStatus.UNCLEAR, BankStatus.ABSENT)
        return
    assert (step.state is PayoutState.PAID) == (word is BankStatus.PAID)
    if step.state is PayoutState.FAILED:
        assert word is BankStatus.REFUSED
        assert asked is not BankRequest.SUBMIT_AGAIN
    for state in AT_THE_BANK:
        assert step.state is state or may_become(state, step.state)


def test_a_lost_answer_never_ends_a_payout() -> None:
    for word, asked in product((BankStatus.UNCLEAR, BankStatus.ABSENT, BankStatus.PROCESSING), BankRequest):
        step = judge(BankReply(word), asked)
        assert step is None or step.state not in DECIDED


@given(st.sampled_from(PayoutReason), st.booleans(), st.integers(0, 10**9), st.integers(1, 10**9))
def test_an_order_that_the_bank_does_not_know_is_sent_again_or_given_up_by_rule(
    why: PayoutReason, known: bool, silent_ms: int, certain_ms: int
) -> None:
    found = judge_absence(why=why, known=known, silent_ms=silent_ms, certain_ms=certain_ms)
    if known:
        assert found is Absence.WAIT
    if found is Absence.GIVE_UP:
        assert why is PayoutReason.REFUSED_AGAIN
        assert silent_ms >= certain_ms
    if found is Absence.SEND_AGAIN:
        assert why is not PayoutReason.REFUSED_AGAIN


@pytest.mark.parametrize(("state", "word"), list(product(PayoutState, BankStatus)))
def test_only_a_decided_payout_can_be_contradicted_by_the_bank(state: PayoutState, word: BankStatus) -> None:
    expected = (state is PayoutState.PAID and word is BankStatus.REFUSED) or (
        state in RETURNED and word is BankStatus.PAID
    )
    assert contradicts(state, BankReply(word)) == expected


@given(st.sampled_from(PayoutReason), st.text(max_size=500))
def test_reasons_survive_storage(why: PayoutReason, detail: str) -> None:
    text = reason_text(why, detail)
    assert text.isprintable()
    assert len(text) <= 250
    found, said = reason_parts(text)
    assert found is why
    assert said == text[len(why.value) + 2 :]
