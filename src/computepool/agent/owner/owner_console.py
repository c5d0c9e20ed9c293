"""The node owner's view in a terminal, instead of logs: who the node is, what it offers, and a line per job.

The logs go to a file then. Where nobody reads along (a service, a pipe) there is no console, and the logs are as ever.
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
from computepool.agent.execution.attempt_result import AttemptResult
from computepool.agent.execution.attempts import Attempt
from computepool.agent.hub_link.hub_client import HubClient
from computepool.agent.hub_link.identity import Identity
from computepool.agent.owner.manifest import manifest
from computepool.core.errors import ComputePoolError
from computepool.core.isolation import Level
from computepool.core.jobs.lifecycle import Outcome
from computepool.core.money.money import format_credits, round_down
from computepool.core.plaintext import printable
from computepool.core.resources import NodeState
from computepool.core.words import counted, memory_size, short_account
from computepool.protocol.money.market import OwnNodeView
from computepool.protocol.nodes.nodes import Profile
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
    NodeState.PAUSED: "Paused: takes no new jobs, even after a restart. Take them again: pool node resume",
    NodeState.DRAINING: "Draining: takes no new jobs, and stops when the last one finishes.",
}

_COMMANDS = (
    "  pool node status   what it is doing             pool node pause   take no new jobs",
    "  pool node drain    stop after the last job      pool node leave   leave the pool",
    "  Ctrl-C             stop now; what runs is given back",
)


class Watcher:
    """Told what happens on a node. This one tells nobody."""

    def started(self, attempt: Attempt) -> None: ...

    def ended(self, attempt: Attempt, ending: AttemptResult) -> None: ...

    def changed(self, state: NodeState) -> None: ...

    def say(self, text: str) -> None: ...


class OwnerConsole(Watcher):
    def __init__(self, *, clock: AgentClock, limits: AgentLimits, stream: TextIO | None = None) -> None:
        self._clock = clock
        self._owner = ""
        self._limits = limits
        self._stream = sys.stdout if stream is None else stream
        self._lines = 0
        self._untold: Counter[str] = Counter()
        self._window: asyncio.TimerHandle | None = None

    def say(self, text: str) -> None:
        at = datetime.fromtimestamp(self._clock.now_ms() / 1000, tz=UTC).astimezone()
        self._print(f"{at:%H:%M:%S}  {printable(text)}")

    def _print(self, text: str) -> None:
        """A terminal that was closed meanwhile, or that has no such letters, is no reason to drop a job."""
        with contextlib.suppress(OSError, ValueError):
            print(text, file=self._stream, flush=True)

    async def greet(
        self, config: AgentConfig, profile: Profile, *, identity: Identity, client: HubClient
    ) -> None:
        """With what the hub knows of it, where that answers in time."""
        self._owner = identity.owner
        known = None
        with contextlib.suppress(ComputePoolError):
            known = await client.own_node()
        self._print(greeting(config, profile, node_id=identity.node_id, hub=client.url, known=known))

    def changed(self, state: NodeState) -> None:
        self.say(_STATES.get(state, state.value))

    def started(self, attempt: Attempt) -> None:
        if self._may_speak("started"):
            job = manifest(attempt.grant, attempt.spec)
            cards = f", {counted(len(job.gpus), 'GPU')}" if job.gpus else ""
            network = f", network to {', '.join(job.network)}" if job.network else ""
            cores = counted_cores(job.cores)
            self.say(
                f"{self._called(attempt)} started: {cores}, {memory_size(job.ram_mb)} RAM{cards}{network}, "
                f"at most {counted(job.minutes, 'minute')}"
            )

    def ended(self, attempt: Attempt, ending: AttemptResult) -> None:
        word = _ENDED[ending.outcome]
        if self._may_speak(word):
            error = (ending.error or "").strip().splitlines()
            why = f": {error[-1][:200]}" if error and ending.outcome is Outcome.FAILED else ""
            ran = f" after {ending.ran_ms / 1000:.3g} s" if ending.ran_ms else ""
            self.say(f"{self._called(attempt)} {word}{ran}{why}")

    def _called(self, attempt: Attempt) -> str:
        grant = attempt.grant
        whose = "your own" if grant.account_id == self._owner else f"of {short_account(grant.account_id)}"
        return f"{attempt.spec.spec.name or 'a job'} ({grant.job_id}, {whose})"

    # ------------------------------------------------------------ thousands of jobs a second are not lines
    def _may_speak(self, what: str) -> bool:
        """Only so many lines in a while; what is more is counted, and told together at its end."""
        if self._window is None:
            loop = asyncio.get_running_loop()
            self._window = loop.call_later(self._limits.console_window_s, self._end_window)
        self._lines += 1
        if self._lines <= self._limits.console_lines_max:
            return True
        self._untold[what] += 1
        return False

    def _end_window(self) -> None:
        self._window = None
        self._lines = 0
        if self._untold:
            self.say(f"… {', '.join(f'{count} more {what}' for what, count in self._untold.items())}")
            self._untold.clear()


def greeting(
    config: AgentConfig, profile: Profile, *, node_id: str, hub: str, known: OwnNodeView | None
) -> str:
    """Who this node is, what it offers, at which price, and how to stop it. `known`: what the hub says of it, if it does."""
    owner = f", for {known.owner_name}" if known is not None else ""
    cards = ", ".join(card.name for card in profile.gpus) or "no GPU"
    memory = f"{memory_size(profile.ram_mb)} RAM, {memory_size(profile.disk_mb)} disk"
    network = "for jobs that list hosts to reach" if config.network else "none for jobs (--net)"
    facts = {
        "Offers": f"{counted_cores(profile.cores)}, {memory}, {cards}, Python {profile.python_words}",
        "Price": _price(known),
        "Sandbox": f"{profile.isolation}: {Level.parse(profile.isolation).meaning}",
        "Network": network,
        "Paused": "it takes no jobs until: pool node resume" if config.paused_path.exists() else "",
        "Logs": f"{config.data_dir / LOG}; --verbose shows them here",
    }
    shown = [f"  {name:<9} {value}" for name, value in facts.items() if value]
    head = f"  {config.name} ({node_id}) lends itself to {hub}{owner}"
    return "\n".join(map(printable, ["", head, "", *shown, "", *_COMMANDS, ""]))


def counted_cores(cores: float) -> str:
    return f"{cores:g} {'core' if cores == 1 else 'cores'}"


def _price(known: OwnNodeView | None) -> str:
    if known is None:
        return "what the pool pays; your least: pool market floor"
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
    """What the owner should know of the logs. The same one over and over, such as a hub that is away, is one line."""

    def __init__(self, console: Watcher) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg != self._last:
            self._last = str(record.msg)
            self._console.say(f"Warning: {record.getMessage()}")


def log_to_file(data_dir: Path, console: Watcher, *, limits: AgentLimits, format: str) -> None:
    """The whole log into the node's folder, within a bound; warnings to the owner."""
    file = logging.handlers.RotatingFileHandler(
        data_dir / LOG, maxBytes=limits.agent_log_bytes, backupCount=1
    )
    file.setFormatter(PlainFormatter(format))
    logging.basicConfig(level=logging.INFO, handlers=[file, _Warnings(console)])
