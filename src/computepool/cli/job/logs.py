"""`pool logs`: prints a job's output; if there is none yet, standard error says why."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from computepool.cli import output
from computepool.core.jobs.lifecycle import TERMINAL, JobState
from computepool.sdk.client.transport import WAIT_MS
from computepool.sdk.client.waiting import WaitNotice, job_reason
from computepool.sdk.resources.jobs import incomplete_output

if TYPE_CHECKING:
    from computepool.protocol.jobs.views import JobDetail, LogPage
    from computepool.sdk import Pool


def print_logs(pool: Pool, job_id: str, *, follow: bool) -> None:
    """Print the output so far; with `follow`, until the job ends."""
    printed, page = _print_pages(pool, job_id)
    if not page.ended and follow:
        wait_for_start(pool, job_id)
        more, page = _print_pages(pool, job_id, after=page.cursor, follow=True)
        printed = printed or more
    if page.ended and page.complete is False:
        output.note(incomplete_output(job_id))
    elif not page.ended or not printed:
        _explain_silence(pool, job_id, printed=printed)


def wait_for_start(pool: Pool, job_id: str) -> None:
    """Wait while the job is queued. Says why it waits, and where it started."""
    job = pool.jobs.get(job_id)
    queued = job.state is JobState.QUEUED
    if not queued:
        return
    notice = WaitNotice(partial(_why_queued, pool, job), write=output.note)
    notice.notify(_why_queued(pool, job))
    while queued:
        job = pool.jobs.get(job_id, seen=JobState.QUEUED, timeout=notice.cap_ms(WAIT_MS) / 1000)
        queued = job.state is JobState.QUEUED
        notice.check()
    output.note(f"{job.id} {job.state}{_where(job)}.")


def _print_pages(pool: Pool, job_id: str, *, after: int = 0, follow: bool = False) -> tuple[bool, LogPage]:
    """Whether anything was printed, and the last page."""
    printed = False
    for page in pool.jobs.log_pages(job_id, after=after, follow=follow):
        for chunk in page.chunks:
            printed = True
            if output.as_json():
                output.write_line(chunk.model_dump_json())
            else:
                output.write_log(chunk.text, stderr=chunk.stream == "stderr")
    return printed, page


def _explain_silence(pool: Pool, job_id: str, *, printed: bool) -> None:
    job = pool.jobs.get(job_id)
    if job.state is JobState.QUEUED:
        output.note(_why_queued(pool, job))
    elif not printed:
        ended = job.state in TERMINAL
        output.note(f"{job.id} {job.state}{_where(job)}: no output{'' if ended else ' yet'}.")


def _why_queued(pool: Pool, job: JobDetail) -> str:
    reason = job_reason(pool.transport, job.id).removeprefix(f"{job.id}: ")
    return f"{job.id} queued: {reason or job.status}"


def _where(job: JobDetail) -> str:
    return f" on {job.node_name}" if job.node_name else ""
