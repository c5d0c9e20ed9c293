"""The gates of owners' rules: whether each node's owner lets a job do what it asks for.

A pool in which nobody has rules pays nothing: every gate here then answers None (but `network`, which is also a
matter of what the node offers, and is asked only by jobs that list hosts).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from computepool.core.fleet.features import Mask, Rows
from computepool.core.fleet.fleet import Fleet
from computepool.core.fleet.node_record import cards_needed
from computepool.core.placement.rules import Demand
from computepool.core.resources import Shape

Test = Callable[[Fleet, Shape, Rows], Mask | None]


def demand_of(shape: Shape) -> Demand:
    needs = shape.requirements
    return Demand(
        account=shape.account,
        labels=needs.labels,
        network=needs.network,
        gpus=cards_needed(needs),
        minutes=needs.minutes,
        ram_mb=needs.ram_mb,
        disk_mb=needs.disk_mb,
    )


def network(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """The owner opted in, and no rule of his takes it back for strangers."""
    if not shape.requirements.network:
        return None
    offered: Mask = fleet.table.network[rows]
    allowed = _admit("network", fleet, shape, rows=rows)
    return offered.copy() if allowed is None else offered & allowed


def rule(aspect: str) -> Test:
    def test(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
        return _admit(aspect, fleet, shape, rows=rows)

    return test


def submitter_reputation(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """Scores move with every job, so this is asked at every placement, and only where an owner cares."""
    if not fleet.rulebook.scored:
        return None
    least = np.array(fleet.rulebook.scores_min(), np.float64)
    mask: Mask = least[fleet.table.rules[rows]] <= fleet.submitter_score(shape.account)
    mask |= _own(fleet, shape, rows)
    return mask


def _admit(aspect: str, fleet: Fleet, shape: Shape, *, rows: Rows) -> Mask | None:
    if not fleet.rulebook.ruled:
        return None
    verdicts = np.array(fleet.rulebook.verdicts(aspect, demand_of(shape)), np.bool_)
    if verdicts.all():
        return None
    mask: Mask = verdicts[fleet.table.rules[rows]]
    mask |= _own(fleet, shape, rows)
    return mask


def _own(fleet: Fleet, shape: Shape, rows: Rows) -> Mask:
    mask: Mask = fleet.table.owner[rows] == fleet.accounts.find(shape.account)
    return mask
