"""`pool schedule`: run jobs at the times of a cron expression."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from typer import Argument, BadParameter, Context, Option, Typer

from computepool.cli import output
from computepool.cli.job.submit import SubmitCommand, make_spec, note_dependencies, warn_of_secrets
from computepool.cli.options import REST, Limit, accepts, job_options, open_pool

if TYPE_CHECKING:
    from computepool.protocol.schedules import ScheduleRun, ScheduleView
    from computepool.sdk import JobOptions

app = Typer(no_args_is_help=True)
_Name = Annotated[str, Argument(metavar="NAME", help="Name or ID of a schedule.")]
_Script = Annotated[Path | None, Argument(metavar="FILE", help="Script; its arguments follow, or come after --.")]
_RUN_COLUMNS = ("TIME", "STATE", "JOBS", "OUTCOME", "REASON")


@app.command("add", cls=SubmitCommand)
@accepts(given=job_options)
def add(
    ctx: Context,
    file: _Script = None,
    *,
    cron: Annotated[str, Option(metavar="EXPR", help="Minute, hour, day, month, weekday, such as '0 3 * * *'.")],
    tz: Annotated[str, Option(metavar="ZONE", help="Time zone, such as Europe/Berlin.")] = "UTC",
    overlap: Annotated[
        str, Option(metavar="HOW", help="If the run before has not finished: skip, queue or replace.")
    ] = "skip",
    missed: Annotated[
        str, Option(metavar="HOW", help="After times at which the hub did not run: run-once or skip.")
    ] = "run-once",
    slices: Annotated[int, Option(metavar="N", min=1, max=1000, help="Jobs of each run.")] = 1,
    given: JobOptions,
) -> None:
    """Run a script or a command at the times of a cron expression. Takes the options of `pool submit`.

    The hub keeps the script and its options as they are now. Each run is priced, and its credits are put on hold, when it
    is submitted. --name names the schedule and its jobs.

    Examples:
      pool schedule add nightly.py --cron "0 3 * * *" --tz Europe/Berlin
      pool schedule add report.py --cron "*/15 9-17 * * mon-fri" --overlap replace --secret DB_PASSWORD
      pool schedule add --name backup --cron "30 1 * * sun" --missed skip -- ./backup.sh --full
    """
    pool, rest = open_pool(), ctx.meta.get(REST, [])
    work = pool.options(**given)
    warn_of_secrets(given)
    note_dependencies(work, file)
    spec = make_spec(work, file, rest)
    name = given.get("name") or (spec.name if file is None else file.stem)
    times = {"cron": cron, "tz": tz, "overlap": overlap, "missed": missed}
    made = pool.schedules.add_spec(name, spec, work, slices=slices, **times)
    following = ", ".join(_local(at_ms, made.tz) for at_ms in made.next_ms)
    output.show(made, f"{made.name}: added. Next runs: {following}.", hint=f"Follow it: pool schedule show {made.name}")


@app.command("list")
def list_schedules(*, limit: Limit = 100) -> None:
    """List your schedules.

    Examples:
      pool schedule list
    """
    found = open_pool().schedules.list(limit=limit)
    rows = [
        (one.name, one.state, one.cron, one.tz, _next(one), "" if one.last is None else _state(one.last), one.reason)
        for one in found
    ]
    columns = ("NAME", "STATE", "CRON", "ZONE", "NEXT", "LAST", "REASON")
    output.show_table(found, columns, rows, empty="You have no schedules: pool schedule add FILE --cron EXPR")


@app.command("show")
def show(name: _Name, *, limit: Limit = 20) -> None:
    """Show a schedule and its runs, newest first.

    Examples:
      pool schedule show nightly
      pool schedule show nightly --limit 200
    """
    api = open_pool().schedules
    found = api.get(name)
    runs = [*api.runs(found.id, limit=limit)]
    if output.print_json(found.model_copy(update={"runs": runs})):
        return
    following = ", ".join(_local(at_ms, found.tz) for at_ms in found.next_ms)
    fields = [("schedule", f"{found.name} ({found.id})"), ("state", found.state), ("reason", found.reason)]
    fields += [("times", f"{found.cron} {found.tz}"), ("next", following), ("overlap", found.overlap)]
    output.print_fields([*fields, ("missed", found.missed), ("job", found.spec.name)])
    rows = [
        (_local(run.tick_ms, found.tz), _state(run), " ".join(run.job_ids[:3]), run.outcome, run.reason) for run in runs
    ]
    output.print_table(_RUN_COLUMNS, rows, empty="It has not run yet.")


@app.command("pause")
def pause(name: _Name) -> None:
    """Pause a schedule. Its jobs continue.

    Examples:
      pool schedule pause nightly
    """
    _print(open_pool().schedules.pause(name))


@app.command("resume")
def resume(name: _Name) -> None:
    """Resume a schedule from now on. Times that have passed meanwhile are not made up for.

    Examples:
      pool schedule resume nightly
    """
    _print(open_pool().schedules.resume(name))


@app.command("run")
def run(name: _Name) -> None:
    """Run a schedule once now, even if it is paused or an earlier run has not finished.

    Examples:
      pool schedule run nightly
    """
    made = open_pool().schedules.run(name)
    if made.state == "failed":
        raise BadParameter(f"the run could not be submitted: {made.reason}")
    output.show(made, "\n".join(made.job_ids) or made.state)


@app.command("remove")
def remove(name: _Name) -> None:
    """Remove a schedule. Its jobs continue.

    Examples:
      pool schedule remove nightly
    """
    open_pool().schedules.remove(name)
    output.show({"name": name, "removed": True}, f"{name}: removed")


def _print(found: ScheduleView) -> None:
    output.show(found, f"{found.name}: {found.state}" + (f". Next run: {_next(found)}" if found.next_ms else ""))


def _next(found: ScheduleView) -> str:
    return _local(found.next_ms[0], found.tz) if found.next_ms else ""


def _state(run: ScheduleRun) -> str:
    return f"{run.state} (by hand)" if run.by_hand else run.state


def _local(at_ms: int, tz: str) -> str:
    zone: Any = UTC
    try:
        zone = ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        tz = "UTC"
    return f"{datetime.fromtimestamp(at_ms / 1000, zone):%a %Y-%m-%d %H:%M} {tz}"
