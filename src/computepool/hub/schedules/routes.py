"""Routes of schedules."""

from __future__ import annotations

from computepool.hub.http.dependencies import Cursor, HubDep, IdPath, Limit, RememberedDep, SignedIn, Submitter, TimeMs
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.schedules import schedules
from computepool.protocol.schedules import (
    ScheduleDetail,
    SchedulePage,
    ScheduleRequest,
    ScheduleRun,
    ScheduleRunPage,
    ScheduleView,
)

router = guarded_router(tags=["jobs"])


@router.get("/schedules")
async def list_schedules(principal: SignedIn, hub: HubDep, *, after: Cursor = None, limit: Limit = 100) -> SchedulePage:
    """List your schedules."""
    return await schedules.page(hub, principal, after=after, limit=limit)


@router.post("/schedules", status_code=201, responses=refuses(404, 409, 413))
async def add_schedule(
    body: ScheduleRequest, principal: Submitter, hub: HubDep, remembered: RememberedDep
) -> ScheduleView:
    """Add a schedule, which submits jobs at the times of a cron expression."""
    return await schedules.add(hub, principal, body, remembered=remembered)


@router.get("/schedules/{schedule_id}", responses=refuses(404))
async def get_schedule(schedule_id: IdPath, principal: SignedIn, hub: HubDep) -> ScheduleDetail:
    """Get a schedule with its newest runs."""
    return await schedules.get(hub, principal, schedule_id)


@router.get("/schedules/{schedule_id}/runs", responses=refuses(404))
async def list_schedule_runs(
    schedule_id: IdPath, principal: SignedIn, hub: HubDep, *, before: TimeMs = None, limit: Limit = 100
) -> ScheduleRunPage:
    """List the runs of a schedule, newest first."""
    return await schedules.runs(hub, principal, schedule_id, before=before, limit=limit)


@router.post("/schedules/{schedule_id}/pause", responses=refuses(404))
async def pause_schedule(schedule_id: IdPath, principal: Submitter, hub: HubDep) -> ScheduleView:
    """Pause a schedule. Its jobs continue."""
    return await schedules.pause(hub, principal, schedule_id)


@router.post("/schedules/{schedule_id}/resume", responses=refuses(404))
async def resume_schedule(schedule_id: IdPath, principal: Submitter, hub: HubDep) -> ScheduleView:
    """Resume a schedule from now on."""
    return await schedules.resume(hub, principal, schedule_id)


@router.post("/schedules/{schedule_id}/run", responses=refuses(404, 409))
async def run_schedule(
    schedule_id: IdPath, principal: Submitter, hub: HubDep, remembered: RememberedDep
) -> ScheduleRun:
    """Run a schedule once now."""
    return await schedules.run_now(hub, principal, schedule_id, remembered=remembered)


@router.delete("/schedules/{schedule_id}", status_code=204, responses=refuses(404))
async def remove_schedule(schedule_id: IdPath, principal: Submitter, hub: HubDep) -> None:
    """Remove a schedule. Its jobs continue."""
    await schedules.remove(hub, principal, schedule_id)
