"""Explanations: why a job waits, what would change it, and where such a job would go."""

from __future__ import annotations

from collections.abc import Iterable

from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.core.placement import explain
from computepool.core.resources import Shape
from computepool.core.trust import verification
from computepool.core.words import counted, duration
from computepool.hub.context import Hub
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import jobs, views
from computepool.hub.jobs import rows as job_rows
from computepool.hub.nodes import hosts, mesh_version
from computepool.hub.scheduling import feasibility
from computepool.protocol.jobs.jobs import (
    ChangeView,
    GateView,
    JobDetail,
    NodeVerdictView,
    PreviewRequest,
    PreviewView,
    WhyView,
    requirements_of,
)

#: Explained for one list; looking at every node for each takes a while.
_KINDS_MAX = 5


async def why(hub: Hub, principal: Principal, job_id: str) -> WhyView:
    job = await jobs.get(hub, principal, job_id, wait_ms=0, seen=None)
    if job.state is not JobState.QUEUED:
        return _plain(hub, job, job.status)
    pending = [other for other in job.after if not await _has_succeeded(hub, principal, other)]
    if pending:
        return _plain(
            hub, job, f"Waiting for {counted(len(pending), 'job')} it comes after: {', '.join(pending[:5])}."
        )
    if job.status == views.COMPARING:
        return _plain(hub, job, job.status)
    ready_at_ms = hub.jobs.queue.backlog.ready_at_ms(job_id)
    if ready_at_ms is not None and ready_at_ms > hub.now_ms():
        wait_s = (ready_at_ms - hub.now_ms()) / 1000
        return _plain(hub, job, f"{job.status.capitalize()}; the next try starts in {duration(wait_s)}.")
    requirements = job.spec.requirements()
    shape = (
        hub.jobs.queue.backlog.shape_of(job_id)
        if job_id in hub.jobs.queue.backlog
        else shape_of(requirements, job.account_id)
    )
    shape = explain.without_moot_price(hub.nodes.registry.fleet, shape)
    if job.reason is Reason.VERIFYING:
        view = _why(hub, explain.explain(hub.nodes.registry.fleet, shape))
        view = view.model_copy(update={"sentence": await _verifying(hub, job), "unsatisfiable": False})
    else:
        view = _why(hub, await feasibility.explanation(hub, shape))
    return view.model_copy(
        update={
            "job_id": job_id,
            "state": job.state,
            "reason": job.reason.value,
            "ahead": hub.jobs.queue.backlog.position(job_id),
        }
    )


async def _verifying(hub: Hub, job: JobDetail) -> str:
    """How long a result waits to be confirmed."""
    if not verification.parse(job.verify).strict:
        wait_ms = round(hub.settings.verify_wait_s * 1000)
        left_s = max(0, job.queued_at_ms + wait_ms - hub.now_ms()) / 1000
        return f"{_capital(job.status)}. If none does, it is accepted in {duration(left_s)}."
    row = await hub.store.read(lambda connection: job_rows.get_job(connection, job.id))
    ends_ms = hub.now_ms() if row is None else row.expires_at_ms
    left_s = max(0, ends_ms - hub.now_ms()) / 1000
    return f"{_capital(job.status)}. If none does, the job ends without a result in {duration(left_s)}."


def of_queued(hub: Hub, job_ids: Iterable[str]) -> dict[str, str]:
    """Of those that wait for a node and cannot start now, why: for lists, so only of a few kinds of jobs."""
    known: dict[Shape, explain.Explanation] = {}
    found: dict[str, str] = {}
    for job_id in job_ids:
        if job_id not in hub.jobs.queue.backlog or hub.jobs.queue.backlog.ready_at_ms(job_id) is not None:
            continue
        shape = hub.jobs.queue.backlog.shape_of(job_id)
        if shape.avoid_owners:
            continue  # a result is there, and waits for somebody to confirm it: its status says so
        if shape not in known:
            if len(known) == _KINDS_MAX:
                continue
            fleet = hub.nodes.registry.fleet
            known[shape] = explain.explain(fleet, explain.without_moot_price(fleet, shape))
        if not known[shape].eligible_now:
            found[job_id] = known[shape].sentence
    return found


async def _has_succeeded(hub: Hub, principal: Principal, job_id: str) -> bool:
    other = await jobs.get(hub, principal, job_id, wait_ms=0, seen=None)
    return other.state is JobState.SUCCEEDED


def _plain(hub: Hub, job: JobDetail, sentence: str) -> WhyView:
    text = _capital(sentence)
    return WhyView(
        job_id=job.id,
        state=job.state,
        reason=job.reason.value,
        sentence=text if text.endswith(".") else f"{text}.",
        nodes=len(hub.nodes.registry),
        eligible_now=0,
    )


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _why(hub: Hub, found: explain.Explanation) -> WhyView:
    return WhyView.from_attributes(
        found,
        reason="waiting_for_node",
        gates=[GateView.from_attributes(gate) for gate in found.gates],
        changes=[ChangeView.from_attributes(change) for change in found.changes],
    )


async def preview(hub: Hub, principal: Principal, request: PreviewRequest) -> PreviewView:
    needs = requirements_of(
        await hosts.resolve(hub, principal.account_id, mesh_version.needs_of(hub, request.needs)),
        net=request.net,
        labels=request.labels,
        timeout_s=request.timeout_s,
    )
    shape = shape_of(needs, principal.account_id)
    fleet = hub.nodes.registry.fleet
    return PreviewView(
        why=_why(hub, explain.explain(fleet, shape)),
        hosts=[
            NodeVerdictView.from_attributes(
                verdict,
                failed=[failure.text for failure in verdict.failed],
                busy=bool(verdict.failed) and all(failure.busy for failure in verdict.failed),
                tags=sorted(fleet.profile(verdict.node_id).tags),
                mesh_version=fleet.profile(verdict.node_id).mesh_version,
            )
            for verdict in explain.preview(fleet, shape, request.limit)
        ],
    )
