"""`pool webhooks`: be told at an address of yours when something is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from computepool.cli import output
from computepool.cli.clock import now_ms
from computepool.cli.options import Json, open_pool

app = typer.Typer(no_args_is_help=True, help="Be told at an address of yours when something is done.")
_Id = Annotated[str, typer.Argument(metavar="ID", help="From `pool webhooks list`.")]


@app.command("add")
def add(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where messages are sent, by POST over https.")],
    *,
    event: Annotated[
        list[str] | None,
        typer.Option(help="group.complete, group.home or job.finished; may be given several times."),
    ] = None,
    json: Json = False,
) -> None:
    """Be told by a signed message when a group is complete or has come home.

    The secret is printed once; the receiver checks signatures with it: computepool.verify_webhook(headers, body, secret),
    or any library for Standard Webhooks. job.finished is one message for every job, so it is sent only to who asks.

    \b
    Examples:
      pool webhooks add https://example.org/computepool
      pool webhooks add https://example.org/jobs --event job.finished --event group.complete
    """
    from computepool.protocol.webhooks import DEFAULT_EVENTS

    _check_events(event or ())
    made = open_pool().webhooks.add(url, events=event or DEFAULT_EVENTS)
    if json:
        output.print_json(made)
        return
    output.say(f"{made.id}: {', '.join(made.events)} to {made.url}")
    output.say(f"Secret, shown this once: {made.secret}")
    output.note(f"Try it out: pool webhooks test {made.id}")


def _check_events(names: Sequence[str]) -> None:
    from difflib import get_close_matches

    from computepool.core.errors import BadRequest
    from computepool.protocol.webhooks import EVENTS

    for name in names:
        if name not in EVENTS:
            near = get_close_matches(name, EVENTS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(EVENTS)}."
            raise BadRequest(f"--event: there is no event {name!r}; {hint}", field="events")


@app.command("list")
def list_webhooks(*, json: Json = False) -> None:
    """List your webhooks, and whether they work.

    \b
    Examples:
      pool webhooks list
    """
    found = open_pool().webhooks.list()
    if json:
        output.print_json(found)
        return
    rows = [(one.id, _health(one), ", ".join(one.events), one.url) for one in found]
    output.print_table(("ID", "STATE", "EVENTS", "URL"), rows, empty="You have no webhooks.")


def _health(one: object) -> str:
    from computepool.protocol.webhooks import WebhookView

    assert isinstance(one, WebhookView)
    if one.disabled_at_ms is not None:
        return f"disabled: {one.disabled_reason}"
    return (
        "works"
        if one.failing_since_ms is None
        else f"nothing has arrived for {output.span(now_ms() - one.failing_since_ms)}"
    )


@app.command("rm")
def remove(webhook_id: _Id, *, json: Json = False) -> None:
    """Remove a webhook; nothing more is sent to it.

    \b
    Examples:
      pool webhooks rm hook_01h…
    """
    open_pool().webhooks.remove(webhook_id)
    output.print_json({"id": webhook_id, "removed": True}) if json else output.say(f"{webhook_id}: removed")


@app.command("enable")
def enable(webhook_id: _Id, *, json: Json = False) -> None:
    """Send to it again after it was disabled. What happened meanwhile is not sent: see `pool events`.

    \b
    Examples:
      pool webhooks enable hook_01h…
    """
    found = open_pool().webhooks.enable(webhook_id)
    output.print_json(found) if json else output.say(f"{found.id}: {_health(found)}")


@app.command("test")
def try_out(webhook_id: _Id, *, json: Json = False) -> None:
    """Send it a message that says it is a test, and show how that goes.

    \b
    Examples:
      pool webhooks test hook_01h…
    """
    made = open_pool().webhooks.test(webhook_id)
    if json:
        output.print_json(made)
    else:
        output.say(f"{made.id} is on its way; see how it went: pool webhooks deliveries {webhook_id}")


@app.command("deliveries")
def deliveries(
    webhook_id: _Id,
    *,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 20,
    json: Json = False,
) -> None:
    """What was sent to a webhook, newest first, and how that went.

    \b
    Examples:
      pool webhooks deliveries hook_01h…
    """
    from itertools import islice

    found = list(islice(open_pool().webhooks.deliveries(webhook_id, limit=limit), limit))
    if json:
        output.print_json(found)
        return
    rows = [
        (one.id, one.event, one.state, str(one.tries), output.ago(one.created_at_ms), one.reason or "")
        for one in found
    ]
    output.print_table(("ID", "EVENT", "STATE", "TRIES", "WHEN", "WHY"), rows, empty="Nothing was sent yet.")
