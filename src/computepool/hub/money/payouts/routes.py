"""Routes of payouts: the owner's, the administrator's, and the one the bank calls."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Header, Path, Query, Request, Response

from computepool.hub.http.dependencies import (
    Admin,
    Anyone,
    Cursor,
    HubDep,
    IdPath,
    Limit,
    RememberedDep,
    SignedIn,
    for_body,
)
from computepool.hub.http.guard import guarded
from computepool.hub.http.openapi import examples
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

router = guarded(tags=["payouts"])


class _Csv(Response):
    media_type = "text/csv"


@router.post(
    "/payouts",
    status_code=201,
    summary="Ask for a payout of matured credits; they are set aside at once",
    responses=refuses(402, 409, 429),
)
async def request_payout(
    request: Request,
    body: Annotated[PayoutRequest, Body(openapi_examples=examples.PAYOUT)],
    principal: SignedIn,
    hub: HubDep,
    key: RememberedDep,
) -> PayoutView:
    remembered = for_body(key, principal, await request.body())
    return await payouts.request(hub, principal, body, remembered=remembered)


@router.get(
    "/payouts", summary="Your payouts, newest first, and what can be paid out", responses=refuses(403)
)
async def list_payouts(
    principal: SignedIn,
    hub: HubDep,
    *,
    everybody: Annotated[bool, Query(alias="all", description="Of all accounts (administrators)")] = False,
    state: State | None = None,
    after: Cursor = None,
    limit: Limit = 100,
) -> PayoutPage:
    return await payouts.list_payouts(
        hub, principal, everybody=everybody, state=state, after=after, limit=limit
    )


@router.get(
    "/payouts/export.csv",
    response_class=_Csv,
    summary="What the operator has to pay by hand, as a file for the bank",
)
async def export_payouts(_admin: Admin, hub: HubDep) -> Response:
    headers = {"Content-Disposition": 'attachment; filename="payouts.csv"', "Cache-Control": "no-store"}
    return _Csv(await payouts.export(hub), headers=headers)


@router.get("/payouts/{payout_id}", summary="One payout", responses=refuses(404))
async def get_payout(payout_id: IdPath, principal: SignedIn, hub: HubDep) -> PayoutView:
    return await payouts.get(hub, principal, payout_id)


@router.post(
    "/payouts/{payout_id}/cancel",
    summary="Call a payout back, before the bank has it",
    responses=refuses(404, 409),
)
async def cancel_payout(
    request: Request, payout_id: IdPath, principal: SignedIn, hub: HubDep, key: RememberedDep
) -> PayoutView:
    remembered = for_body(key, principal, await request.body())
    return await payouts.cancel(hub, principal, payout_id, remembered=remembered)


@router.post(
    "/payouts/{payout_id}/approve", summary="Let a first or large payout go", responses=refuses(404, 409)
)
async def approve_payout(
    request: Request, payout_id: IdPath, admin: Admin, hub: HubDep, key: RememberedDep
) -> PayoutView:
    remembered = for_body(key, admin, await request.body())
    return await payouts.approve(hub, admin, payout_id, remembered=remembered)


@router.post(
    "/payouts/{payout_id}/reject",
    summary="Refuse a payout, before the bank has it; the money goes back",
    responses=refuses(404, 409),
)
async def reject_payout(
    request: Request,
    payout_id: IdPath,
    body: Annotated[RejectRequest, Body(openapi_examples=examples.PAYOUT_REJECT)],
    admin: Admin,
    hub: HubDep,
    key: RememberedDep,
) -> PayoutView:
    remembered = for_body(key, admin, await request.body())
    return await payouts.reject(hub, admin, payout_id, words=body.reason, remembered=remembered)


@router.post(
    "/payouts/{payout_id}/paid",
    summary="The bank has paid it: seen on its statement",
    responses=refuses(404, 409),
)
async def mark_payout_paid(
    request: Request,
    payout_id: IdPath,
    body: Annotated[PaidRequest, Body(openapi_examples=examples.PAYOUT_PAID)],
    admin: Admin,
    hub: HubDep,
    key: RememberedDep,
) -> PayoutView:
    remembered = for_body(key, admin, await request.body())
    return await payouts.mark_paid(hub, admin, payout_id, reference=body.reference, remembered=remembered)


@router.post(
    "/payouts/{payout_id}/failed",
    summary="The bank has not paid it and will not; the money goes back",
    responses=refuses(404, 409),
)
async def mark_payout_failed(
    request: Request,
    payout_id: IdPath,
    body: Annotated[FailedRequest, Body(openapi_examples=examples.PAYOUT_FAILED)],
    admin: Admin,
    hub: HubDep,
    key: RememberedDep,
) -> PayoutView:
    remembered = for_body(key, admin, await request.body())
    return await payouts.mark_failed(hub, admin, payout_id, words=body.reason, remembered=remembered)


@router.post(
    "/payouts/webhook/{provider}",
    status_code=204,
    summary="What a payout provider tells by itself, signed with the secret it shares with this hub",
    responses=refuses(403, 404, 409, 413),
)
async def hear_provider(
    request: Request,
    provider: Annotated[str, Path(max_length=40, pattern="^[a-z0-9]+$")],
    hub: HubDep,
    _caller: Anyone,
    *,
    x_razorpay_signature: Annotated[str, Header(max_length=200)] = "",
) -> None:
    body = await request.body()
    await payout_rounds.hear(hub, provider, body=body, signature=x_razorpay_signature)
