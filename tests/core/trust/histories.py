"""Reputations from whole histories: what the hub's caches must come to, too."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from computepool.core.trust import reputation, submitter_reputation
from computepool.core.trust.reputation import NEWCOMER, Reputation, ReputationEvent
from computepool.core.trust.submitter_reputation import UNKNOWN, SubmitterEvent, SubmitterReputation


def recompute(outcomes: Iterable[ReputationEvent], begin: Reputation | None = None) -> Reputation:
    return reduce(reputation.update, outcomes, begin or NEWCOMER)


def recompute_submitter(runs: Iterable[SubmitterEvent], begin: SubmitterReputation = UNKNOWN) -> SubmitterReputation:
    return reduce(submitter_reputation.update, runs, begin)
