"""`pool.jobs`: list, follow, explain and cancel jobs; submit a JobSpec."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from computepool.core.errors import Conflict
from computepool.core.jobs.lifecycle import TERMINAL, JobState
from computepool.protocol.jobs import jobs as wire
from computepool.protocol.jobs.explanations import PreviewRequest, PreviewView, WhyView
from computepool.protocol.jobs.views import GraphView, JobDetail, JobPage, JobResult, JobView, LogChunk, LogPage
from computepool.protocol.sealing import TEXT_PREFIX, log_about
from computepool.sdk.client.resource import Resource, milliseconds
from computepool.sdk.client.transport import PAGE_MAX, WAIT_MS
from computepool.sdk.client.waiting import WaitNotice, job_reason
from computepool.sdk.files.sealing import open_text, with_error

if TYPE_CHECKING:
    from computepool.protocol.jobs.checkpoints import CheckpointDetail
    from computepool.protocol.jobs.queueing import QueueView
    from computepool.protocol.nodes.mesh import JobUsage

Jobs: TypeAlias = list[JobView]


class JobApi(Resource):
    def submit(
        self,
        spec: wire.JobSpec,
        *,
        items: Sequence[wire.Item] | None = None,
        group_id: str | None = None,
        **terms: object,
    ) -> wire.SubmitReply:
        """Submit one job per item. `terms`: fields of SubmitRequest, such as priority, retries, after or ttl_s."""
        request = wire.SubmitRequest.model_validate(
            {"spec": spec, "items": [wire.Item()] if items is None else list(items), "group_id": group_id, **terms}
        )
        return self._transport.post("/jobs", wire.SubmitReply, body=request)

    def list(
        self,
        *,
        state: JobState | str | None = None,
        group_id: str | None = None,
        limit: int = 100,
        **filters: str | int | None,
    ) -> Jobs:
        """List jobs, newest first.

        `filters`: by q (part of the name or key), kind, node_id, account_id, since_ms, until_ms, all.
        """
        params = {"state": None if state is None else JobState(state).value, "group_id": group_id, **filters}
        jobs = self._each("/jobs", JobPage, lambda page: page.jobs, limit=limit, params=params)
        return [with_error(job, job.id) for job in jobs]

    def get(self, job_id: str, *, seen: JobState | None = None, timeout: float = 0) -> JobDetail:
        """Return the job once it has left the state `seen`, or after `timeout` seconds (at most 60)."""
        wait_ms = milliseconds(timeout)
        params = {"seen": seen.value} if seen is not None and wait_ms else None
        job = self._transport.get(f"/jobs/{job_id}", JobDetail, params=params, wait_ms=wait_ms)
        tries = [with_error(attempt, job_id) for attempt in job.tries]
        return with_error(job, job_id).model_copy(update={"tries": tries})

    def wait(self, job_id: str, *, timeout: float | None = None) -> JobDetail:
        """Wait for the job to finish; raises TimeoutError after `timeout` seconds."""
        job = self.get(job_id)
        end = None if timeout is None else time.monotonic() + timeout
        notice = WaitNotice(partial(job_reason, self._transport, job_id))
        while job.state not in TERMINAL:
            if job.state is JobState.QUEUED:
                notice.check()
            job = self.get(job_id, seen=job.state, timeout=self._request_timeout(job_id, end, notice))
        return job

    def result(self, job_id: str, *, timeout: float | None = None) -> JobResult:
        """Wait for the result; raises TimeoutError after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        notice = WaitNotice(partial(job_reason, self._transport, job_id))
        while True:
            try:
                return self.result_now(job_id, timeout=self._request_timeout(job_id, end, notice))
            except Conflict:
                notice.check()

    def _request_timeout(self, job_id: str, end: float | None, notice: WaitNotice) -> float:
        left_ms = WAIT_MS if end is None else round((end - time.monotonic()) * 1000)
        if left_ms <= 0:
            reason = job_reason(self._transport, job_id)
            raise TimeoutError(
                f"Job {job_id} is not finished yet." + (f" {reason.removeprefix(f'{job_id}: ')}" if reason else "")
            )
        return notice.cap_ms(min(WAIT_MS, left_ms)) / 1000

    def result_now(self, job_id: str, *, timeout: float = 0) -> JobResult:
        """The result; raises Conflict if the job is not finished within `timeout` seconds (at most 60)."""
        found = self._transport.get(f"/jobs/{job_id}/result", JobResult, wait_ms=milliseconds(timeout))
        return with_error(found, job_id)

    def cancel(self, job_id: str) -> JobView:
        return with_error(self._transport.post(f"/jobs/{job_id}/cancel", JobView), job_id)

    def resubmit(self, job_id: str, *, terms: Literal["same", "today"] = "same") -> wire.SubmitReply:
        """Resubmit the job as a new one: with its original price limits, or at today's prices."""
        return self._transport.post(
            f"/jobs/{job_id}/resubmit", wire.SubmitReply, body=wire.ResubmitRequest(terms=terms)
        )

    def logs(self, job_id: str, *, follow: bool = False, after: int = 0) -> Iterator[LogChunk]:
        """The job's output in order; with `follow`, until it ends. Warns if some of it was not kept."""
        for page in self.log_pages(job_id, follow=follow, after=after):
            yield from page.chunks
            if page.ended and page.complete is False:
                warnings.warn(incomplete_output(job_id), stacklevel=2)

    def log_pages(self, job_id: str, *, follow: bool = False, after: int = 0) -> Iterator[LogPage]:
        while True:
            page = self.log_page(job_id, after=after, timeout=WAIT_MS / 1000 if follow else 0)
            yield page
            after = page.cursor
            if page.ended or not (follow or page.chunks):
                return

    def log_page(self, job_id: str, *, after: int = 0, timeout: float = 0) -> LogPage:
        """One page of output; waits for output or the end of the job for up to `timeout` seconds (at most 60)."""
        wait_ms = milliseconds(timeout)
        params = {"after": after, "limit": PAGE_MAX}
        page = self._transport.get(f"/jobs/{job_id}/logs", LogPage, params=params, wait_ms=wait_ms)
        return page.model_copy(update={"chunks": [_open_chunk(chunk, job_id) for chunk in page.chunks]})

    def log_text(self, job_id: str) -> str:
        return "".join(chunk.text for chunk in self.logs(job_id))

    def why(self, job_id: str) -> WhyView:
        return self._transport.get(f"/jobs/{job_id}/why", WhyView)

    def usage(self, job_id: str) -> JobUsage:
        """Resource use of its attempts over time."""
        from computepool.protocol.nodes.mesh import JobUsage

        return self._transport.get(f"/jobs/{job_id}/usage", JobUsage)

    def checkpoint(self, job_id: str) -> CheckpointDetail:
        """The checkpoint an unfinished job would resume from; raises NotFound if there is none."""
        from computepool.protocol.jobs.checkpoints import CheckpointDetail

        return self._transport.get(f"/jobs/{job_id}/checkpoint", CheckpointDetail)

    def graph(self, job_id: str) -> GraphView:
        """The jobs that it is connected with: before it, after it, or over others."""
        return self._transport.get(f"/jobs/{job_id}/graph", GraphView)

    def preview(
        self,
        needs: wire.Needs,
        *,
        limit: int = 100,
        net: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> PreviewView:
        """Show which nodes would run such a job, and why others would not. Owners may restrict net, labels and timeout."""
        fields = {"needs": needs, "limit": limit, "net": net, "labels": labels, "timeout_s": timeout}
        return self._post("/jobs/preview", PreviewView, PreviewRequest, **fields)

    def queue(self) -> QueueView:
        from computepool.protocol.jobs.queueing import QueueView

        return self._transport.get("/queue", QueueView)


def incomplete_output(job_id: str) -> str:
    return (
        f"The output of job {job_id} is incomplete or may contain repeats: it was too long to keep, or the job resumed from "
        "a checkpoint. It was not verified against the node's report. Write important results to a file in outputs/."
    )


def _open_chunk(chunk: LogChunk, job_id: str) -> LogChunk:
    if not chunk.text.startswith(TEXT_PREFIX):
        return chunk
    about = log_about(job_id, chunk.attempt_id, chunk.stream)
    return chunk.model_copy(update={"text": open_text(chunk.text, about)})
