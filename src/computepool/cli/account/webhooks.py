"""`pool webhooks`: send signed notifications to a URL."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, Typer

from computepool.cli import output
from computepool.cli.options import open_pool
from computepool.core.errors import BadRequest
from computepool.sdk.clock import now_ms

if TYPE_CHECKING:
    from computepool.protocol.webhooks import WebhookView

app = Typer(no_args_is_help=True)
_Id = Annotated[str, Argument(metavar="ID", help="From `pool webhooks list`.")]


@app.command("add")
def add(
    url: Annotated[str, Argument(metavar="URL", help="URL that receives messages as HTTPS POST.")],
    *,
    event: Annotated[list[str] | None, Option(help="group.complete, group.home or job.finished; repeatable.")] = None,
) -> None:
    """Add a webhook: a signed message when a group completes or its results are delivered.

    The secret is printed once. The receiver verifies signatures with computepool.verify_webhook(headers, body, secret),
    or with any Standard Webhooks library. job.finished sends one message per job, so it is off by default.

    Examples:
      pool webhooks add https://example.org/computepool
      pool webhooks add https://example.org/jobs --event job.finished --event group.complete
    """
    from computepool.protocol.webhooks import DEFAULT_EVENTS

    _check_events(event or ())
    made = open_pool().webhooks.add(url, events=event or DEFAULT_EVENTS)
    text = f"{made.id}: {', '.join(made.events)} to {made.url}\nSecret (shown only once): {made.secret}"
    output.show(made, text, hint=f"Test it: pool webhooks test {made.id}")


def _check_events(names: Sequence[str]) -> None:
    from computepool.protocol.webhooks import EVENTS

    for name in names:
        if name not in EVENTS:
            near = get_close_matches(name, EVENTS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(EVENTS)}."
            raise BadRequest(f"--event: unknown event {name!r}; {hint}", field="events")


@app.command("list")
def list_webhooks() -> None:
    """List your webhooks and their state.

    Examples:
      pool webhooks list
    """
    found = open_pool().webhooks.list()
    rows = [(one.id, _health(one), ", ".join(one.events), one.url) for one in found]
    output.show_table(found, ("ID", "STATE", "EVENTS", "URL"), rows, empty="You have no webhooks.")


def _health(one: WebhookView) -> str:
    if one.disabled_at_ms is not None:
        return f"disabled: {one.disabled_reason}"
    return "works" if one.failing_since_ms is None else f"failing for {output.span(now_ms() - one.failing_since_ms)}"


@app.command("rm")
def remove(webhook_id: _Id) -> None:
    """Remove a webhook.

    Examples:
      pool webhooks rm hook_01h…
    """
    open_pool().webhooks.remove(webhook_id)
    output.show({"id": webhook_id, "removed": True}, f"{webhook_id}: removed")


@app.command("enable")
def enable(webhook_id: _Id) -> None:
    """Re-enable a disabled webhook. Events from the meantime are not sent; see `pool events`.

    Examples:
      pool webhooks enable hook_01h…
    """
    found = open_pool().webhooks.enable(webhook_id)
    output.show(found, f"{found.id}: {_health(found)}")


@app.command("test")
def try_out(webhook_id: _Id) -> None:
    """Send a test message.

    Examples:
      pool webhooks test hook_01h…
    """
    made = open_pool().webhooks.test(webhook_id)
    output.show(made, f"Sent {made.id}. See the outcome: pool webhooks deliveries {webhook_id}")


@app.command("deliveries")
def deliveries(
    webhook_id: _Id, *, limit: Annotated[int, Option(min=1, help="Maximum number of deliveries.")] = 20
) -> None:
    """List deliveries to a webhook, newest first, with their outcome.

    Examples:
      pool webhooks deliveries hook_01h…
    """
    found = list(open_pool().webhooks.deliveries(webhook_id, limit=limit))
    rows = [
        (one.id, one.event, one.state, str(one.tries), output.ago(one.created_at_ms), one.reason or "") for one in found
    ]
    output.show_table(
        found, ("ID", "EVENT", "STATE", "ATTEMPTS", "CREATED", "REASON"), rows, empty="No deliveries yet."
    )
