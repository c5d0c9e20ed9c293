"""Routes of the hub's own state, for administrators: its health, and the rules of its database."""

from __future__ import annotations

from computepool.hub.http.dependencies import Admin, HubDep, WaitMs
from computepool.hub.http.guard import guarded
from computepool.hub.observability import health, rule_checks
from computepool.protocol.health import CheckView, HealthView

router = guarded(prefix="/hub", tags=["hub"])


@router.get("/health")
async def hub_health(_admin: Admin, hub: HubDep) -> HealthView:
    """Get the health of each part of the hub, and what to do."""
    return await health.view(hub)


@router.post("/check", status_code=202)
async def start_check(admin: Admin, hub: HubDep) -> CheckView:
    """Check the database invariants, in one snapshot."""
    return await rule_checks.start(hub, admin)


@router.get("/check")
async def last_check(_admin: Admin, hub: HubDep, wait_ms: WaitMs) -> CheckView:
    """Get the last or current check; can wait for it to finish."""
    return await rule_checks.last(hub, wait_ms=wait_ms)
