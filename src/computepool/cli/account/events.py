"""`pool events`: every state transition, as it was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from computepool.cli import output
from computepool.cli.options import open_pool
from computepool.cli.references import OfAccount, OfGroup, OfJob, OfNode
from computepool.sdk.client.sizes import seconds
from computepool.sdk.clock import now_ms

if TYPE_CHECKING:
    from computepool.protocol.accounts import EventView


def events(
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new events.")] = False,
    newest: Annotated[
        bool | None,
        typer.Option(
            "--newest/--oldest",
            help="Order of events. Default: oldest first, or newest first with -n.",
            show_default=False,
        ),
    ] = None,
    action: Annotated[
        str | None, typer.Option(help="Filter by action prefix, such as node., job.failed or key.created.")
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            "--search", "-q", metavar="TEXT", help="Filter by text in the reason or data, or by ID."
        ),
    ] = None,
    actor: Annotated[
        str | None, typer.Option(help="Filter by who acted: an account, a node, or `hub`.")
    ] = None,
    account: OfAccount = None,
    job: OfJob = None,
    node: OfNode = None,
    group: OfGroup = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="How far back: 30m, 2h, 7d.")] = None,
    after: Annotated[int, typer.Option(help="Only events after this number.")] = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Maximum number of events.")
    ] = None,
) -> None:
    """Print state transitions: who, what, from, to, and why. With --json, one document per line.

    \b
    Examples:
      pool events --job job_01h…
      pool events -n 20
      pool events --newest --action node.
      pool events --search "out of memory" --since 7d
      pool events -f --json
    """
    if newest is None:
        newest = limit is not None and not (follow or after)
    if newest and (follow or after):
        raise typer.BadParameter("cannot be combined with --follow or --after.", param_hint="--newest")
    pool = open_pool(retry_for=300 if follow else 3)
    filters = {
        "action": action, "q": search, "actor": actor, "account_id": account, "job_id": job, "node_id": node,
        "group_id": group, "since_ms": None if since is None else now_ms() - round(seconds(since, what="--since") * 1000),
    }  # fmt: skip
    try:
        for event in pool.events(follow=follow, newest=newest, after=after, limit=limit, **filters):
            output.show_line(event, _line(event))
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
