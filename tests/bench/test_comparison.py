"""What the benchmark says about two numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from bench.comparison import TIE, merged, ratios, table, verdict
from bench.ours import LONG_MODULES, MODULES
from bench.peers.measure import Measured
from bench.sections import LIMITS_S
from bench.table import Figure

OURS = "no-op functions, durable, end to end"
positive = st.floats(min_value=1e-3, max_value=1e6)
MIRROR = {"better": "worse", "worse": "better", "tie": "tie"}


@given(ours=positive, theirs=positive, lower=st.booleans())
def test_a_verdict_is_the_mirror_of_the_other_sides(ours: float, theirs: float, lower: bool) -> None:
    advantage = max(ours, theirs) / min(ours, theirs)
    if abs(advantage - (1 + TIE)) < 1e-9:
        return  # on the line, rounding decides
    said = verdict(ours, theirs, lower_is_better=lower)
    assert verdict(theirs, ours, lower_is_better=lower) == MIRROR[said]
    assert verdict(ours, theirs, lower_is_better=not lower) == MIRROR[said]
    assert (said == "tie") == (advantage < 1 + TIE)


@pytest.mark.parametrize(
    ("ours", "theirs", "lower", "said"),
    [
        (1_240, 1_000, False, "tie"),
        (1_250, 1_000, False, "better"),
        (810, 1_000, False, "tie"),
        (800, 1_000, False, "worse"),
        (4.0, 5.0, True, "better"),
        (5.0, 4.0, True, "worse"),
    ],
)
def test_a_quarter_is_a_tie(ours: float, theirs: float, lower: bool, said: str) -> None:
    assert verdict(ours, theirs, lower_is_better=lower) == said


def test_figures_of_two_runs_become_their_median_and_keep_their_range() -> None:
    first = [Figure("rate", 1_000, "/s", target=1_500, note="CPU"), Figure("size", 3, "KB")]
    (rate, size) = merged([first, [Figure("rate", 3_000, "/s", target=1_500)]])
    assert (rate.value, rate.ok) == (2_000, True)
    assert rate.note == "2 runs: 1,000.0–3,000.0; CPU"
    assert size == first[1]


def test_a_ratio_is_ours_over_the_median_of_theirs() -> None:
    theirs = Measured(name="Other", calls_per_s=[400, 500, 900])
    ratio, bundled = ratios([Figure(OURS, 2_000, "/s")], [theirs])
    assert bundled.value is None
    assert (ratio.value, ratio.theirs, ratio.low, ratio.high) == (4.0, 500, 400, 900)
    assert ratio.verdict == "better"


def test_what_was_not_measured_gets_no_number() -> None:
    ratio, _ = ratios([], [Measured(name="Other", calls_per_s=[500]), Measured(name="Empty")])
    assert (ratio.system, ratio.value, ratio.verdict) == ("Other", None, "")


def test_the_table_names_misses_ties_floors_and_what_keeps_work_on_disk() -> None:
    systems = [
        Measured(name="Kept", on_disk=True, calls_per_s=[1_000], cpu_us_per_call=900),
        Measured(name="Pool", floor=True, calls_per_s=[10_000]),
    ]
    text = "\n".join(table([Figure(OURS, 1_100, "/s", target=2_000)], systems))
    assert "target ≥ 2000 /s: MISSED" in text
    kept, pool = (next(line for line in text.splitlines() if name in line) for name in ("Kept *", "Pool"))
    assert kept.endswith("1.10  tie")
    assert pool.endswith("0.11  × the floor")
    assert "Kept 900" in text


def test_every_measurement_has_a_time_limit() -> None:
    assert {*MODULES, *LONG_MODULES} <= set(LIMITS_S)
