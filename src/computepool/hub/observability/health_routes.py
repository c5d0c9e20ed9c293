"""Routes of the hub's own state, for administrators: its health, and the rules of its database."""

from __future__ import annotations

from computepool.hub.http.dependencies import Admin, HubDep, WaitMs
from computepool.hub.http.guard import guarded
from computepool.hub.observability import health, rule_checks
from computepool.protocol.health import CheckView, HealthView

router = guarded(prefix="/hub", tags=["hub"])


@router.get("/health", summary="How the hub is, part by part, and what to do")
async def hub_health(_admin: Admin, hub: HubDep) -> HealthView:
    return await health.view(hub)


@router.post("/check", status_code=202, summary="Check the rules of the database, in one snapshot")
async def start_check(admin: Admin, hub: HubDep) -> CheckView:
    return await rule_checks.start(hub, admin)


@router.get(
    "/check", summary="The last check of the rules, or the one under way; waits for its end if asked to"
)
async def last_check(_admin: Admin, hub: HubDep, wait_ms: WaitMs) -> CheckView:
    return await rule_checks.last(hub, wait_ms=wait_ms)
