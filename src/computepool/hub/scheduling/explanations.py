"""Explanations: why a job waits, what would change that, which nodes would take a job, and whether any ever could."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from computepool.core.errors import Conflict
from computepool.core.fleet.fleet import Fleet
from computepool.core.jobs.lifecycle import TERMINAL, JobState, Reason, When
from computepool.core.placement import explain
from computepool.core.resources import Requirements, Shape
from computepool.core.trust import verification
from computepool.core.words import duration, pluralize
from computepool.hub.context import Hub
from computepool.hub.fleet.shapes import shape_of
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import jobs, rows as job_rows, views
from computepool.hub.nodes import group_homes, hosts, rows as node_rows
from computepool.protocol.jobs.explanations import (
    ChangeView,
    GateView,
    NodeVerdictView,
    PreviewRequest,
    PreviewView,
    WhyView,
)
from computepool.protocol.jobs.jobs import requirements_of
from computepool.protocol.jobs.requirements import satisfies
from computepool.protocol.jobs.views import JobDetail
from computepool.protocol.nodes.profile import Profile

_KINDS_MAX = 5  #: of jobs that are explained for one list, because each explanation reads every node
_AWAY_MAX = 50  #: nodes that are offline and compared with the job


async def warning(hub: Hub, needs: Requirements, account: str, *, refuse: bool) -> str:
    """A warning for jobs that no connected node could run; empty for all others, at no cost.

    With `refuse`, raises Conflict instead, unless a node that could run them is offline, or no node is connected.
    """
    if hub.money.ceilings.is_possible(hub.nodes.registry.fleet, needs, account=account, now_ms=hub.now_ms()):
        return ""
    found = await explanation(hub, shape_of(needs, account))
    if refuse and found.unsatisfiable:
        raise Conflict(found.sentence, field="impossible")
    return found.sentence


async def explanation(hub: Hub, shape: Shape) -> explain.Explanation:
    """Like `explain`, but if a node that could run the job is offline, the sentence names it."""
    found = explain.explain(hub.nodes.registry.fleet, shape)
    away = "" if found.able else await _away(hub, shape)
    if not away:
        return found
    if shape.requirements.node:
        return replace(found, sentence=f"Waiting: {away}.", able=1)  # the others were not asked for
    rest = found.sentence.partition(": ")[2]
    others = "the others could never run it: " if found.unsatisfiable else ""
    return replace(found, sentence=f"Waiting: {away}; {others}{rest}", able=1)


async def _away(hub: Hub, shape: Shape) -> str:
    """The node that could run it and went offline last, in words; empty if there is none."""
    for row in await hub.store.read(node_rows.recently_seen, limit=_AWAY_MAX):
        since_ms = group_homes.offline_since(hub, row)
        if since_ms is None:
            continue
        fleet = Fleet(satisfies)
        fleet.upsert(Profile.model_validate_json(row.profile).node_profile(node_id=row.id, owner=row.account_id))
        if explain.explain(fleet, shape).able:
            return f"{row.name}, which could run it, is offline since {group_homes.moment(since_ms)}"
    return ""


_WAITS = {
    When.SUCCESS: "Waiting for {} it depends on",
    When.FAILURE: "It runs only if one of the jobs before it fails; waiting for {}",
    When.ALWAYS: "Waiting for {} to end",
}


async def why(hub: Hub, principal: Principal, job_id: str) -> WhyView:
    job = await jobs.get(hub, principal, job_id, wait_ms=0, seen=None)
    fleet, backlog, now_ms = hub.nodes.registry.fleet, hub.jobs.queue.backlog, hub.now_ms()
    if job.state is not JobState.QUEUED or job.status == views.COMPARING:
        return _plain(hub, job, job.status)
    others = await hub.store.read(job_rows.get_jobs, job.after) if job.reason is Reason.WAITING_FOR_JOBS else ()
    if pending := [other.id for other in others if other.state not in TERMINAL]:
        waits = _WAITS[job.when].format(pluralize(len(pending), "job"))
        return _plain(hub, job, f"{waits}: {', '.join(pending[:5])}.")
    ready_at_ms = backlog.ready_at_ms(job_id)
    if ready_at_ms is not None and ready_at_ms > now_ms:
        wait = duration((ready_at_ms - now_ms) / 1000)
        return _plain(hub, job, f"{job.status.capitalize()}; the next attempt starts in {wait}.")
    queued = job_id in backlog
    shape = backlog.shape_of(job_id) if queued else shape_of(job.spec.requirements(), job.account_id)
    shape = explain.without_moot_price(fleet, shape)
    if job.reason is Reason.VERIFYING:
        view = _why(hub, explain.explain(fleet, shape))
        view = view.model_copy(update={"sentence": await _describe_verification(hub, job), "unsatisfiable": False})
    else:
        view = _why(hub, await explanation(hub, shape))
    named = {"job_id": job_id, "state": job.state, "reason": job.reason.value}
    return view.model_copy(update={**named, "ahead": backlog.position(job_id)})


async def _describe_verification(hub: Hub, job: JobDetail) -> str:
    """How long its result waits to be confirmed."""
    if verification.parse(job.verify).strict:
        row = await hub.store.read(job_rows.get_job, job.id)
        ends_ms, ends = 0 if row is None else row.expires_at_ms, "the job ends without a result"
    else:
        ends_ms, ends = job.queued_at_ms + round(hub.settings.verify_wait_s * 1000), "it is accepted"
    left = duration(max(0, ends_ms - hub.now_ms()) / 1000)
    return f"{_capital(job.status)}. If none does, {ends} in {left}."


def of_queued(hub: Hub, job_ids: Iterable[str]) -> dict[str, str]:
    """Why jobs that wait for a node cannot start now. For lists, so only a few kinds of jobs are explained."""
    fleet, backlog = hub.nodes.registry.fleet, hub.jobs.queue.backlog
    known: dict[Shape, explain.Explanation] = {}
    found: dict[str, str] = {}
    for job_id in job_ids:
        if job_id not in backlog or backlog.ready_at_ms(job_id) is not None:
            continue
        shape = backlog.shape_of(job_id)
        if shape.avoid_owners:
            continue  # it has a result that waits to be confirmed, as its status says
        if shape not in known:
            if len(known) == _KINDS_MAX:
                continue
            known[shape] = explain.explain(fleet, explain.without_moot_price(fleet, shape))
        if not known[shape].eligible_now:
            found[job_id] = known[shape].sentence
    return found


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
        await hosts.resolve(hub, principal.account_id, request.needs),
        net=request.net,
        labels=request.labels,
        timeout_s=request.timeout_s,
        dependencies=request.dependencies,
    )
    shape = shape_of(needs, principal.account_id)
    fleet = hub.nodes.registry.fleet
    return PreviewView(
        why=_why(hub, explain.explain(fleet, shape)),
        hosts=[
            NodeVerdictView.from_attributes(
                verdict,
                node_id=verdict.profile.node_id,
                name=verdict.profile.name,
                failed=[failure.text for failure in verdict.failed],
                busy=bool(verdict.failed) and all(failure.busy for failure in verdict.failed),
                tags=sorted(verdict.profile.tags),
                mesh_version=verdict.profile.mesh_version,
            )
            for verdict in explain.preview(fleet, shape, request.limit)
        ],
    )
