"""Routes of approvals, and of role changes, which may need one."""

from __future__ import annotations

from computepool.hub.approvals import approvals
from computepool.hub.http.dependencies import Admin, HubDep, IdPath
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.identity import roles
from computepool.protocol.accounts import AccountView, ApprovalList, ApprovalView, RefusalRequest, RolesRequest

router = guarded_router(tags=["accounts"])


@router.put("/accounts/{account_id}/roles", responses=refuses(404, 409))
async def set_roles(account_id: IdPath, body: RolesRequest, admin: Admin, hub: HubDep) -> AccountView:
    """Set an account's roles; may wait for a second administrator."""
    return await roles.change(hub, admin, account_id, request=body)


@router.get("/approvals")
async def list_approvals(admin: Admin, hub: HubDep) -> ApprovalList:
    """List requests that wait for a second administrator."""
    return await approvals.list_pending(hub, admin)


@router.post("/approvals/{approval_id}/approve", responses=refuses(404, 409))
async def approve_request(approval_id: IdPath, admin: Admin, hub: HubDep) -> ApprovalView:
    """Approve another administrator's request; it takes effect immediately."""
    return await approvals.approve(hub, admin, approval_id)


@router.post("/approvals/{approval_id}/reject", responses=refuses(404, 409))
async def reject_request(approval_id: IdPath, body: RefusalRequest, admin: Admin, hub: HubDep) -> ApprovalView:
    """Reject a request, or withdraw your own."""
    return await approvals.reject(hub, admin, approval_id, reason=body.reason)
