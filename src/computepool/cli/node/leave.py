"""`pool node leave`: take this machine out of the pool, for good."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from computepool.cli import output
from computepool.cli.confirmation import Yes, confirm
from computepool.cli.local.folders import data_folder, node_folder
from computepool.cli.local.local_pool import status_line
from computepool.cli.node.options import Data, config_of
from computepool.cli.options import Json
from computepool.core.money.money import format_credits
from computepool.core.words import counted

if TYPE_CHECKING:
    from computepool.agent.config import AgentConfig
    from computepool.agent.hub_link.identity import Identity
    from computepool.protocol.money.market import OwnNodeView

_LOOK_S = 0.3
_MONTH_DAYS = 30


def leave(
    *,
    now: Annotated[
        bool,
        typer.Option("--now", help="Do not wait for running jobs: they are given back and run elsewhere."),
    ] = False,
    data: Data = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Take this machine out of the pool: it finishes its jobs, the hub removes it, and its identity here is deleted.

    What it earned stays in its owner's account. Its cache and results that came home stay on the disk. It can come back only as a
    new node, with a new code.

    \b
    Examples:
      pool node leave
      pool node leave --now --yes
    """
    from computepool.agent.hub_link import identity
    from computepool.core.errors import BadRequest

    folder = node_folder(data_folder(data))
    known = identity.load(folder / "identity.json")
    if known is None:
        raise BadRequest("This machine is not enrolled, so there is nothing to leave.")
    config = config_of({}, hub=None, code=None, reset=[], data=data)
    status = _status(folder)
    if not yes:
        _explain(config, known, status, now=now)
        confirm(f"Shall {config.name} ({known.node_id}) leave {known.hub_url} for good?")
    last = _earned(config, known)
    if status is None:
        _leave_stopped(config, known)
    else:
        _leave_running(folder, now=now)
    if json:
        output.print_json({"node_id": known.node_id, "hub": known.hub_url, "left": True})
        return
    output.say(f"{config.name} has left {known.hub_url}.{_owed(last)}")
    output.note(
        f"Its cache is still in {folder}: pool node cache clear. To lend the machine again: pool node start --code CODE"
    )


def _status(folder: Path) -> dict[str, Any] | None:
    from computepool.agent.owner import control
    from computepool.core.errors import Unavailable

    try:
        return control.call(folder, "status")
    except Unavailable:
        return None


def _explain(config: AgentConfig, known: Identity, status: dict[str, Any] | None, *, now: bool) -> None:
    from computepool.agent.hub_link.departure import count_unreported

    running = 0 if status is None else len(status["running"]) + status["waiting"]
    if running:
        then = "are given back and run elsewhere" if now else "end first; --now gives them back instead"
        output.note(f"{counted(running, 'job')} {then}.")
    if status is None and (late := count_unreported(config.outbox_dir)):
        output.note(
            f"The hub has not had {counted(late, 'bundle')} of results yet, and will not pay them: start the node once more "
            "to send them first."
        )
    output.note(_owed(_earned(config, known)).strip() or "What it earned stays in its owner's account.")


def _owed(known: OwnNodeView | None) -> str:
    if known is None:
        return ""
    month = next((part for part in known.earnings.past if part.days == _MONTH_DAYS), None)
    if month is None or not month.jobs:
        return " It has earned nothing in the last 30 days."
    return (
        f" It earned {format_credits(month.amount)} credits with {counted(month.jobs, 'job')} in the last 30 days; they stay "
        f"{known.owner_name}'s, and what is not paid yet matures as before: pool credits"
    )


# ------------------------------------------------------------ the two ways
def _leave_running(folder: Path, *, now: bool) -> None:
    """The agent leaves when its last job is over. Ctrl-C here only stops the watching."""
    from computepool.agent.owner import control
    from computepool.core.errors import Unavailable

    control.call(folder, "leave_now" if now else "leave")
    with status_line("Leaving: the node finishes its jobs") as say:
        told = -1
        while (status := _status(folder)) is not None:
            left = len(status["running"]) + status["waiting"]
            if left != told:
                told = left
                say(
                    f"Leaving: {counted(left, 'job')} to end, {counted(status['unreported'], 'result')} to report"
                )
            time.sleep(_LOOK_S)
    if (folder / "identity.json").exists():
        raise Unavailable(
            "The node stopped, but the hub did not hear that it leaves. Try again: pool node leave"
        )


def _leave_stopped(config: AgentConfig, known: Identity) -> None:
    from computepool.agent import main
    from computepool.agent.hub_link import departure
    from computepool.core.errors import Unavailable

    with main.only_agent(config.data_dir):
        try:
            _ask(config, known, lambda client: departure.leave(client, config))
        except Unavailable as error:
            raise Unavailable(
                f"{error.detail} So the node stays enrolled. If that hub is gone for good, delete {config.identity_path}."
            ) from error


def _earned(config: AgentConfig, known: Identity) -> OwnNodeView | None:
    """What the hub says of it; nothing where it does not answer, or does not know the node any more."""
    from computepool.core.errors import ComputePoolError

    try:
        found: OwnNodeView = _ask(config, known, lambda client: client.own_node())
    except ComputePoolError:
        return None
    return found


def _ask(config: AgentConfig, known: Identity, question: Any) -> Any:
    import asyncio

    from computepool.agent.clock import SystemAgentClock
    from computepool.agent.hub_link.hub_client import HubClient

    async def ask() -> Any:
        client = HubClient(config.hub_urls, clock=SystemAgentClock(), limits=config.limits, identity=known)
        try:
            return await question(client)
        finally:
            await client.close()

    return asyncio.run(ask())
