"""Follows a job until it ends: its state, output and progress; then downloads its output files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich import progress
from rich.console import Console
from rich.text import Text

from computepool.cli import output
from computepool.core.jobs.lifecycle import TERMINAL, JobState, Reason
from computepool.core.money.money import format_credits
from computepool.core.plaintext import printable
from computepool.sdk.client.waiting import WaitNotice, job_reason
from computepool.sdk.jobs.outcome import fetch
from computepool.sdk.resources.jobs import incomplete_output

if TYPE_CHECKING:
    from computepool.protocol.jobs.views import JobDetail, JobResult, JobView, LogChunk, OutputFile
    from computepool.sdk import Pool

#: How long a log poll waits, and thus the maximum age of the state on the screen.
_POLL_S = 0.5
#: The status of a successful job begins with this word; the rest tells its submitter what else to know.
DONE = "done"


def follow(pool: Pool, job_id: str, *, warning: str = "") -> JobDetail:
    """Show the job until it ends and all its output is printed. `warning`: why no node can run it."""
    screen: _LiveScreen | _PlainScreen = _LiveScreen() if sys.stdout.isatty() else _PlainScreen()
    notice = WaitNotice(partial(job_reason, pool.transport, job_id), write=screen.notify)
    if warning:
        notice.notify(f"{job_id}: {warning}")
    try:
        job = pool.jobs.get(job_id)
        cursor = 0
        while True:
            screen.show(job)
            if job.state is JobState.QUEUED:
                notice.check()
            page = pool.jobs.log_page(job_id, after=cursor, timeout=_POLL_S)
            for chunk in page.chunks:
                screen.write(chunk)
            cursor = page.cursor
            if page.ended:
                job = pool.jobs.wait(job_id)
                screen.show(job)
                if page.complete is False:
                    output.note(incomplete_output(job_id))
                return job
            job = pool.jobs.get(job_id)
    finally:
        screen.close()


def _progress_columns() -> tuple[progress.ProgressColumn, ...]:
    text = progress.TextColumn("{task.description}", markup=False)
    return (
        progress.SpinnerColumn(),
        text,
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
    )


def follow_slices(pool: Pool, group_id: str, job_ids: Sequence[str]) -> list[JobResult]:
    """Show the progress of these jobs until they end; the group may contain others."""
    bar = progress.Progress(*_progress_columns(), console=Console(stderr=True), disable=not sys.stderr.isatty())
    with bar:
        open_ = set(job_ids)
        ended: list[JobResult] = []
        task = bar.add_task(printable(pool.groups.get(group_id).name), total=len(open_))
        for result in pool.groups.results(group_id, follow=True):
            if result.job_id not in open_:
                continue
            open_.discard(result.job_id)
            ended.append(result)
            if result.state is not JobState.SUCCEEDED:
                output.note(f"{result.job_id} (slice {result.item}): {result.state}, {result.reason}")
            bar.advance(task)
            if not open_:
                break
    return ended


def save_outputs(pool: Pool, outputs: list[OutputFile], folder: Path | None, *, job_id: str) -> None:
    """Download the outputs, or list them if there is no folder."""
    if folder is None:
        for item in outputs:
            output.note(f"output {item.name}  {output.size(item.size)}  {item.digest[:12]}")
        if outputs:
            output.note("Download them with --out DIR, or: pool artifacts get DIGEST")
        return
    for item, path, reason in fetch(pool, outputs, folder, job_id=job_id):
        if path is not None:
            output.note(f"output {path}  {output.size(item.size)}")
        else:
            output.note(f"{reason} Download it: pool artifacts get {item.digest[:12]} FILE")


def cost_line(jobs: Sequence[JobView]) -> str:
    """The cost of finished jobs; empty if they were free."""
    held, charge = sum(job.hold for job in jobs), sum(job.charge or 0 for job in jobs)
    return f"Cost: {cost_text(charge, held)}." if held or charge else ""


def cost_text(charge: int, held: int) -> str:
    back = f"{format_credits(held - charge)} of the {format_credits(held)} on hold were refunded"
    return f"{format_credits(charge)} credits; {back}" if charge else f"nothing; {back}"


def job_line(job: JobDetail) -> str:
    where = f" on {job.node_name}" if job.node_name else ""
    if job.state in TERMINAL:
        took = ""
        if job.started_at_ms is not None and job.finished_at_ms is not None:
            took = f" after {output.span(job.finished_at_ms - job.started_at_ms)}"
        why = f": {end_reason(job.reason, job.exit_code)}"
        if job.state is JobState.SUCCEEDED:  # "done, but not confirmed: …"
            why = job.status.removeprefix(DONE) if job.status.startswith(DONE) else ""
        return f"{job.state}{where}{took}{why}"
    return f"{job.state}{where}: {job.status}" if job.state is JobState.QUEUED else f"{job.state}{where}"


def end_reason(reason: str, exit_code: int | None) -> str:
    """Such as `timeout` or `exit code 3`."""
    parts = [] if reason == Reason.EXIT_NONZERO and exit_code else [reason.replace("_", " ")]
    parts += [f"exit code {exit_code}"] if exit_code else []
    return ", ".join(parts)


class _PlainScreen:
    """Prints the job's output to the same streams as locally, and everything else to stderr."""

    def __init__(self) -> None:
        self._shown = ""

    def show(self, job: JobDetail) -> None:
        text = job_line(job)
        if text != self._shown:
            self._shown = text
            output.note(f"{job.id} {text}")

    def write(self, chunk: LogChunk) -> None:
        output.write_log(chunk.text, stderr=chunk.stream == "stderr")

    def notify(self, text: str) -> None:
        output.note(text)

    def close(self) -> None:
        return None


class _LiveScreen:
    """A line with state and progress at the bottom; the job's output scrolls above it, line by line."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._bar = progress.Progress(*_progress_columns(), console=self._console, transient=True)
        self._task = self._bar.add_task("", total=None)
        self._lines = {"stdout": "", "stderr": ""}
        self._last: JobDetail | None = None
        self._bar.start()

    def show(self, job: JobDetail) -> None:
        self._last = job
        total, done = (None, 0.0) if job.progress is None else (1.0, job.progress)
        self._bar.update(self._task, description=printable(f"{job.id} {job_line(job)}"), total=total, completed=done)

    def write(self, chunk: LogChunk) -> None:
        whole, newline, rest = (self._lines[chunk.stream] + chunk.text).rpartition("\n")
        self._lines[chunk.stream] = rest
        if newline:
            self._print(whole, chunk.stream)

    def notify(self, text: str) -> None:
        self._console.print(Text(printable(text), style="yellow"), soft_wrap=True)

    def close(self) -> None:
        for stream, rest in self._lines.items():
            if rest:
                self._print(rest, stream)
        self._bar.stop()
        if self._last is not None and self._last.state in TERMINAL:
            style = "green" if self._last.state is JobState.SUCCEEDED else "red"
            self._console.print(Text(printable(f"{self._last.id} {job_line(self._last)}"), style=style))

    def _print(self, text: str, stream: str) -> None:
        shown = Text.from_ansi(printable(text, colours=True))
        if stream == "stderr":
            shown.stylize("dim")
        self._console.print(shown, soft_wrap=True)
