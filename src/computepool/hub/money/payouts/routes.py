"""Routes of payouts, for owners, administrators and the bank."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Path, Query, Request, Response

from computepool.hub.http.dependencies import Admin, Anyone, Cursor, HubDep, IdPath, Limit, RememberedDep, SignedIn
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.money.payouts import payout_rounds, payouts
from computepool.protocol.money.payouts import (
    FailedRequest,
    PaidRequest,
    PayoutPage,
    PayoutRequest,
    PayoutView,
    RejectRequest,
    State,
)

router = guarded_router(tags=["payouts"])


class _Csv(Response):
    media_type = "text/csv"


@router.post("/payouts", status_code=201, responses=refuses(402, 409, 429))
async def request_payout(
    request: Request, body: PayoutRequest, principal: SignedIn, hub: HubDep, remembered: RememberedDep
) -> PayoutView:
    """Request a payout of matured credits; they are reserved immediately."""
    return await payouts.request(hub, principal, body, remembered=remembered)


@router.get("/payouts", responses=refuses(403))
async def list_payouts(
    principal: SignedIn,
    hub: HubDep,
    *,
    everybody: Annotated[bool, Query(alias="all", description="Include all accounts (admin only)")] = False,
    state: State | None = None,
    after: Cursor = None,
    limit: Limit = 100,
) -> PayoutPage:
    """List your payouts, newest first, and the amount that can be paid out."""
    return await payouts.list_payouts(hub, principal, everybody=everybody, state=state, after=after, limit=limit)


@router.get("/payouts/export.csv", response_class=_Csv)
async def export_payouts(_admin: Admin, hub: HubDep) -> Response:
    """Export payouts to be paid manually, as CSV for the bank."""
    headers = {"Content-Disposition": 'attachment; filename="payouts.csv"', "Cache-Control": "no-store"}
    return _Csv(await payouts.export(hub), headers=headers)


@router.get("/payouts/{payout_id}", responses=refuses(404))
async def get_payout(payout_id: IdPath, principal: SignedIn, hub: HubDep) -> PayoutView:
    """Get a payout."""
    return await payouts.get(hub, principal, payout_id)


@router.post("/payouts/{payout_id}/cancel", responses=refuses(404, 409))
async def cancel_payout(payout_id: IdPath, principal: SignedIn, hub: HubDep, remembered: RememberedDep) -> PayoutView:
    """Cancel a payout that has not been sent to the bank."""
    return await payouts.cancel(hub, principal, payout_id, remembered=remembered)


@router.post("/payouts/{payout_id}/approve", responses=refuses(404, 409))
async def approve_payout(payout_id: IdPath, admin: Admin, hub: HubDep, remembered: RememberedDep) -> PayoutView:
    """Approve a first or large payout."""
    return await payouts.approve(hub, admin, payout_id, remembered=remembered)


@router.post("/payouts/{payout_id}/reject", responses=refuses(404, 409))
async def reject_payout(
    payout_id: IdPath, body: RejectRequest, admin: Admin, hub: HubDep, remembered: RememberedDep
) -> PayoutView:
    """Reject a payout that has not been sent to the bank; the credits are returned."""
    return await payouts.reject(hub, admin, payout_id, detail=body.reason, remembered=remembered)


@router.post("/payouts/{payout_id}/paid", responses=refuses(404, 409))
async def mark_payout_paid(
    payout_id: IdPath, body: PaidRequest, admin: Admin, hub: HubDep, remembered: RememberedDep
) -> PayoutView:
    """Record that the bank paid a payout."""
    return await payouts.mark_paid(hub, admin, payout_id, reference=body.reference, remembered=remembered)


@router.post("/payouts/{payout_id}/failed", responses=refuses(404, 409))
async def mark_payout_failed(
    payout_id: IdPath, body: FailedRequest, admin: Admin, hub: HubDep, remembered: RememberedDep
) -> PayoutView:
    """Record that the bank will not pay a payout; the credits are returned."""
    return await payouts.mark_failed(hub, admin, payout_id, detail=body.reason, remembered=remembered)


@router.post("/payouts/webhook/{provider}", status_code=204, responses=refuses(403, 404, 409, 413))
async def receive_provider_webhook(
    request: Request,
    provider: Annotated[str, Path(max_length=40, pattern="^[a-z0-9]+$")],
    hub: HubDep,
    _caller: Anyone,
    *,
    x_razorpay_signature: Annotated[str, Header(max_length=200)] = "",
) -> None:
    """Receive a payout provider's signed webhook."""
    body = await request.body()
    await payout_rounds.receive_webhook(hub, provider, body=body, signature=x_razorpay_signature)
