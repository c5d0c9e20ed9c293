"""Chooses this node's isolation level: the strongest that passed its self-test, or the one that the owner named."""

from __future__ import annotations

from collections.abc import Callable

from computepool.agent.sandbox.selftest.selftest import LevelReport
from computepool.core.errors import Unavailable
from computepool.core.isolation import Level


def choose(test: Callable[[Level], LevelReport], requested: str, *, cards: bool = False) -> Level:
    """The first level that passes its test, strongest first: the rest need not be attacked.

    Raises Unavailable, with a fix for the owner, if none passes. `cards`: the node has cards to lend.
    """
    failed: list[LevelReport] = []
    for level in _candidates(cards=cards) if requested == "auto" else [Level.parse(requested)]:
        report = test(level)
        if report.ok:
            return level
        failed.append(report)
    details = "; ".join(f"{report.level.label}: {report.reason}. {report.fix}".strip() for report in failed)
    raise Unavailable(f"This machine cannot provide the sandbox {requested!r} ({details}).")


def _candidates(*, cards: bool) -> list[Level]:
    # Few drivers' cards can be passed into gVisor, and a node with cards is there to lend them.
    strongest = Level.NAMESPACE if cards else Level.GVISOR
    return sorted((level for level in Level if level <= strongest), key=_preference, reverse=True)


def _preference(level: Level) -> tuple[bool, bool, Level]:
    """A container comes last among the levels that isolate untrusted jobs: as strong as a namespace, but slower."""
    return level >= Level.NAMESPACE, level is not Level.CONTAINER, level
