"""The arithmetic of intervals and leases, and the promises that tie its numbers together."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from computepool.core.jobs.leases import LeaseRules

RULES = LeaseRules()
NODES = st.integers(min_value=0, max_value=1_000_000)


@pytest.mark.parametrize(
    ("nodes", "interval_ms", "lease_ms", "suspect_ms", "grace_ms"),
    [
        (0, 10_000, 60_000, 30_000, 120_000),
        (1, 10_000, 60_000, 30_000, 120_000),
        (40_000, 10_000, 60_000, 30_000, 120_000),
        (100_000, 25_000, 75_000, 60_000, 120_000),
        (200_000, 50_000, 150_000, 110_000, 150_000),
        (900_000, 50_000, 150_000, 110_000, 150_000),
    ],
)
def test_the_constants(nodes: int, interval_ms: int, lease_ms: int, suspect_ms: int, grace_ms: int) -> None:
    assert RULES.interval_ms(nodes) == interval_ms
    assert RULES.lease_ms(interval_ms) == lease_ms
    assert RULES.suspect_after_ms(interval_ms) == suspect_ms
    assert RULES.boot_grace_ms(interval_ms) == grace_ms


@given(NODES)
def test_polls_never_exceed_the_named_rate(nodes: int) -> None:
    """Up to as many nodes as the longest interval can carry; beyond that the hub sheds."""
    interval_ms = RULES.interval_ms(nodes)
    if interval_ms < RULES.interval_max_ms:
        assert nodes * 1000 <= (interval_ms + 1) * RULES.polls_per_s_max
    assert RULES.interval_min_ms <= interval_ms <= RULES.interval_max_ms


@given(NODES, NODES)
def test_more_nodes_never_mean_a_shorter_interval(some: int, more: int) -> None:
    some, more = sorted((some, more))
    assert RULES.interval_ms(some) <= RULES.interval_ms(more)


@given(NODES)
def test_a_node_that_misses_one_word_keeps_its_work(nodes: int) -> None:
    interval_ms = RULES.interval_ms(nodes)
    # Even with the agent's own margin there is time for the next word after a lost one.
    assert RULES.lease_ms(interval_ms) - RULES.self_fence_ms >= 2 * interval_ms
    assert RULES.suspect_after_ms(interval_ms) <= RULES.lease_ms(interval_ms)
    assert RULES.boot_grace_ms(interval_ms) >= RULES.lease_ms(interval_ms)
    # The agent stops before anybody else may be given the job.
    assert 0 < RULES.self_fence_ms < RULES.lease_ms(interval_ms)
