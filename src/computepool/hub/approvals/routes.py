"""Routes of approvals: what waits for a second administrator, and his word."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body

from computepool.hub.approvals import approvals
from computepool.hub.http.dependencies import Admin, HubDep, IdPath
from computepool.hub.http.guard import guarded
from computepool.hub.http.openapi import examples
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.identity import roles
from computepool.protocol.accounts import (
    AccountView,
    ApprovalList,
    ApprovalView,
    RefusalRequest,
    RolesRequest,
)

router = guarded(tags=["accounts"])


@router.put(
    "/accounts/{account_id}/roles",
    summary="Set an account's roles; may wait for a second administrator",
    responses=refuses(404, 409),
)
async def set_roles(
    account_id: IdPath,
    body: Annotated[RolesRequest, Body(openapi_examples=examples.ROLES)],
    admin: Admin,
    hub: HubDep,
) -> AccountView:
    return await roles.change(hub, admin, account_id, request=body)


@router.get("/approvals", summary="What waits for a second administrator")
async def list_approvals(admin: Admin, hub: HubDep) -> ApprovalList:
    return await approvals.pending(hub, admin)


@router.post(
    "/approvals/{approval_id}/approve",
    summary="Agree to what another administrator asked for; it happens now",
    responses=refuses(404, 409),
)
async def approve_request(approval_id: IdPath, admin: Admin, hub: HubDep) -> ApprovalView:
    return await approvals.approve(hub, admin, approval_id)


@router.post(
    "/approvals/{approval_id}/reject",
    summary="Refuse it, or take back what you asked for",
    responses=refuses(404, 409),
)
async def reject_request(
    approval_id: IdPath,
    body: Annotated[RefusalRequest, Body(openapi_examples=examples.REFUSAL)],
    admin: Admin,
    hub: HubDep,
) -> ApprovalView:
    return await approvals.reject(hub, admin, approval_id, reason=body.reason)
