"""`pool jobs groups` and `pool group …`: groups of jobs, their progress, and the delivery of their results."""

from __future__ import annotations

import json as json_text
import math
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option, Typer

from computepool.cli import output
from computepool.cli.options import RETRY_FOR_S, WATCH_RETRY_FOR_S, Limit, note_if_interrupted, open_pool, pairs
from computepool.core.errors import BadRequest
from computepool.core.words import pluralize
from computepool.sdk.client.sizes import seconds

if TYPE_CHECKING:
    from computepool.protocol.jobs.groups import GroupItem, GroupSummary, GroupView

app = Typer(no_args_is_help=True)
Group = Annotated[str, Argument(metavar="GROUP", help="Group: name, ID, unique ID prefix, or `last`.")]
_FAILED_MAX = 20  #: failures shown in a summary


def groups(
    *,
    group: Annotated[str | None, Option(metavar="GROUP", help="Show this group in full (ID or name).")] = None,
    limit: Limit = 30,
) -> None:
    """List groups, newest first, with progress, failures and delivery state.

    Examples:
      pool jobs groups
      pool jobs groups --group sweep
      pool jobs groups --group grp_01h… --json
    """
    pool = open_pool()
    if group is not None:
        show_summary(pool.groups.collector(group).summary().view)
        return
    _list(pool.groups.list(limit=limit))


@app.command("list")
def list_groups(*, limit: Limit = 30) -> None:
    """List groups, newest first, with progress, failures and delivery state.

    \b
    Examples:
      pool group list
    """
    _list(open_pool().groups.list(limit=limit))


def _list(found: Sequence[GroupView]) -> None:
    columns = ("ID", "NAME", "KIND", "TOTAL", "DONE", "FAILED", "PENDING", "STATE", "HOME", "CREATED")
    output.show_table(found, columns, map(_row, found), empty="No groups. Try: pool submit job.py --group NAME")


def _row(group: GroupView) -> tuple[output.Cell, ...]:
    home = "" if group.home.state == "off" else group.home.sentence
    return (
        group.id, group.name, group.kind, group.total, group.succeeded, group.failed, group.pending,
        _state(group), home, output.ago(group.created_at_ms),
    )  # fmt: skip


def _state(group: GroupView) -> str:
    return "complete" if group.complete else "open" if group.total else "empty"


@app.command()
def summary(group: Group) -> None:
    """Show a group: counts, what is pending and why, results, failures, and delivery to its home node.

    Examples:
      pool group summary sweep
      pool group summary grp_01h… --json
    """
    show_summary(open_pool().groups.collector(group).summary().view)


def show_summary(found: GroupSummary) -> None:
    from computepool.protocol.jobs.unbundling import each_item

    if output.print_json(found):
        return
    counts = ", ".join(f"{count} {state}" for state, count in found.counts.items() if count)
    fields: list[tuple[str, output.Cell]] = [
        ("id", found.id),
        ("name", found.name),
        ("state", _state(found)),
        ("total", found.total),
        ("counts", counts),
        ("expected", pluralize(found.expected, "key") if found.expected else None),
        ("duplicates", pluralize(found.duplicates, "report") if found.duplicates else None),
        ("created", output.ago(found.created_at_ms)),
        ("completed", output.ago(found.completed_at_ms)),
        ("collector", f"hub {found.location.hub_id} {found.location.address}".strip()),
        ("home", None if found.home.state == "off" else found.home.sentence),
        ("messages", f"{found.message_count}; see: pool group messages {found.id}" if found.message_count else None),
    ]
    if found.home.state == "arrived":
        contents = f"{pluralize(found.home.items or 0, 'item')}, {pluralize(found.home.files or 0, 'different file')}"
        size = output.size(found.home.bytes or 0)
        fields.append(("arrived", f"{contents}, {size}, {output.ago(found.home.at_ms)}"))
        place = found.home.path or f"{found.home.folder} in the agent's data folder"
        fields.append(("folder", f"{place} on {found.home.node_name}"))
    output.print_fields(fields)
    # A job with several items of a map is split into its failed items, each of which has its own reason.
    failed = list(islice(each_item(found.failures.items, "failures"), _FAILED_MAX + 1))
    more = len(failed) > _FAILED_MAX or found.failures.next is not None
    _print_items("PENDING", found.waiting.items, more=found.waiting.next is not None)
    _print_items("FAILED", failed[:_FAILED_MAX], more=more)
    _print_items("DONE", found.results.items, more=found.results.next is not None)


def _print_items(title: str, items: Sequence[GroupItem], *, more: bool) -> None:
    rows = [
        (
            item.key or "(no key)",
            item.job_id or "",
            item.state,
            (item.error or "").strip().splitlines()[-1] if (item.error or "").strip() else item.sentence,
            len(item.outputs) or "",
        )
        for item in items
    ]
    output.print_table((title, "JOB", "STATE", "WHY", "FILES"), rows)
    if more:
        output.note("… and more. For the full list: pool group fetch, or the API's /items")


@app.command()
def drain(
    group: Group,
    *,
    timeout: Annotated[str | None, Option(metavar="TIME", help="Maximum wait: 90, 10m, 2h. Default: no limit.")] = None,
    notify: Annotated[
        bool, Option("--notify", help="Show a desktop or terminal notification when it completes.")
    ] = False,
) -> None:
    """Wait until the group is complete, with a progress bar. Exits with 1 on failures or timeout.

    Ctrl-C only stops waiting. The jobs keep running, and you can wait again from any machine.

    Examples:
      pool group drain sweep
      pool group drain sweep --timeout 2h --notify
    """
    from computepool.sdk.classes.collector import DrainTimeout
    from computepool.sdk.jobs.progress_bar import Bar

    limit_s = math.inf if timeout is None else seconds(timeout, what="--timeout")
    end = time.monotonic() + limit_s
    pool = open_pool(retry_for=min(WATCH_RETRY_FOR_S, limit_s))
    collector = pool.groups.collector(group)
    start = collector.summary()
    if not start.total:
        raise BadRequest("The group is empty. Submit jobs to it, or register keys, then wait for it.")
    bar = Bar("draining", total=start.total, show=False if output.as_json() else None)
    seen = 0

    def progress(view: GroupView) -> None:
        nonlocal seen
        pool.transport.retry_for = min(WATCH_RETRY_FOR_S, max(0.0, end - time.monotonic()))
        done = view.succeeded + view.failed
        bar.add(done - seen)
        seen = done

    try:
        with note_if_interrupted(f"The jobs keep running. Wait again: pool group drain {collector.group_id}"), bar:
            found = collector.drain(None if timeout is None else limit_s, progress, notify=notify)
    except DrainTimeout as late:
        show_summary(late.summary.view)
        output.note(f"Timed out: {late}.")
        raise Exit(1) from None
    show_summary(found.view)
    if found.failed:
        raise Exit(1)


@app.command()
def messages(
    group: Group,
    *,
    follow: Annotated[bool, Option("--follow", "-f", help="Follow new messages until the group is complete.")] = False,
    after: Annotated[int, Option(metavar="N", min=0, help="Only messages after this number.")] = 0,
) -> None:
    """Show messages that running jobs sent (computepool.send_to_collector), in order of arrival.

    A restarted job sends its messages again; each shows its attempt. With --json, one document per line.

    Examples:
      pool group messages sweep
      pool group messages sweep -f
    """
    pool = open_pool(retry_for=WATCH_RETRY_FOR_S if follow else RETRY_FOR_S)
    collector = pool.groups.collector(group)
    for message in pool.groups.messages(collector.group_id, follow=follow, after=after):
        who = message.key or message.job_id
        text = f"{message.number}  {output.moment(message.at_ms)}  {who}  attempt {message.attempt}  {message.value}"
        output.show_line(message, text)
        sys.stdout.flush()


@app.command()
def register(
    group: Group,
    keys: Annotated[list[str] | None, Argument(metavar="KEY…", help="Keys to expect.")] = None,
    *,
    file: Annotated[
        str | None, Option(metavar="PATH", help="File with one key per line; - for standard input.")
    ] = None,
    meta: Annotated[
        list[str] | None, Option(metavar="NAME=VALUE", help="Metadata shown with each key; repeatable.")
    ] = None,
) -> None:
    """Register keys that the group expects. Each is completed by a job with that key, or by a report.

    Creates the group if it does not exist. Register keys before jobs run, so that the group cannot look complete too
    early.

    Examples:
      pool group register sweep seed-1 seed-2 --meta stage=first
      seq 1 1000 | pool group register sweep --file -
    """
    requested = list(keys or ())
    if file is not None:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        requested += [line.strip() for line in text.split("\n") if line.strip()]
    if not requested:
        raise BadRequest("Specify keys, or a file with --file: pool group register GROUP KEY…")
    pool = open_pool()
    collector = pool.groups.collector(pool.groups.find_or_create(group))
    metadata = pairs(meta, what="--meta") or None
    added = collector.register_jobs(dict.fromkeys(requested, metadata))
    known = len(set(requested)) - added
    were = "was" if known == 1 else "were"
    output.show(
        {"group_id": collector.group_id, "added": added, "known": known},
        collector.group_id,
        hint=f"{pluralize(added, 'new key')}, {known} {were} already registered.",
    )


@app.command()
def result(
    group: Group,
    key: Annotated[str, Argument(help="A registered key without a job.")],
    value: Annotated[str | None, Argument(help="Result: JSON, or plain text.")] = None,
) -> None:
    """Report a key as succeeded, from outside the pool. The first report counts; later ones are duplicates.

    Examples:
      pool group result sweep seed-1 0.93
      pool group result sweep seed-2 '{"loss": 0.1, "epochs": 3}'
    """
    _print_reported(key, open_pool().groups.collector(group).job_result(key, _value(value)))


def _value(text: str | None) -> object:
    if text is None:
        return None
    try:
        return json_text.loads(text)
    except ValueError:
        return text


@app.command()
def failure(
    group: Group,
    key: Annotated[str, Argument(help="A registered key without a job.")],
    error: Annotated[str, Argument(help="Reason for the failure.")],
) -> None:
    """Report a key as failed, from outside the pool.

    Examples:
      pool group failure sweep seed-3 "the simulator has no licence here"
    """
    _print_reported(key, open_pool().groups.collector(group).job_failure(key, error))


def _print_reported(key: str, accepted: bool) -> None:
    if not output.print_json({"key": key, "accepted": accepted}):
        if accepted:
            output.write_line(f"{key} reported")
        else:
            output.note(f"{key} was already reported, or has a job. This report was counted as a duplicate.")
    if not accepted:
        raise Exit(1)


@app.command("return-home")
def return_home(
    group: Group,
    *,
    home: Annotated[
        str | None, Option(metavar="NODE", help="One of your nodes (ID or name). Default: the group's current home.")
    ] = None,
    off: Annotated[bool, Option("--off", help="Cancel delivery.")] = False,
) -> None:
    """Deliver all results and files to one of your nodes once the group is complete.

    The node fetches them when it is online, verifies every SHA-256, and retries until it succeeds. Run this again to
    make it verify what it has.

    Examples:
      pool group return-home sweep --home laptop
      pool group return-home sweep
      pool group return-home sweep --off
    """
    view = open_pool().groups.collector(group).return_home(home, enabled=not off)
    output.show(view, view.home.sentence if view.home.state != "off" else "Results stay at the hub.")


@app.command()
def fetch(
    group: Group, folder: Annotated[Path, Argument(metavar="DIR", help="Destination folder; created if needed.")]
) -> None:
    """Download the summary, results and files, verified by SHA-256. Run it again to resume.

    Examples:
      pool group fetch sweep ./results
      cd results && sha256sum -c manifest.txt
    """
    from computepool.sdk.files.fetching import fetch_group
    from computepool.sdk.jobs.progress_bar import Bar

    pool = open_pool(retry_for=WATCH_RETRY_FOR_S)
    view = pool.groups.find(group)
    bar = Bar("fetching", total=None, show=False if output.as_json() else None)
    with note_if_interrupted(f"Downloaded files are kept. Resume: pool group fetch {view.id} {folder}"), bar:
        found = fetch_group(pool, view.id, folder, progress=lambda _: bar.add(1))
    pending, lost = found.summary.pending, len(found.missing)
    are = "is" if pending == 1 else "are"
    later = "" if found.summary.complete else f" {pending} {are} pending; run this again later."
    gone = f" {lost} file{' is' if lost == 1 else 's are'} no longer at the hub." if lost else ""
    contents = f"{pluralize(found.items, 'item')}, {pluralize(found.files, 'file')}"
    output.show(
        {
            "group_id": view.id,
            "folder": str(found.folder),
            "complete": found.summary.complete,
            "items": found.items,
            "files": found.files,
            "bytes": found.bytes,
            "missing": found.missing,
        },
        str(found.folder),
        hint=f"{contents}, {output.size(found.bytes)}.{later}{gone}",
    )


@app.command()
def cancel(group: Group) -> None:
    """Cancel all unfinished jobs of a group. Keys without a report fail.

    Examples:
      pool group cancel sweep
    """
    pool = open_pool()
    before = pool.groups.find(group)
    view = pool.groups.cancel(before.id)
    counts = ", ".join(f"{count} {state}" for state, count in view.counts.items() if count)
    over = " was already complete:" if before.complete else ""
    output.show(view, f"{view.id}{over} {counts or 'empty'}")
