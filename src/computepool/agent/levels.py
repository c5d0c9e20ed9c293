"""Which sandbox this node uses: the strongest that its self-test passed, or the one the owner named, or none."""

from __future__ import annotations

from collections.abc import Sequence

from computepool.agent.sandbox.base import Sandbox
from computepool.agent.sandbox.process import ProcessSandbox
from computepool.agent.sandbox.selftest import BACKENDS, LevelReport
from computepool.agent.sandbox.slots import SandboxConfig
from computepool.core.errors import Unavailable
from computepool.core.isolation import Level


def choose(reports: Sequence[LevelReport], wanted: str, *, cards: bool = False) -> LevelReport:
    """Raises Unavailable with what the owner can do where nothing fits. `cards`: the node has some to lend."""
    passed = [report for report in reports if report.ok]
    if wanted != "auto":
        passed = [report for report in passed if report.level is Level.parse(wanted)]
    elif cards:
        # A level is the node's, and few drivers can be passed into gvisor: lending cards is what they are there for.
        passed = [report for report in passed if report.level <= Level.NAMESPACE]
    if passed:
        return max(passed, key=_preference)
    failed = [report for report in reports if wanted in ("auto", report.level.label)]
    details = "; ".join(f"{report.level.label}: {report.reason}. {report.fix}".strip() for report in failed)
    raise Unavailable(
        f"This machine cannot make the sandbox {wanted!r} ({details or 'this agent does not know how'})."
    )


def _preference(report: LevelReport) -> tuple[bool, bool, Level]:
    """By itself a node takes a container only where nothing else holds strangers' jobs: as strong as a namespace, slower."""
    level = report.level
    return level >= Level.NAMESPACE, level is not Level.CONTAINER, level


def make(level: Level, config: SandboxConfig) -> Sandbox:
    backend = next((backend for backend in BACKENDS if backend.level is level), ProcessSandbox)
    return backend(config)
