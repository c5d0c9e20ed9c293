"""`pool submit` and `pool quote`: submit a script or a command, or show its price."""

from __future__ import annotations

import difflib
import shlex
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Context, Exit, Option
from typer.core import TyperCommand
from typer.models import CommandInfo

from computepool.cli import output
from computepool.cli.options import REST, WATCH_RETRY_FOR_S, accepts, job_options, note_if_interrupted, open_pool
from computepool.core.errors import ComputePoolError
from computepool.core.jobs.lifecycle import JobState
from computepool.core.money.money import format_credits, free_or_reserved, round_up
from computepool.sdk.errors import missing_module_hint, missing_package

if TYPE_CHECKING:
    from computepool.protocol.jobs.jobs import JobSpec, SubmitReply
    from computepool.protocol.jobs.views import JobDetail
    from computepool.protocol.money.credits import QuoteView
    from computepool.sdk import JobOptions, Pool, Submitter

#: Similarity, from 0 to 1, above which an option counts as a misspelling of another.
_SIMILAR = 0.75
_Script = Annotated[Path | None, Argument(metavar="FILE", help="Script; its arguments follow, or come after --.")]


class SubmitCommand(TyperCommand):
    """Separates the arguments of the script or command: everything after `--`, and everything after the script that is
    neither one of our options nor a probable misspelling of one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        cut = args.index("--") if "--" in args else len(args)
        own, rest = args[:cut], args[cut + 1 :]
        ctx.ignore_unknown_options = ctx.allow_extra_args = True
        super().parse_args(ctx, list(own))
        extra, ctx.args = list(ctx.args), []
        file = ctx.params.get("file")
        for word in [] if file is None else [str(file), *extra]:
            self._check_foreign(ctx, word, own=own, is_file=word == str(file))
        if extra:
            output.note(f"Passed to {file}: {shlex.join(extra)}")
        ctx.meta[REST] = [*extra, *rest]
        return []

    def _check_foreign(self, ctx: Any, word: str, *, own: list[str], is_file: bool) -> None:
        """Fail if an option of the script precedes its name, is combined with one of ours, or resembles one of ours."""
        if not word.startswith("-") or word == "-" or word[1:2].isdigit():
            return
        name = word.partition("=")[0]
        known = [option for parameter in self.params for option in parameter.opts if option.startswith("--")]
        near = difflib.get_close_matches(name, known, n=1, cutoff=_SIMILAR) if name.startswith("--") else []
        if is_file or near or word not in own:
            meant = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"No such option: {name}.{meant} Options of the script follow its name, or come after --.")


@accepts(given=job_options)
def submit(
    ctx: Context,
    file: _Script = None,
    *,
    slices: Annotated[
        int | None, Option(metavar="N", min=1, max=1000, help="Run it this many times, as one group.")
    ] = None,
    group: Annotated[
        str | None, Option(metavar="GROUP", help="Add it to this group (name or ID); a new name creates one.")
    ] = None,
    key: Annotated[str | None, Option(metavar="KEY", help="Unique key within the group, such as seed-7.")] = None,
    wait: Annotated[bool, Option("--wait/--no-wait", help="Wait for the job and show its output.")] = False,
    out: Annotated[
        Path | None, Option(metavar="DIR", help="Download its outputs into this folder; implies --wait.")
    ] = None,
    ask: Annotated[bool, Option("--quote", help="Show the price, and submit nothing.")] = False,
    impossible: Annotated[
        str, Option(metavar="HOW", help="If no node can run it: queue it until one can, or refuse it.")
    ] = "queue",
    given: JobOptions,
) -> None:
    """Submit a script or a command to the pool.

    Without --wait, prints the job's ID and returns. With --wait, shows the price, the output, and the final cost.

    Examples:
      pool submit examples/hello.py --wait
      pool submit train.py --vram 16 --ram 32GB --timeout 2h --wait -- --epochs 3
      pool submit --cores 4 -i in.mp4 --out results -- ffmpeg -i in.mp4 outputs/out.webm
      pool submit --image python:3.12 --wait -- python -c 'print("hello")'
      pool submit render.py --slices 100 --retries 2 --tag studio --budget 50
      pool submit tidy_up.py --after last --when always --require 'not tag.laptop'
      pool submit train.py --type ml --max-price 40 --quote
      pool submit train.py --nodes 4 --vram 16 --wait
    """
    if key is not None and (group is None or slices):
        raise BadParameter("requires --group, and cannot be combined with --slices.", param_hint="--key")
    pool, rest = open_pool(), ctx.meta.get(REST, [])
    given["impossible"] = impossible
    work = pool.options(**given)
    warn_of_secrets(given)
    note_dependencies(work, file)
    if ask:
        print_quote(request_quote(work, file, rest, items=slices or 1))
        return
    spec = make_spec(work, file, rest)
    if (wait or out) and not output.as_json():
        output.note(price_line(request_quote(work, file, rest, items=slices or 1)))
    reply = _submit(pool, work, spec, slices=slices, group=group, key=key)
    if spec.needs.host is not None and not output.as_json():
        _note_host_owner(pool, reply.job_ids[0])
    if not (wait or out):
        _print_reply(reply, spec, group=group)
        return
    pool = open_pool(retry_for=WATCH_RETRY_FOR_S)
    if slices:
        _watch_slices(pool, reply, out=out)
    else:
        watch(pool, reply.job_ids[0], out=out, warning=reply.warning)


@accepts(given=job_options)
def quote(
    ctx: Context,
    file: _Script = None,
    *,
    slices: Annotated[int | None, Option(metavar="N", min=1, max=1_000_000, help="Quote for this many slices.")] = None,
    given: JobOptions,
) -> None:
    """Show what a job would cost and when it would finish. Submits nothing. Takes the options of `pool submit`.

    Examples:
      pool quote train.py --vram 16 --timeout 2h --max-price 40
      pool quote --cores 4 --slices 100 --budget 250 -- ffmpeg -i in.mp4 outputs/out.webm
      pool quote --type ml
    """
    work = open_pool().options(**given)
    note_dependencies(work, file)
    print_quote(request_quote(work, file, ctx.meta.get(REST, []), items=slices or 1))


def warn_of_secrets(given: JobOptions) -> None:
    if given.get("secrets_anywhere") and not output.as_json():
        output.note("Warning: the owner of any node that runs this job can read its secrets.")


def note_dependencies(work: Submitter, file: Path | None) -> None:
    if file is not None and not output.as_json() and (sentence := work.dependencies(file).sentence):
        output.note(sentence)


def request_quote(work: Submitter, file: Path | None, rest: list[str], *, items: int) -> QuoteView:
    """A quote for a script, for a command, or, without either, for any job with these requirements."""
    what: Any = file if file is not None else (rest or ([] if work.image else None))
    return work.quote(what, rest if file is not None else (), items=items)


def print_quote(quote: QuoteView) -> None:
    if output.print_json(quote):
        return
    for sentence in quote.sentences:
        output.write_line(sentence)
    rows = [
        (
            zone.tier,
            zone.region or "none",
            format_credits(round_up(zone.spot)),
            format_credits(zone.price),
            zone.nodes_now,
            zone.nodes_able,
        )
        for zone in quote.zones
    ]
    output.print_table(("TIER", "REGION", "SPOT", "PRICE/H", "NODES NOW", "NODES ABLE"), rows)


def price_line(quote: QuoteView) -> str:
    """The price in one line."""
    if not quote.hold_total and not quote.price_high:
        return "Price: free."
    if quote.own_node and not quote.price_high:
        return free_or_reserved(quote.hold_total)
    now = "no suitable node is free now" if quote.nodes_able else "unknown, because no connected node can run it"
    if quote.price_low is not None and quote.price_high is not None:
        low, high = format_credits(quote.price_low), format_credits(quote.price_high)
        now = f"{high} credits per hour now" if low == high else f"{low} to {high} credits per hour now"
    if quote.nodes_network is not None:
        now += f", on one of {quote.nodes_network} nodes that allow network access"
    if quote.own_node:
        return f"Price: {now}. {free_or_reserved(quote.hold_total)}"
    return f"Price: {now}. {format_credits(quote.hold_total)} credits are put on hold; what is not used is refunded."


submit_command = CommandInfo("submit", cls=SubmitCommand, callback=submit)
quote_command = CommandInfo("quote", cls=SubmitCommand, callback=quote)


def make_spec(work: Submitter, file: Path | None, rest: list[str]) -> JobSpec:
    if file is not None:
        return work.script(file, rest)
    if not rest and not work.image:
        raise BadParameter("specify a script, or a command after --.", param_hint="FILE")
    return work.program(rest)


def _submit(
    pool: Pool, work: Submitter, spec: JobSpec, *, slices: int | None, group: str | None, key: str | None
) -> SubmitReply:
    from computepool.protocol.jobs.jobs import Item
    from computepool.sdk.client.resource import validate

    item = validate(Item, key=key)
    group_id = None if group is None else pool.groups.find_or_create(group).id
    if slices and group_id is None:
        group_id = pool.groups.create(spec.name, kind="slices").id
    return pool.jobs.submit(spec, items=[item] * (slices or 1), group_id=group_id, **work.terms)


def _print_reply(reply: SubmitReply, spec: JobSpec, *, group: str | None) -> None:
    if output.print_json(reply):
        return
    for job_id in reply.job_ids:
        output.write_line(job_id)
    many = len(reply.job_ids) > 1
    what = f"{len(reply.job_ids)} jobs of {spec.name}" if many else spec.name
    if spec.nodes > 1:
        what = f"{spec.name} on {spec.nodes} nodes, rank 0 first"
    held = f" Up to {format_credits(reply.hold)} credits are on hold." if reply.hold else ""
    if reply.own_node and reply.hold:
        held = f" {free_or_reserved(reply.hold)}"
    together = "" if group is None else f" · wait for the group: pool group drain {shlex.quote(group)}"
    output.note(
        f"Submitted {what}.{held} Follow: pool jobs logs -f {reply.job_ids[0]} · why it waits: pool jobs why {reply.job_ids[0]}"
        f"{together}"
    )
    if reply.warning:  # without --wait, nothing else would tell that the job cannot start
        output.note(reply.warning)


def _note_host_owner(pool: Pool, job_id: str) -> None:
    """Print the owner of the host, since anyone may give a node any name."""
    with suppress(ComputePoolError):  # the job is submitted in any case
        node = pool.nodes.get(pool.jobs.get(job_id).spec.needs.host or "")
        if not node.can_manage:
            output.note(f"Host {node.name} is {node.id}, owned by {node.owner_name}.")


def watch(pool: Pool, job_id: str, *, out: Path | None, warning: str = "") -> None:
    """Follow one job, then exit with its outcome."""
    from computepool.cli.job import follow

    with note_if_interrupted(
        f"The job keeps running. Follow it: pool jobs logs -f {job_id} · stop it: pool jobs cancel {job_id}"
    ):
        shown = not output.as_json()
        job = follow.follow(pool, job_id, warning=warning) if shown else pool.jobs.wait(job_id)
    output.print_json(job)
    if job.outputs and (out is not None or shown):
        follow.save_outputs(pool, job.outputs, out, job_id=job.id)
    if shown and (cost := follow.cost_line([job])):
        output.note(f"{cost} Details: pool credits why {job_id}")
    _exit_like(job)


def _exit_like(job: JobDetail) -> None:
    if job.state is JobState.SUCCEEDED:
        return
    if job.error:
        output.note(job.error.rstrip())
        if name := missing_package(job.error):
            output.note(missing_module_hint(name, send="-i {}", install="--dep {}"))
    raise Exit(1)


def _watch_slices(pool: Pool, reply: SubmitReply, *, out: Path | None) -> None:
    from computepool.cli.job import follow

    group_id = reply.group_id or ""
    if reply.warning:
        output.note(reply.warning)
    with note_if_interrupted(f"The jobs keep running. List them: pool jobs list --group {group_id}"):
        ended = follow.follow_slices(pool, group_id, reply.job_ids)
    group = pool.groups.get(group_id)
    if not output.print_json(group):
        counts = Counter(result.state.value for result in ended)
        output.note(f"{group.name}: {', '.join(f'{count} {state}' for state, count in counts.items())}")
        own = set(reply.job_ids)
        jobs = [job for job in pool.jobs.list(group_id=group_id, limit=group.total) if job.id in own]
        if cost := follow.cost_line(jobs):
            output.note(cost)
    if out is not None:
        for result in ended:
            follow.save_outputs(pool, result.outputs, out / str(result.item), job_id=result.job_id)
    if any(result.state is not JobState.SUCCEEDED for result in ended):
        raise Exit(1)
