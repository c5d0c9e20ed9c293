"""Rules of checkpoints: when one is kept, what it covers, and that a chain never costs more than one run may."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from computepool.core.jobs import checkpoints
from computepool.core.jobs.checkpoints import Checkpoint, Link, Refusal
from computepool.core.money.money import CREDIT
from computepool.core.money.pricing import charge_of

GAP = 5_000
KEPT = Checkpoint(attempt_no=2, seq=3, at_ms=100_000, progress=0.5, last=False)


@pytest.mark.parametrize(
    ("said", "why_not"),
    [
        (Checkpoint(attempt_no=2, seq=4, at_ms=105_000, progress=0.5, last=False), None),
        (Checkpoint(attempt_no=2, seq=4, at_ms=105_000, progress=None, last=False), None),
        (Checkpoint(attempt_no=3, seq=1, at_ms=105_000, progress=0.6, last=False), None),
        (Checkpoint(attempt_no=2, seq=3, at_ms=999_000, progress=0.6, last=False), Refusal.OLD),
        (Checkpoint(attempt_no=2, seq=4, at_ms=104_999, progress=0.6, last=False), Refusal.TOO_SOON),
        (Checkpoint(attempt_no=3, seq=1, at_ms=104_999, progress=0.6, last=False), Refusal.TOO_SOON),
        (Checkpoint(attempt_no=2, seq=4, at_ms=100_001, progress=0.6, last=True), None),
        (Checkpoint(attempt_no=2, seq=4, at_ms=105_000, progress=0.49, last=False), Refusal.PROGRESS),
        (Checkpoint(attempt_no=2, seq=4, at_ms=105_000, progress=0.49, last=True), Refusal.PROGRESS),
        (Checkpoint(attempt_no=3, seq=1, at_ms=105_000, progress=0.1, last=False), None),
        (Checkpoint(attempt_no=2, seq=4, at_ms=105_000, progress=0.6, last=False, files=0), Refusal.EMPTY),
    ],
)
def test_when_one_is_kept(said: Checkpoint, why_not: Refusal | None) -> None:
    assert checkpoints.refusal(KEPT, said, gap_ms=GAP) is why_not
    first = Refusal.EMPTY if why_not is Refusal.EMPTY else None
    assert checkpoints.refusal(None, said, gap_ms=GAP) is first


share = st.none() | st.floats(0, 1)


@given(kept=share, said=share)
def test_progress_never_goes_back(kept: float | None, said: float | None) -> None:
    after = checkpoints.progress_after(kept, said)
    assert (after is None) == (kept is said is None)
    assert all(after is not None and after >= each for each in (kept, said) if each is not None)


def test_there_is_one_last_word() -> None:
    """Else an attempt could keep the hub busy by calling each its last."""
    last = Checkpoint(attempt_no=2, seq=3, at_ms=100_000, progress=None, last=True)
    said = Checkpoint(attempt_no=2, seq=4, at_ms=100_001, progress=None, last=True)
    assert checkpoints.refusal(last, said, gap_ms=GAP) is Refusal.TOO_SOON


whole = st.integers(0, 10**9)


@given(said=whole, leased=whole, now=whole, lane=st.integers(-(10**9), 10**9), limit=whole)
def test_nobody_is_believed_beyond_the_hubs_clock(said: int, leased: int, now: int, lane: int, limit: int) -> None:
    covered = checkpoints.covered_ms(
        reported_ms=said, leased_at_ms=leased, now_ms=now, lane_left_ms=lane, limit_left_ms=limit
    )
    assert 0 <= covered <= max(0, min(said, now - leased, lane, limit))


@st.composite
def chains(draw: st.DrawFn) -> dict[int, Link]:
    """Attempts in order, each of which may go on from any earlier one, or, wrongly, from a later one."""
    count = draw(st.integers(1, 7))
    price = st.integers(0, 50 * CREDIT)
    return {
        number: Link(
            number=number,
            price=draw(price),
            resumed_no=draw(st.none() | st.integers(1, count + 1)),
            resumed_ms=draw(st.integers(0, 10_000_000)),
        )
        for number in range(1, count + 1)
    }


@given(links=chains(), money=st.integers(0, 100 * CREDIT), longest=st.integers(0, 20_000_000))
def test_a_chain_fits_money_and_time_and_pays_each_attempt_once(
    links: dict[int, Link], money: int, longest: int
) -> None:
    last = max(links)
    parts = checkpoints.contributions(links, last, money=money, longest_ms=longest)
    assert sum(part.charge for part in parts) <= money
    assert sum(part.billed_ms for part in parts) <= longest
    numbers = [part.number for part in parts]
    assert numbers == sorted(set(numbers)), "oldest first, and each once"
    assert all(number < last for number in numbers)
    after = dict(pairwise([*numbers, last]))
    for part in parts:
        link = links[part.number]
        assert part.charge == charge_of(link.price, part.billed_ms)
        assert links[after[part.number]].resumed_no == part.number, "paid only if somebody went on from it"
        assert 0 <= part.billed_ms <= links[after[part.number]].resumed_ms


@given(links=chains(), money=st.integers(0, 100 * CREDIT), more=st.integers(0, 10_000_000))
def test_more_time_up_to_the_checkpoint_is_never_paid_less(links: dict[int, Link], money: int, more: int) -> None:
    last = max(links)
    longer = Link(
        number=last,
        price=links[last].price,
        resumed_no=links[last].resumed_no,
        resumed_ms=links[last].resumed_ms + more,
    )
    few = checkpoints.contributions(links, last, money=money, longest_ms=10**9)
    many = checkpoints.contributions(links | {last: longer}, last, money=money, longest_ms=10**9)
    assert [part.number for part in few] == [part.number for part in many]
    assert sum(part.charge for part in few) <= sum(part.charge for part in many)


def test_what_is_left_of_the_limit() -> None:
    assert [checkpoints.left_ms(60, used) for used in (0, 20, 60, 90)] == [60, 40, 0, 0]
