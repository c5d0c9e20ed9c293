"""A node's state follows from all facts together, and every state has its words."""

from __future__ import annotations

from itertools import product

import pytest

from computepool.core.fleet.node_status import Contact, NodeStatus, node_status, rest_reason, status_sentence
from computepool.core.resources import NodeState

HERE = Contact(reachable=True)


@pytest.mark.parametrize(
    ("wanted", "contact", "cooling", "expected"),
    [
        (NodeState.ACTIVE, HERE, False, None),
        (NodeState.ACTIVE, HERE, True, NodeStatus.COOLING_OFF),
        (NodeState.ACTIVE, Contact(reachable=True, claims=False), False, NodeStatus.PAUSED),
        (NodeState.ACTIVE, Contact(reachable=True, polls=False), False, NodeStatus.NOT_POLLING),
        (NodeState.ACTIVE, Contact(reachable=True, prompt=False), True, NodeStatus.UNRESPONSIVE),
        (NodeState.PAUSED, HERE, True, NodeStatus.PAUSED),
        (NodeState.DRAINING, Contact(reachable=True, claims=False), False, NodeStatus.DRAINING),
        (NodeState.PAUSED, Contact(reachable=False), False, NodeStatus.OFFLINE),
        (NodeState.REVOKED, HERE, False, NodeStatus.REVOKED),
        (NodeState.REVOKED, Contact(reachable=False), False, NodeStatus.REVOKED),
    ],
)
def test_why_a_node_rests(wanted: NodeState, contact: Contact, cooling: bool, expected: NodeStatus | None) -> None:
    assert rest_reason(wanted, contact, cooling=cooling) is expected


def test_a_node_that_left_was_not_thrown_out() -> None:
    away = Contact(reachable=False)
    assert rest_reason(NodeState.REVOKED, away, cooling=False, left=True) is NodeStatus.LEFT
    assert not NodeStatus.LEFT.is_online
    assert "left the pool" in status_sentence(NodeStatus.LEFT)


def test_a_node_takes_jobs_only_where_nothing_speaks_against_it() -> None:
    for wanted, reachable, prompt, polls, claims, cooling, banned, met, jobs in product(
        NodeState, *[(False, True)] * 7, (0, 2)
    ):
        contact = Contact(reachable=reachable, prompt=prompt, polls=polls, claims=claims)
        rest = rest_reason(wanted, contact, cooling=cooling)
        status = node_status(rest, banned=banned, floor_met=met, jobs=jobs)
        free = wanted is NodeState.ACTIVE and reachable and prompt and polls and claims and not cooling
        assert (rest is None) == free
        assert status.takes_jobs == (free and met and not banned)
        if status.is_online:
            assert reachable
            assert wanted is not NodeState.REVOKED


def test_every_state_has_words() -> None:
    for status in NodeStatus:
        assert "_" not in status.label
        sentence = status_sentence(status, jobs=2, rest_s=30, faults=3)
        assert sentence.endswith(".")
        assert "_" not in sentence
    assert "cooling off for 30 s" in status_sentence(NodeStatus.COOLING_OFF, rest_s=30, faults=3)
    assert "still has 1 job." in status_sentence(NodeStatus.PAUSED, jobs=1)
