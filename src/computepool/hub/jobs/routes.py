"""Routes of jobs and the queue."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response

from computepool.core.ids import make_id
from computepool.core.jobs.lifecycle import JobKind, JobState
from computepool.hub.http.dependencies import (
    Cursor,
    HubDep,
    IdPath,
    IdQuery,
    KeyDep,
    Limit,
    MayRead,
    MaySubmit,
    RememberedDep,
    SearchText,
    Seq,
    SignedIn,
    Submitter,
    TimeMs,
    WaitMs,
    for_body,
)
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.http.rate_limit import limits_of
from computepool.hub.identity.access import Principal
from computepool.hub.identity.idempotency import Remembered
from computepool.hub.jobs import graph, jobs
from computepool.hub.jobs.running import logs
from computepool.hub.scheduling import explanations, queue_view
from computepool.hub.settlement import cancel
from computepool.hub.submission import resubmit, submit as submission
from computepool.protocol.jobs.checkpoints import CheckpointDetail
from computepool.protocol.jobs.explanations import PreviewRequest, PreviewView, WhyView
from computepool.protocol.jobs.filters import JobFilter
from computepool.protocol.jobs.jobs import ResubmitRequest, SubmitReply, SubmitRequest
from computepool.protocol.jobs.queueing import QueueView
from computepool.protocol.jobs.views import GraphView, JobDetail, JobPage, JobResult, JobView, LogPage

router = guarded_router(tags=["jobs"])
_SAME_TERMS = ResubmitRequest()


@router.post("/jobs", status_code=201, responses=refuses(402, 404, 409, 429, 507))
async def submit(request: Request, body: SubmitRequest, principal: Submitter, key: KeyDep) -> SubmitReply:
    """Submit one job, or many of one spec."""
    return await submit_body(request, principal, body, key=key, sent=await request.body())


async def submit_body(
    request: Request, principal: Principal, body: SubmitRequest, *, key: Remembered, sent: bytes
) -> SubmitReply:
    """`sent`: the body as it was received; the idempotency key is bound to it."""
    limits_of(request.app.state).submissions.take(principal.account_id)
    remembered = for_body(key, principal, sent)
    return await submission.submit(request.app.state.hub, principal, body, remembered=remembered)


@router.get("/jobs")
async def list_jobs(
    principal: SignedIn,
    hub: HubDep,
    *,
    state: Annotated[list[JobState] | None, Query(max_length=16, description="One of these; may be repeated")] = None,
    group_id: IdQuery = None,
    kind: JobKind | None = None,
    node_id: Annotated[IdQuery, Query(description="The node of its newest attempt")] = None,
    account_id: Annotated[IdQuery, Query(description="Of this account; for administrators")] = None,
    everybody: Annotated[
        bool, Query(alias="all", description="For administrators: of all accounts, or with `false` only your own")
    ] = True,
    since_ms: TimeMs = None,
    until_ms: TimeMs = None,
    q: Annotated[SearchText, Query(description="A part of its name or key; or its id")] = "",
    after: Cursor = None,
    limit: Limit = 50,
) -> JobPage:
    """List jobs, newest first."""
    filters = JobFilter(
        account_id=account_id,
        group_id=group_id,
        states=tuple(each.value for each in state or ()),
        kind=None if kind is None else kind.value,
        node_id=node_id,
        since_id=None if since_ms is None else make_id("job", since_ms, bytes(10)),
        until_id=None if until_ms is None else make_id("job", until_ms + 1, bytes(10)),
        text=q.strip(),
    )
    return await jobs.page(hub, principal, filters=filters, everybody=everybody, after=after, limit=limit)


@router.post("/jobs/preview", responses=refuses(409))
async def preview(body: PreviewRequest, principal: MayRead, hub: HubDep) -> PreviewView:
    """Preview which nodes would take such a job, and why the others would not."""
    return await explanations.preview(hub, principal, body)


@router.get("/jobs/{job_id}", responses=refuses(404))
async def get_job(
    job_id: IdPath,
    principal: SignedIn,
    hub: HubDep,
    *,
    wait_ms: WaitMs,
    seen: Annotated[JobState | None, Query(description="The state you know: wait until it differs")] = None,
) -> JobDetail:
    """Get a job in full; can wait for a change."""
    return await jobs.get(hub, principal, job_id, wait_ms=wait_ms, seen=seen)


@router.get("/jobs/{job_id}/result", responses=refuses(404, 409))
async def get_result(job_id: IdPath, principal: SignedIn, hub: HubDep, wait_ms: WaitMs) -> JobResult:
    """Get the outcome and result of a finished job."""
    return await jobs.result(hub, principal, job_id, wait_ms=wait_ms)


@router.get("/jobs/{job_id}/logs", responses=refuses(404))
async def get_logs(
    job_id: IdPath, principal: SignedIn, hub: HubDep, *, after: Seq = 0, wait_ms: WaitMs, limit: Limit = 200
) -> LogPage:
    """Get the job's output, live by long poll."""
    return await logs.page(hub, principal, job_id, after=after, limit=limit, wait_ms=wait_ms)


@router.post("/jobs/{job_id}/cancel", responses=refuses(404))
async def cancel_job(job_id: IdPath, principal: MaySubmit, hub: HubDep) -> JobView:
    """Cancel a job; a finished job is left unchanged."""
    return await cancel.cancel(hub, principal, job_id)


@router.post("/jobs/{job_id}/resubmit", status_code=201, responses=refuses(402, 404, 409, 429, 507))
async def resubmit_job(
    request: Request,
    job_id: IdPath,
    principal: Submitter,
    hub: HubDep,
    remembered: RememberedDep,
    body: ResubmitRequest = _SAME_TERMS,
) -> SubmitReply:
    """Resubmit a job as a new one."""
    limits_of(request.app.state).submissions.take(principal.account_id)
    copy = await resubmit.request_for(hub, principal, job_id, request=body)
    return await submission.submit(hub, principal, copy, remembered=remembered)


@router.get("/jobs/{job_id}/why", responses=refuses(404))
async def explain_job(job_id: IdPath, principal: SignedIn, hub: HubDep) -> WhyView:
    """Explain the job's state, with numbers and what would change it."""
    return await explanations.why(hub, principal, job_id)


@router.get("/jobs/{job_id}/checkpoint", responses=refuses(404))
async def get_checkpoint(job_id: IdPath, principal: SignedIn, hub: HubDep) -> CheckpointDetail:
    """Get the checkpoint that an unfinished job would resume from, with its files."""
    return await jobs.checkpoint(hub, principal, job_id)


@router.get("/jobs/{job_id}/graph", responses=refuses(404))
async def get_job_graph(job_id: IdPath, principal: SignedIn, hub: HubDep) -> GraphView:
    """Get the jobs that are connected with a job: before it, after it, or over others."""
    return await graph.of_job(hub, principal, job_id)


@router.get("/queue", response_model=QueueView)
async def get_queue(principal: SignedIn, hub: HubDep) -> Response:
    """Show the queue and what each node runs."""
    return Response(await queue_view.queue(hub, principal), media_type="application/json")
