"""`pool events`: every state transition, as it was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from computepool.cli import output
from computepool.cli.options import Json, open_pool

if TYPE_CHECKING:
    from computepool.protocol.accounts import EventView


def events(
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as they happen.")] = False,
    job: Annotated[str | None, typer.Option(help="Of this job.")] = None,
    node: Annotated[str | None, typer.Option(help="Of this node.")] = None,
    after: Annotated[int, typer.Option(help="From this number on.")] = 0,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most this many.")] = None,
    json: Json = False,
) -> None:
    """Print state transitions: who, what, from, to, why. With --json one line each.

    \b
    Examples:
      pool events --job job_01h…
      pool events -f --json
    """
    pool = open_pool(patience_s=300 if follow else 3)
    try:
        for event in pool.events(follow=follow, after=after, limit=limit, job_id=job, node_id=node):
            output.say(event.model_dump_json() if json else _line(event))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _line(event: EventView) -> str:
    subject = event.job_id or event.node_id or event.group_id or event.account_id or ""
    change = f"{event.before or ''} → {event.after}" if event.after else ""
    words = (
        str(event.seq),
        output.moment(event.at_ms),
        event.action,
        subject,
        change,
        event.reason or "",
        f"by {event.actor}",
    )
    return "  ".join(word for word in words if word)
