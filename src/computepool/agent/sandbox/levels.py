"""Chooses this node's sandbox: the strongest that passed its self-test, or the one that the owner named."""

from __future__ import annotations

from collections.abc import Callable

from computepool.agent.sandbox.backends.process import ProcessSandbox
from computepool.agent.sandbox.sandbox import Sandbox
from computepool.agent.sandbox.selftest.selftest import BACKENDS, LevelReport
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.core.errors import Unavailable
from computepool.core.isolation import Level


def choose(test: Callable[[Level], LevelReport], requested: str, *, cards: bool = False) -> LevelReport:
    """The first level that passes its test, strongest first: there is no need to attack the rest.

    Raises Unavailable, with a fix for the owner, if none passes. `cards`: the node has cards to lend.
    """
    failed: list[LevelReport] = []
    for level in _candidates(requested, cards=cards):
        report = test(level)
        if report.ok:
            return report
        failed.append(report)
    details = "; ".join(f"{report.level.label}: {report.reason}. {report.fix}".strip() for report in failed)
    raise Unavailable(
        f"This machine cannot provide the sandbox {requested!r} ({details or 'unknown to this agent'})."
    )


def _candidates(requested: str, *, cards: bool) -> list[Level]:
    known = [backend.level for backend in BACKENDS]
    if requested != "auto":
        return [level for level in known if level is Level.parse(requested)]
    if cards:
        # A level is the node's, and few drivers can be passed into gvisor: lending cards is what they are there for.
        known = [level for level in known if level <= Level.NAMESPACE]
    return sorted(known, key=_preference, reverse=True)


def _preference(level: Level) -> tuple[bool, bool, Level]:
    """A container is chosen only if nothing else isolates untrusted jobs: as strong as a namespace, but slower."""
    return level >= Level.NAMESPACE, level is not Level.CONTAINER, level


def make(level: Level, config: SandboxConfig) -> Sandbox:
    backend = next((backend for backend in BACKENDS if backend.level is level), ProcessSandbox)
    return backend(config)
