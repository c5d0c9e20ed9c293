"""The life of a job: its transitions."""

from __future__ import annotations

from computepool.core.jobs.lifecycle import TERMINAL, JobState, may_become


def test_what_is_finished_stays_finished() -> None:
    for before in TERMINAL:
        assert not any(may_become(before, after) for after in JobState)


def test_every_state_can_be_reached_and_left() -> None:
    reachable = {JobState.QUEUED}
    while grown := {after for before in reachable for after in JobState if may_become(before, after)} - reachable:
        reachable |= grown
    assert reachable == set(JobState)
    assert all(may_become(state, JobState.CANCELLED) for state in set(JobState) - TERMINAL)


def test_a_job_starts_only_where_it_was_leased() -> None:
    assert [state for state in JobState if may_become(state, JobState.RUNNING)] == [JobState.LEASED]
    assert [state for state in JobState if may_become(state, JobState.LEASED)] == [JobState.QUEUED]
