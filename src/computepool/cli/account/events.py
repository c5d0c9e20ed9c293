"""`pool events`: all recorded state transitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import BadParameter, Option

from computepool.cli import options, output

if TYPE_CHECKING:
    from computepool.protocol.accounts import EventView


_FILTERS = {
    "action": options.option(str, None, "Filter by action prefix, such as node., job.failed or key.created."),
    "q": options.option(str, "TEXT", "Filter by text in the reason or data, or by ID.", "--search", "-q"),
    "actor": options.option(str, None, "Filter by who acted: an account, a node, or `hub`."),
    "account_id": options.OfAccount,
    "job_id": options.OfJob,
    "node_id": options.OfNode,
    "group_id": options.OfGroup,
    "since_ms": options.Since,
}


@options.accepts(given=options.collects(_FILTERS)(options.filters))
def events(
    *,
    follow: Annotated[bool, Option("--follow", "-f", help="Follow new events.")] = False,
    newest: Annotated[
        bool | None,
        Option(
            "--newest/--oldest",
            help="Order of events. Default: oldest first, or newest first with -n.",
            show_default=False,
        ),
    ] = None,
    given: dict[str, Any],
    after: Annotated[int, Option(help="Only events after this number.")] = 0,
    limit: Annotated[int | None, Option("--limit", "-n", min=1, help="Maximum number of events.")] = None,
) -> None:
    """Print state transitions: who, what, from, to, and why. With --json, one document per line.

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
        raise BadParameter("cannot be combined with --follow or --after.", param_hint="--newest")
    pool = options.open_pool(retry_for=options.WATCH_RETRY_FOR_S if follow else options.RETRY_FOR_S)
    for event in pool.events(follow=follow, newest=newest, after=after, limit=limit, **given):
        output.show_line(event, _line(event))


def _line(event: EventView) -> str:
    subject = event.job_id or event.node_id or event.group_id or event.account_id or ""
    change = f"{event.before or ''} → {event.after}" if event.after else ""
    parts = (
        str(event.seq),
        output.moment(event.at_ms),
        event.action,
        subject,
        change,
        event.reason or "",
        f"by {event.actor}",
    )
    return "  ".join(filter(None, parts))
