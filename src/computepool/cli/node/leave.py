"""`pool node leave` and `pool node revoke`: remove a node from the pool permanently."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from computepool.cli import output
from computepool.cli.local.local_pool import status_line
from computepool.cli.node.options import ask_hub, call_agent, config_of, load_identity
from computepool.cli.options import Data, NodeName, Yes, confirm, open_pool
from computepool.core.errors import BadRequest, ComputePoolError, Unavailable
from computepool.core.money.money import format_credits
from computepool.core.words import pluralize
from computepool.sdk.client.config import node_folder

if TYPE_CHECKING:
    from computepool.agent.config import AgentConfig
    from computepool.agent.hub_link.identity import Identity
    from computepool.protocol.money.market import OwnNodeView

_LOOK_S = 0.3
_MONTH_DAYS = 30


def leave(
    *,
    now: Annotated[
        bool, Option("--now", help="Do not wait for running jobs; they are returned and run elsewhere.")
    ] = False,
    data: Data = None,
    yes: Yes = False,
) -> None:
    """Remove this machine from the pool: finish its jobs, leave the hub, and forget its key.

    Its earnings stay in the owner's account. Its cache and delivered results stay on disk. It can return only as a new
    node, with a new code.

    Examples:
      pool node leave
      pool node leave --now --yes
    """
    folder = node_folder(data)
    known = load_identity(folder)
    if known is None:
        raise BadRequest("This machine is not enrolled in a pool.")
    config = config_of({}, data=data)
    status = _status(data)
    if not yes:
        _explain(config, known, status, now=now)
        confirm(f"Remove {config.name} ({known.node_id}) from {known.hub_url} permanently?")
    last = _own_view(config, known)
    if status is None:
        _leave_stopped(config, known)
    else:
        _leave_running(data, now=now)
    output.show(
        {"node_id": known.node_id, "hub": known.hub_url, "left": True},
        f"{config.name} has left {known.hub_url}.{_earnings_text(last)}",
        hint=f"Its cache is still in {folder}; clear it: pool node cache clear. "
        "To add the machine again: pool node start --code CODE",
    )


def _status(data: Path | None) -> dict[str, Any] | None:
    try:
        return call_agent(data, "status")
    except Unavailable:
        return None


def _explain(config: AgentConfig, known: Identity, status: dict[str, Any] | None, *, now: bool) -> None:
    from computepool.agent.hub_link.departure import count_unreported

    running = 0 if status is None else len(status["running"]) + status["waiting"]
    if running:
        then = "will be returned and run elsewhere" if now else "will finish first; pass --now to return them instead"
        output.note(f"{pluralize(running, 'job')} {then}.")
    if status is None and (late := count_unreported(config.outbox_dir)):
        output.note(
            f"{pluralize(late, 'bundle')} of results were not sent to the hub and will not be paid. To send them first, start "
            "the node again."
        )
    output.note(_earnings_text(_own_view(config, known)).strip() or "Its earnings stay in the owner's account.")


def _earnings_text(known: OwnNodeView | None) -> str:
    if known is None:
        return ""
    month = next((part for part in known.earnings.past if part.days == _MONTH_DAYS), None)
    if month is None or not month.jobs:
        return " It earned nothing in the last 30 days."
    return (
        f" It earned {format_credits(month.amount)} credits with {pluralize(month.jobs, 'job')} in the last 30 days. "
        f"They stay with {known.owner_name}, and unpaid earnings mature as usual: pool credits"
    )


def revoke(node: NodeName, *, yes: Yes = False) -> None:
    """Revoke a node's key permanently; its jobs run elsewhere (owner and admins only).

    For a machine that is lost, sold or stolen. It can return only as a new node, with a new code.

    Examples:
      pool node revoke studio-3
      pool node revoke studio-3 --yes --json
    """
    pool = open_pool()
    found = pool.nodes.find(node)
    if not yes:
        confirm(f"{found.name} ({found.id}) can return only as a new node. Revoke its key?")
    view = pool.nodes.revoke(found.id)
    output.show(
        view,
        f"{view.name} revoked",
        hint="To add the machine again, create a code with `pool node code`, and start the node with a new data folder.",
    )


# ------------------------------------------------------------ with a running agent, or without
def _leave_running(data: Path | None, *, now: bool) -> None:
    """The agent leaves when its last job ends. Ctrl-C only stops waiting for it."""
    call_agent(data, "leave_now" if now else "leave")
    with status_line("Leaving: waiting for jobs to finish") as update:
        shown = -1
        while (status := _status(data)) is not None:
            left = len(status["running"]) + status["waiting"]
            if left != shown:
                shown = left
                update(
                    f"Leaving: {pluralize(left, 'job')} to finish, {pluralize(status['unreported'], 'result')} to report"
                )
            time.sleep(_LOOK_S)
    if (node_folder(data) / "identity.json").exists():
        raise Unavailable("The node stopped, but the hub was not notified. Try again: pool node leave")


def _leave_stopped(config: AgentConfig, known: Identity) -> None:
    from computepool.agent import main
    from computepool.agent.hub_link import departure

    with main.only_agent(config.data_dir):
        try:
            ask_hub(config, lambda client: departure.leave(client, config), identity=known)
        except Unavailable as error:
            raise Unavailable(
                f"{error.detail} The node stays enrolled. If the hub no longer exists, delete {config.identity_path}."
            ) from error


def _own_view(config: AgentConfig, known: Identity) -> OwnNodeView | None:
    """The hub's view of this node; None if the hub does not answer or no longer knows the node."""
    try:
        found: OwnNodeView = ask_hub(config, lambda client: client.own_node(), identity=known)
    except ComputePoolError:
        return None
    return found
