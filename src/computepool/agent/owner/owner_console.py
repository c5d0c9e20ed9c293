"""The owner's console: in a terminal, what the node offers, and a line per job, while logs go to a file.

Without a terminal (a service, a pipe) there is no console, and logs go to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import logging.handlers
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from computepool.agent.clock import AgentClock
from computepool.agent.config import AgentConfig, AgentLimits
from computepool.agent.context import Node
from computepool.agent.execution.attempt_result import AttemptResult
from computepool.agent.execution.attempts import Attempt
from computepool.agent.owner.manifest import manifest
from computepool.core.errors import ComputePoolError
from computepool.core.isolation import Level
from computepool.core.jobs.lifecycle import Outcome
from computepool.core.money.money import format_credits, round_down
from computepool.core.plaintext import printable
from computepool.core.resources import NodeState
from computepool.core.words import cores, memory_size, pluralize, short_account
from computepool.protocol.money.market import OwnNodeView
from computepool.protocol.nodes.profile import Profile
from computepool.protocol.plain_log import PlainFormatter

LOG = "agent.log"
_ENDED = {
    Outcome.SUCCEEDED: "succeeded",
    Outcome.FAILED: "failed",
    Outcome.CANCELLED: "was cancelled",
    Outcome.RETURNED: "was given back",
}
_STATES = {
    NodeState.ACTIVE: "Takes jobs again.",
    NodeState.PAUSED: "Paused: takes no new jobs, even after a restart. To resume: pool node resume",
    NodeState.DRAINING: "Draining: takes no new jobs, and stops when the last one finishes.",
}

_COMMANDS = (
    "  pool node status   show what it does            pool node pause   accept no new jobs",
    "  pool node drain    stop after the last job      pool node leave   leave the pool",
    "  Ctrl-C             stop now and give back running jobs",
)


class Watcher:
    """Receives the events of a node. This base class ignores them."""

    async def greet(self, config: AgentConfig, profile: Profile, node: Node) -> None: ...

    def on_start(self, attempt: Attempt) -> None: ...

    def on_end(self, attempt: Attempt, result: AttemptResult) -> None: ...

    def on_state_change(self, state: NodeState) -> None: ...

    def show(self, text: str) -> None: ...


class OwnerConsole(Watcher):
    def __init__(self, *, clock: AgentClock, limits: AgentLimits, stream: TextIO | None = None) -> None:
        self._clock = clock
        self._owner = ""
        self._limits = limits
        self._stream = sys.stdout if stream is None else stream
        self._lines = 0
        self._suppressed: Counter[str] = Counter()
        self._window: asyncio.TimerHandle | None = None

    def show(self, text: str) -> None:
        at = datetime.fromtimestamp(self._clock.now_ms() / 1000, tz=UTC).astimezone()
        line = printable(text).replace("\n", "\\n")  # A job's text must not look like another line.
        self._print(f"{at:%H:%M:%S}  {line}")

    def _print(self, text: str) -> None:
        """A closed terminal, or one with another encoding, must not affect jobs."""
        with contextlib.suppress(OSError, ValueError):
            print(text, file=self._stream, flush=True)

    async def greet(self, config: AgentConfig, profile: Profile, node: Node) -> None:
        """Print who the node is and what it offers, with the hub's view of it if the hub answers."""
        self._owner = node.identity.owner
        known = None
        with contextlib.suppress(ComputePoolError):
            known = await node.client.own_node()
        self._print(greeting(config, profile, node_id=node.identity.node_id, hub=node.client.url, known=known))

    def on_state_change(self, state: NodeState) -> None:
        self.show(_STATES.get(state, state.value))

    def on_start(self, attempt: Attempt) -> None:
        if self._may_print("started"):
            job = manifest(attempt.grant, attempt.spec)
            cards = f", {pluralize(len(job.gpus), 'GPU')}" if job.gpus else ""
            network = f", network to {', '.join(job.network)}" if job.network else ""
            size = cores(job.cores)
            self.show(
                f"{self._describe(attempt)} started: {size}, {memory_size(job.ram_mb)} RAM{cards}{network}, "
                f"at most {pluralize(job.minutes, 'minute')}"
            )

    def on_end(self, attempt: Attempt, result: AttemptResult) -> None:
        ended = _ENDED[result.outcome]
        if self._may_print(ended):
            error = (result.error or "").strip().splitlines()
            why = f": {error[-1][:200]}" if error and result.outcome is Outcome.FAILED else ""
            ran = f" after {result.ran_ms / 1000:.3g} s" if result.ran_ms else ""
            self.show(f"{self._describe(attempt)} {ended}{ran}{why}")

    def _describe(self, attempt: Attempt) -> str:
        grant = attempt.grant
        submitter = "your own" if grant.account_id == self._owner else f"of {short_account(grant.account_id)}"
        return f"{attempt.spec.spec.name or 'a job'} ({grant.job_id}, {submitter})"

    # ------------------------------------------------------------ limiting the number of lines
    def _may_print(self, what: str) -> bool:
        """False beyond the limit of this window. The rest is counted, and summarised when the window ends."""
        if self._window is None:
            loop = asyncio.get_running_loop()
            self._window = loop.call_later(self._limits.console_window_s, self._end_window)
        self._lines += 1
        if self._lines <= self._limits.console_lines_max:
            return True
        self._suppressed[what] += 1
        return False

    def _end_window(self) -> None:
        self._window = None
        self._lines = 0
        if self._suppressed:
            self.show(f"… {', '.join(f'{count} more {what}' for what, count in self._suppressed.items())}")
            self._suppressed.clear()


def greeting(config: AgentConfig, profile: Profile, *, node_id: str, hub: str, known: OwnNodeView | None) -> str:
    """The node's name, what it offers, its price, and how to stop it. `known`: the hub's view, if available."""
    owner = f" for {known.owner_name}" if known is not None else ""
    cards = ", ".join(card.name for card in profile.gpus) or "no GPU"
    memory = f"{memory_size(profile.ram_mb)} RAM, {memory_size(profile.disk_mb)} disk"
    network = "for jobs that list hosts to reach" if config.network else "none for jobs (--net)"
    facts = {
        "Offers": f"{cores(profile.cores)}, {memory}, {cards}, Python {profile.python_text}",
        "Price": _price(known),
        "Sandbox": f"{profile.isolation}: {Level.parse(profile.isolation).meaning}",
        "Network": network,
        "Paused": "takes no jobs; to resume: pool node resume" if config.paused_path.exists() else "",
        "Logs": f"{config.data_dir / LOG}; --verbose shows them here",
    }
    shown = [f"  {name:<9} {value}" for name, value in facts.items() if value]
    head = f"  {config.name} ({node_id}) joined {hub}{owner}"
    return "\n".join(map(printable, ["", head, "", *shown, "", *_COMMANDS, ""]))


def _price(known: OwnNodeView | None) -> str:
    if known is None:
        return "the market price; set a minimum with: pool market floor"
    hourly = sum(sale.per_hour for sale in known.earnings.sales)
    pays = f" Fully busy it earns {format_credits(round_down(hourly))} credits an hour now." if hourly else ""
    floor = known.earnings.floor
    least = (
        "No minimum price set: the node takes any price."
        if floor is None
        else f"At least {format_credits(floor)} credits for a unit-hour, after the fee."
    )
    return f"{least}{pays}"


# ------------------------------------------------------------ logs
class _Warnings(logging.Handler):
    """Shows warnings to the owner. A repeated one, such as an unreachable hub, is shown once."""

    def __init__(self, console: Watcher) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg != self._last:
            self._last = str(record.msg)
            self._console.show(f"Warning: {record.getMessage()}")


def log_to_file(data_dir: Path, console: Watcher, *, limits: AgentLimits, format: str) -> None:
    """Log to a file of bounded size in the node's folder; show warnings to the owner."""
    file = logging.handlers.RotatingFileHandler(data_dir / LOG, maxBytes=limits.agent_log_bytes, backupCount=1)
    file.setFormatter(PlainFormatter(format))
    logging.basicConfig(level=logging.INFO, handlers=[file, _Warnings(console)])
