"""Ticks: cron expressions, time zones and summer time."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from computepool.core.errors import BadRequest
from computepool.hub.schedules.ticks import Cron

BERLIN = ZoneInfo("Europe/Berlin")
EXPRESSIONS = (
    "0 3 * * *",
    "*/15 * * * *",
    "30 2 * * *",
    "0 0 29 2 *",
    "0 12 1,15 * mon",
    "59 23 31 12 *",
    "5 4 * * sun",
)


def ms(*parts: int, zone: ZoneInfo = BERLIN) -> int:
    return round(datetime(*parts, tzinfo=zone).timestamp() * 1000)


def texts(ticks: list[int]) -> list[str]:
    return [datetime.fromtimestamp(tick / 1000, BERLIN).isoformat() for tick in ticks]


def test_summer_time() -> None:
    daily = Cron("30 2 * * *", "Europe/Berlin")
    # The night that has no half past two, and the one that has two.
    assert texts(daily.after(ms(2027, 3, 27, 12), 2)) == ["2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"]
    assert texts(daily.after(ms(2027, 10, 30, 12), 2)) == ["2027-10-31T02:30:00+02:00", "2027-11-01T02:30:00+01:00"]
    hourly = Cron("0 * * * *", "Europe/Berlin").after(ms(2027, 10, 31, 1), 3)
    assert [later - earlier for earlier, later in pairwise(hourly)] == [3_600_000] * 2


@given(st.sampled_from(EXPRESSIONS), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata"]), st.integers(0, 2**41))
def test_the_latest_tick_is_the_one_before_the_next(expression: str, tz: str, at_ms: int) -> None:
    cron = Cron(expression, tz)
    [following] = cron.after(at_ms)
    assert following > at_ms
    assert cron.latest(following) == following
    before = cron.latest(at_ms)
    assert before is not None
    assert before <= at_ms
    assert cron.after(before) == [following]


@pytest.mark.parametrize(
    ("expression", "tz", "sentence"),
    [
        ("0 0 30 2 *", "UTC", "never fires"),
        ("0 0 31 2,4 *", "UTC", "never fires"),
        ("61 * * * *", "UTC", "minute"),
        ("0 3 * *", "UTC", "five fields"),
        ("0 3 * * * *", "UTC", "five fields"),
        ("@daily", "UTC", "five fields"),
        ("\x1b[2J * * * *", "UTC", r"\x1b"),
        ("9" * 150 + " * * * *", "UTC", "minute"),
        ("0 3 * * *", "Europe/Atlantis", "not a time zone"),
        ("0 3 * * *", "../../etc/passwd", "not a time zone"),
        ("0 3 * * *", "", "not a time zone"),
    ],
)
def test_what_is_refused(expression: str, tz: str, sentence: str) -> None:
    with pytest.raises(BadRequest) as refused:
        Cron(expression, tz).check(ms(2027, 1, 1), interval_min_s=60)
    assert sentence in refused.value.detail
    assert "\n" not in refused.value.detail


def test_the_shortest_interval() -> None:
    Cron("*/5 * * * *", "UTC").check(ms(2027, 1, 1), interval_min_s=300)
    with pytest.raises(BadRequest, match="every 300 seconds at most"):
        Cron("0,4 * * * *", "UTC").check(ms(2027, 1, 1), interval_min_s=300)
    assert Cron("* * * * *", "UTC").latest(ms(2027, 1, 1, 0, 0, 59)) == round(
        datetime(2026, 12, 31, 23, 0, tzinfo=UTC).timestamp() * 1000
    )
