"""Conditions of jobs that come after others, against what they mean in words."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from computepool.core.jobs.dependencies import (
    Consequence,
    Ending,
    consequence,
    ending_of,
    first_consequence,
    last_consequence,
)
from computepool.core.jobs.lifecycle import TERMINAL, JobState, Reason, When

ENDINGS = st.lists(st.sampled_from(Ending), min_size=1, max_size=6)


def follow(when: When, endings: list[Ending]) -> Consequence:
    """What becomes of a job while the jobs before it end in this order."""
    for ended in endings:
        if (found := consequence(when, ended)) is not Consequence.COUNT:
            return found
    return last_consequence(when)


@given(when=st.sampled_from(When), endings=ENDINGS)
def test_a_job_runs_as_its_condition_says(when: When, endings: list[Ending]) -> None:
    runs = {When.SUCCESS: set(endings) == {Ending.SUCCEEDED}, When.FAILURE: Ending.FAILED in endings, When.ALWAYS: True}
    found = follow(when, endings)
    assert (found is Consequence.START) == runs[when]
    if found is Consequence.CANCEL:
        assert Ending.FAILED in endings
    if found is Consequence.SKIP and when is When.SUCCESS:
        assert Ending.SKIPPED in endings


@given(when=st.sampled_from(When), endings=ENDINGS, left=st.integers(0, 3))
def test_a_job_that_is_submitted_later_gets_the_same(when: When, endings: list[Ending], left: int) -> None:
    first = first_consequence(when, [*endings, *[None] * left])
    if left == 0:
        assert (first is Consequence.START) == (follow(when, endings) is Consequence.START)
    elif first is Consequence.COUNT:
        assert all(consequence(when, ended) is Consequence.COUNT for ended in endings)
    else:
        assert first in {consequence(when, ended) for ended in endings}


@pytest.mark.parametrize("state", JobState)
def test_only_what_was_not_needed_counts_as_skipped(state: JobState) -> None:
    assert (ending_of(state, Reason.COMPLETED) is None) == (state not in TERMINAL)
    assert ending_of(JobState.CANCELLED, Reason.SKIPPED) is Ending.SKIPPED
    assert ending_of(JobState.CANCELLED, Reason.DEPENDENCY_FAILED) is Ending.FAILED
