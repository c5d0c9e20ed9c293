"""`pool submit`: a file or a command line becomes a job."""

from __future__ import annotations

import shlex
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from computepool.cli import output, quote
from computepool.cli.leaving import goes_on
from computepool.cli.options import REST, Json, accepts, checks, merged, open_pool, requirements, terms
from computepool.core.money import format_credits

if TYPE_CHECKING:
    from computepool.protocol.jobs import JobDetail, JobSpec, SubmitReply
    from computepool.sdk import JobOptions, Pool, Submitter

#: While somebody watches, a restart of the hub is waited out.
WATCH_PATIENCE_S = 300.0


class SubmitCommand(TyperCommand):
    """Keeps what stands after `--` apart: it is a command, or the arguments of the script before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.meta[REST] = args[cut + 1 :]
            args = args[:cut]
        return super().parse_args(ctx, args)


_Slices = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=1000, help="Run it this many times, as a group.")
]
_Group = Annotated[
    str | None,
    typer.Option(metavar="GROUP", help="Put it into this group (name or id); a new name makes one."),
]
_Key = Annotated[
    str | None, typer.Option(metavar="KEY", help="Its name in the group, such as seed-7; unique there.")
]


@accepts(needs=requirements, more=terms, trust=checks)
def submit(
    ctx: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A script; arguments for it follow after --.")
    ] = None,
    *,
    slices: _Slices = None,
    group: _Group = None,
    key: _Key = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Watch it to its end.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Fetch its outputs into this folder; implies --wait.")
    ] = None,
    ask: Annotated[bool, typer.Option("--quote", help="Say what it would cost, and submit nothing.")] = False,
    json: Json = False,
    needs: JobOptions,
    more: JobOptions,
    trust: JobOptions,
) -> None:
    """Submit a script or a command to the pool.

    Without --wait the job's id is printed and the job goes on by itself.
    With it, the price is shown before and the bill at the end.

    \b
    Examples:
      pool submit examples/hello.py --wait
      pool submit train.py --vram 16 --ram 32GB --timeout 2h --wait -- --epochs 3
      pool submit --cores 4 -i in.mp4 --out results -- ffmpeg -i in.mp4 outputs/out.webm
      pool submit render.py --slices 100 --retries 2 --tag studio --budget 50
      pool submit fit.py --group sweep --key seed-7 -- --seed 7
      pool submit train.py --type ml --max-price 40 --quote
      pool submit prove.py --verify quorum:3 --wait
      pool submit fit.py --verify quorum:2 --compare tolerance:1e-9
    """
    if key is not None and (group is None or slices):
        raise typer.BadParameter(
            "it names one job of a group: give --group, without --slices.", param_hint="--key"
        )
    pool, rest = open_pool(), ctx.meta.get(REST, [])
    work = pool.options(**merged(needs, more, trust))
    if ask:
        quote.print_quote(quote.ask(work, file, rest, items=slices or 1), json=json)
        return
    spec = _spec(work, file, rest)
    if (wait or out) and not json:
        output.note(quote.short(quote.ask(work, file, rest, items=slices or 1)))
    reply = _send(pool, work, spec, slices=slices, group=group, key=key)
    if not (wait or out):
        _say(reply, spec, json=json, group=group)
        if not json:
            _warn(pool, reply.job_ids[0])
        return
    pool = open_pool(patience_s=WATCH_PATIENCE_S)
    if slices:
        _watch_slices(pool, reply, json=json, out=out)
    else:
        watch(pool, reply.job_ids[0], json=json, out=out)


def _spec(work: Submitter, file: Path | None, rest: list[str]) -> JobSpec:
    if file is not None:
        return work.script(file, rest)
    if not rest:
        raise typer.BadParameter("name a script, or a command after --.", param_hint="FILE")
    return work.program(rest)


def _send(
    pool: Pool, work: Submitter, spec: JobSpec, *, slices: int | None, group: str | None, key: str | None
) -> SubmitReply:
    from computepool.protocol.jobs import Item
    from computepool.sdk.options import validated

    item = validated(Item, key=key)
    group_id = None if group is None else pool.groups.find_or_create(group).id
    if slices and group_id is None:
        group_id = pool.groups.create(spec.name, kind="slices").id
    return pool.jobs.submit(spec, items=[item] * (slices or 1), group_id=group_id, **work.terms)


def _say(reply: SubmitReply, spec: JobSpec, *, json: bool, group: str | None) -> None:
    if json:
        output.print_json(reply)
        return
    for job_id in reply.job_ids:
        output.say(job_id)
    many = len(reply.job_ids) > 1
    what = f"{len(reply.job_ids)} jobs of {spec.name}" if many else spec.name
    held = f"; {format_credits(reply.hold)} credits are set aside" if reply.hold else ""
    together = "" if group is None else f" · wait for the group: pool group drain {shlex.quote(group)}"
    output.note(
        f"Submitted {what}{held}. Follow: pool jobs logs -f {reply.job_ids[0]} · why it waits: pool jobs why {reply.job_ids[0]}"
        f"{together}"
    )


def _warn(pool: Pool, job_id: str) -> None:
    """Nobody waits for it, so nobody would notice that it waits for ever."""
    from computepool.sdk.errors import ComputePoolError

    with suppress(ComputePoolError):  # it is submitted, whatever becomes of this
        found = pool.jobs.why(job_id)
        if found.unsatisfiable or (not found.nodes and found.reason == "waiting_for_node"):
            output.note(found.sentence)


def watch(pool: Pool, job_id: str, *, json: bool, out: Path | None) -> None:
    """Follow one job, then exit as it did."""
    from computepool.cli import follow

    with goes_on(
        f"The job goes on. Follow it: pool jobs logs -f {job_id} · stop it: pool jobs cancel {job_id}"
    ):
        job = pool.jobs.wait(job_id) if json else follow.follow(pool, job_id)
    if json:
        output.print_json(job)
    if job.outputs and (out is not None or not json):
        follow.save_outputs(pool, job.outputs, out, job_id=job.id)
    if not json and (bill := follow.bill([job])):
        output.note(f"{bill} Why: pool credits why {job_id}")
    end_as(job)


def end_as(job: JobDetail) -> None:
    from computepool.core.jobs import JobState
    from computepool.sdk.errors import missing_package

    if job.state is JobState.SUCCEEDED:
        return
    if job.error:
        output.note(job.error.rstrip())
        if name := missing_package(job.error):
            output.note(
                f"Nodes have Python's own library and what a job lists: --dep {name}, or what the package is called."
            )
    raise typer.Exit(1)


def _watch_slices(pool: Pool, reply: SubmitReply, *, json: bool, out: Path | None) -> None:
    from computepool.cli import follow
    from computepool.core.jobs import JobState

    group_id = reply.group_id or ""
    with goes_on(f"The jobs go on. See them: pool jobs list --group {group_id}"):
        ended = follow.follow_slices(pool, group_id, reply.job_ids)
    group = pool.groups.get(group_id)
    if json:
        output.print_json(group)
    else:
        counts = Counter(result.state.value for result in ended)
        output.note(f"{group.name}: {', '.join(f'{count} {state}' for state, count in counts.items())}")
        mine = set(reply.job_ids)
        jobs = [job for job in pool.jobs.list(group_id=group_id, limit=group.total) if job.id in mine]
        if bill := follow.bill(jobs):
            output.note(bill)
    if out is not None:
        for result in ended:
            follow.save_outputs(pool, result.outputs, out / str(result.item), job_id=result.job_id)
    if any(result.state is not JobState.SUCCEEDED for result in ended):
        raise typer.Exit(1)
