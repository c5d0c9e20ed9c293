"""`pool jobs …`: list, follow, explain and cancel jobs."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import BadParameter, Exit, Option, Typer

from computepool.cli import options, output
from computepool.cli.lazy import lazy_group
from computepool.core.errors import Conflict
from computepool.core.jobs.lifecycle import JobKind, JobState, When
from computepool.core.money.money import format_credits
from computepool.core.words import pluralize
from computepool.protocol.sealing import ERROR, TEXT_PREFIX, About
from computepool.sdk.client.paging import raw_rows
from computepool.sdk.client.sizes import seconds
from computepool.sdk.clock import now_ms
from computepool.sdk.errors import job_error

if TYPE_CHECKING:
    from computepool.protocol.jobs.explanations import WhyView
    from computepool.protocol.jobs.views import CheckpointView, CorrectedResult, JobDetail, Usage

#: Prefix of the node's own files in a checkpoint.
_NODE_FILES = ".computepool-"
_CONDITIONS = {When.SUCCESS: None, When.FAILURE: "if one of these jobs fails", When.ALWAYS: "when all have ended"}
_SIZES = {"ram_mb": "RAM", "vram_mb": "VRAM", "disk_mb": "disk"}

_COMMANDS = """
    receipt  job.verify:receipt  Download the signed receipt of a paid job.
    groups   job.groups:groups   List groups, newest first, with progress, failures and delivery state.
    queue    job.queue:queue     Show what each node is running, on which CPUs, and which jobs are waiting.
    hosts    job.queue:hosts     Preview which nodes would take such a job, in order, and why the others would not.
    graph    job.graph:graph     Show which job comes after which, with their states: around one job, or in a group.
    usage    job.mesh:usage      Show resource use of each attempt over time: CPU, memory, processes, and GPUs.
"""
app = Typer(cls=lazy_group(_COMMANDS), no_args_is_help=True)


_FILTERS = {
    "state": options.option(str, None, "Filter by state: queued, running, succeeded, failed …"),
    "group_id": options.OfGroup,
    "q": options.option(str, "TEXT", "Filter by text in the name or key.", "--search", "-q"),
    "kind": options.option(str, None, "Filter by kind: script, command, function or class."),
    "node_id": options.OfNode,
    "since_ms": options.Since,
}


@app.command("list")
@options.accepts(given=options.collects(_FILTERS)(options.filters))
def list_jobs(
    *,
    given: dict[str, Any],
    mine: Annotated[bool, Option("--mine", help="Only your own jobs (for admins).")] = False,
    limit: options.Limit = 30,
) -> None:
    """List jobs, newest first.

    Examples:
      pool jobs list
      pool jobs list --search train --since 7d
      pool jobs list --state failed --limit 100
      pool jobs list --group grp_01h… --json
    """
    for name, known in (("kind", list(JobKind)), ("state", list(JobState))):
        if name in given and given[name] not in known:
            raise BadParameter(f"one of {', '.join(known)}.", param_hint=f"--{name}")
    params = {**given, "all": "false" if mine else None}
    jobs = [
        _unseal_error(job)
        for job in raw_rows(options.open_pool().transport, "/jobs", "jobs", limit=limit, params=params)
    ]
    # A narrow terminal omits the last ones.
    columns = ("ID", "NAME", "STATE", "NODE", "SUBMITTED", "TOOK", "NOTE", "KIND")
    output.show_table(jobs, columns, map(_row, jobs), empty="No jobs. Try: pool submit examples/hello.py --wait")


def _unseal_error(job: dict[str, Any]) -> dict[str, Any]:
    error = job["error"] or ""
    if not error.startswith(TEXT_PREFIX):
        return job
    from computepool.sdk.files.sealing import open_text

    return {**job, "error": open_text(error, About(job["id"], ERROR))}


def _row(job: dict[str, Any]) -> tuple[output.Cell, ...]:
    start_ms, end_ms = job["started_at_ms"], job["finished_at_ms"]
    took = None if start_ms is None else (end_ms or now_ms()) - start_ms
    return (
        job["id"], job["name"], job["state"], job["node_name"], output.ago(job["created_at_ms"]), output.span(took),
        _remark(job), job["kind"],
    )  # fmt: skip


def _remark(job: dict[str, Any]) -> str:
    """Details that the state does not show."""
    if job["state"] == "queued" or (job["state"] == "succeeded" and job["status"].startswith("done,")):
        return str(job["status"])
    if job["reason"] in ("completed", "started", "placed"):
        return ""
    from computepool.cli.job.follow import end_reason

    return end_reason(job["reason"], job["exit_code"])


@app.command()
def show(job_id: options.JobId) -> None:
    """Show one job in full: requirements, attempts and outputs.

    Examples:
      pool jobs show last
      pool jobs show job_01h… --json
    """
    job = options.open_pool().jobs.get(job_id)
    if output.print_json(job):
        return
    from computepool.sdk.files.sealing import fingerprint

    needs = job.spec.needs.model_dump(exclude_defaults=True)
    output.print_fields(
        [
            ("id", job.id),
            ("name", job.name),
            ("kind", job.kind),
            ("state", job.state),
            ("status", job.status),
            ("node", job.node_name),
            ("group", job.group_id),
            ("submitted by", None if job.parent_id is None else f"job {job.parent_id}"),
            ("child jobs", ", ".join(job.children)),
            ("submitted", output.ago(job.created_at_ms)),
            ("took", _run_time(job)),
            ("progress", None if job.progress is None else f"{job.progress:.0%}"),
            ("checkpoint", None if job.checkpoint is None else _checkpoint_text(job.checkpoint)),
            ("moves to", job.pinned),
            ("exit code", job.exit_code),
            ("error", (job.error or "").rstrip()),
            ("cost", _cost(job)),
            ("verified", _verification_text(job)),
            ("sealed to", None if job.spec.seal_to is None else fingerprint(job.spec.seal_to)),
            ("command", " ".join(job.spec.argv)),
            ("needs", ", ".join(_need(name, value) for name, value in needs.items())),
            ("network", ", ".join(job.spec.net)),
            ("labels", ", ".join(job.spec.labels)),
            ("after", ", ".join(job.after)),
            ("runs", _CONDITIONS[job.when]),
            ("uses", ", ".join(job.uses)),
        ]
    )
    _show_attempts(job)
    files = [(item.name, output.size(item.size), item.digest) for item in job.outputs]
    output.print_table(("OUTPUT", "SIZE", "DIGEST"), files)
    if job.corrected is not None:
        _show_corrected(job.corrected)


def _need(name: str, value: object) -> str:
    """Such as `16 GB RAM`, `tags gpu linux`, or `properties site=lab-7`."""
    if isinstance(value, int) and name in _SIZES:
        return f"{output.memory(value)} {_SIZES[name]}"
    items = [f"{key}={item}" for key, item in value.items()] if isinstance(value, dict) else value
    text = " ".join(map(str, items)) if isinstance(items, list | tuple) else items
    return f"{name.replace('_', ' ')} {text}"


def _checkpoint_text(saved: CheckpointView) -> str:
    """Such as `3 min ago, 40%, 2 files, 1.4 MB, by attempt 1`."""
    progress = "" if saved.progress is None else f", {saved.progress:.0%}"
    size = f"{pluralize(saved.files, 'file')}, {output.size(saved.size)}"
    return f"{output.ago(saved.at_ms)}{progress}, {size}, by attempt {saved.attempt}"


@app.command()
def checkpoint(
    job_id: options.JobId, *, out: Annotated[Path | None, Option(help="Download the files into this folder.")] = None
) -> None:
    """Show the checkpoint that an unfinished job would resume from; list or download its files.

    Examples:
      pool jobs checkpoint job_01h…
      pool jobs checkpoint job_01h… --out saved
    """
    from computepool.cli.job.follow import save_outputs

    pool = options.open_pool()
    saved = pool.jobs.checkpoint(job_id)
    output.show(saved, f"saved {_checkpoint_text(saved)}")
    if out is not None or not output.as_json():
        files = [item for item in saved.outputs if not item.name.startswith(_NODE_FILES)]
        save_outputs(pool, files, out, job_id=job_id)


def _show_attempts(job: JobDetail) -> None:
    rows = [
        (
            attempt.number,
            attempt.node_name,
            attempt.state,
            attempt.reason.replace("_", " "),
            attempt.resumed,
            attempt.exit_code,
            _traffic(attempt.usage),
            attempt.error,
        )
        for attempt in job.tries
    ]
    columns = ("ATTEMPT", "NODE", "STATE", "REASON", "RESUMED FROM", "EXIT", "NETWORK", "ERROR")
    output.print_table(columns, rows)


def _show_corrected(right: CorrectedResult) -> None:
    rows = [(item.name, output.size(item.size), item.digest) for item in right.outputs]
    if right.result_artifact is not None:
        rows.append(("(result)", "", right.result_artifact))
    if right.result is not None:
        output.print_table(("CORRECT RESULT",), [(right.result,)])
    output.print_table(("CORRECT OUTPUT", "SIZE", "DIGEST"), rows)


def _cost(job: JobDetail) -> str | None:
    if job.charge is None:
        return f"at most {format_credits(job.hold)} (on hold)" if job.hold else None
    from computepool.cli.job.follow import cost_text

    refunded = f"; {format_credits(job.taken_back)} refunded later" if job.taken_back else ""
    return f"{cost_text(job.charge, job.hold)}{refunded}" if job.hold else None


_VERDICTS = {
    "unchecked": "no, like most results",
    "own": "no: it ran on your own node",
    "confirmed": "yes: nodes of several owners produced the same result",
    "alone": "not yet: no other node could run it in time; payment is held until one does",
    "varies": "no: every run produced a different result; this is the first",
    "refuted": "WRONG: a later check on nodes of two other owners produced a different result",
}


def _verification_text(job: JobDetail) -> str | None:
    """Whether other nodes produced the same result."""
    if job.verify == "none" or (job.verdict is None and job.finished_at_ms is not None):
        return None
    if job.verdict is None:
        return f"not yet ({job.verify})"
    return f"{_VERDICTS.get(job.verdict, job.verdict)} ({job.verify})"


def _traffic(usage: Usage | None) -> str:
    if usage is None or not (usage.net_in_bytes or usage.net_out_bytes):
        return ""
    return f"{output.size(usage.net_in_bytes)} in, {output.size(usage.net_out_bytes)} out"


def _run_time(job: JobDetail) -> str:
    if job.started_at_ms is None or job.finished_at_ms is None:
        return ""
    return output.span(job.finished_at_ms - job.started_at_ms)


@app.command()
def logs(
    job_id: options.JobId,
    *,
    follow: Annotated[bool, Option("--follow", "-f", help="Follow the output until the job ends.")] = False,
) -> None:
    """Print a job's output; with -f, follow it. With --json, one document per line.

    If there is no output yet, standard error says why: for a queued job, what it is waiting for.

    Examples:
      pool logs last
      pool jobs logs -f job_01h…
      pool jobs logs job_01h… 2>/dev/null
    """
    from computepool.cli.job.logs import print_logs

    pool = options.open_pool(retry_for=options.WATCH_RETRY_FOR_S if follow else options.RETRY_FOR_S)
    stop = f"The job keeps running. Stop it: pool jobs cancel {job_id}"
    with options.note_if_interrupted(stop) if follow else nullcontext():
        print_logs(pool, job_id, follow=follow)


@app.command()
def cancel(job_ids: options.JobIds) -> None:
    """Cancel jobs. Running jobs are stopped with all their processes.

    Examples:
      pool cancel last
      pool jobs cancel job_01h…
      pool jobs cancel $(pool jobs list --state queued | cut -f1)
    """
    pool = options.open_pool()
    jobs = [pool.jobs.cancel(job_id) for job_id in job_ids]
    output.show(jobs, "\n".join(f"{job.id} {job.state}" for job in jobs))


@app.command()
def resubmit(
    job_id: options.JobId,
    *,
    today: Annotated[bool, Option("--today", help="Use current prices instead of the original limits.")] = False,
) -> None:
    """Resubmit a job as a new one, with the same spec, arguments, verification and limits, outside any group.

    Examples:
      pool jobs resubmit job_01h…
      pool jobs wait $(pool jobs resubmit job_01h…)
    """
    made = options.open_pool().jobs.resubmit(job_id, terms="today" if today else "same")
    output.show(made, made.job_ids[0])


@app.command()
def why(job_id: options.JobId) -> None:
    """Explain the state of a job, and the smallest change that would let it start.

    Examples:
      pool jobs why job_01h…
    """
    answer = options.open_pool().jobs.why(job_id)
    if not output.print_json(answer):
        print_why(answer)


def print_why(answer: WhyView) -> None:
    output.write_line(answer.sentence)
    if answer.ahead:
        output.write_line(f"{pluralize(answer.ahead, 'job is', 'jobs are')} ahead of it.")
    rows = [(g.need, g.failing, g.failing_even_if_idle, g.passing_without) for g in answer.gates]
    output.print_table(("REQUIREMENT", "NODES FAILING", "EVEN WHEN IDLE", "NODES WITHOUT IT"), rows)
    for change in answer.changes:
        output.write_line(f"{change.change}: {pluralize(change.nodes, 'node')} could start it now.")


@app.command()
def wait(
    job_ids: options.JobIds,
    *,
    timeout: Annotated[str | None, Option(help="Maximum wait: 90, 10m, 2h. Default: no limit.")] = None,
    notify: Annotated[
        bool, Option("--notify", help="Show a desktop or terminal notification when they finish.")
    ] = False,
) -> None:
    """Wait for jobs to finish. Exits with 1 if one of them did not succeed.

    Examples:
      pool jobs wait job_01h… job_02k… --timeout 10m
      pool jobs wait job_01h… --notify
    """
    from computepool.sdk.jobs.notify import notify as show_notification

    pool = options.open_pool(retry_for=options.WATCH_RETRY_FOR_S)
    timeout_s = None if timeout is None else seconds(timeout)
    jobs = [pool.jobs.wait(job_id, timeout=timeout_s) for job_id in job_ids]
    if notify:
        show_notification(", ".join(f"{job.name}: {job.state.value}" for job in jobs))
    output.show(jobs, "\n".join(f"{job.id} {job.state}" for job in jobs))
    if any(job.state is not JobState.SUCCEEDED for job in jobs):
        raise Exit(1)


@app.command()
def result(
    job_id: options.JobId, *, out: Annotated[Path | None, Option(help="Download the outputs into this folder.")] = None
) -> None:
    """Print the result of a finished job (its return value), and list or download its outputs.

    Examples:
      pool jobs result job_01h…
      pool jobs result job_01h… --out results
    """
    from computepool.cli.job.follow import save_outputs
    from computepool.protocol.jobs.unbundling import answers, key_of

    pool = options.open_pool()
    try:
        ended = pool.jobs.result_now(job_id)
    except Conflict:
        raise Conflict(f"Job {job_id} is not finished yet. Wait for it: pool jobs wait {job_id}") from None
    text = ended.result
    if ended.result_artifact is not None:
        text = pool.artifacts.get_result(ended.result_artifact, job_id=job_id)
    if not output.print_json(ended) and text is not None:
        parts = answers(text, ended)
        for line in [text] if parts is None else [f"{key_of(ended, n)}: {part}" for n, _, part in parts]:
            output.write_line(line)
    if out is not None or not output.as_json():
        save_outputs(pool, ended.outputs, out, job_id=job_id)
    error = job_error(ended)
    if error is not None:
        raise error
