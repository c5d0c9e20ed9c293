"""Routes of credits: balances, statements, costs, quotes, receipts, the leaderboard, top-ups, and the price table."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Body, Depends, Path, Query, Request
from fastapi.responses import StreamingResponse

from computepool.core.money.ledger import Kind
from computepool.hub.http.dependencies import (
    SEQ_MAX,
    Admin,
    Cursor,
    HubDep,
    IdPath,
    IdQuery,
    Limit,
    MayRead,
    RememberedDep,
    SignedIn,
    for_body,
)
from computepool.hub.http.guard import guarded
from computepool.hub.http.openapi import examples
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.money import costs, prices, receipts, statements
from computepool.hub.money import credits as credit_service
from computepool.hub.money.statements import Wanted
from computepool.hub.submission import quotes
from computepool.protocol.money.credits import (
    CostView,
    CreditsView,
    LeaderboardView,
    PricesRequest,
    PriceTableView,
    PriceVersions,
    QuoteRequest,
    QuoteView,
    StatementPage,
    TopUpReply,
    TopUpRequest,
)
from computepool.protocol.money.receipts import SignedReceipt

router = guarded()
AtMs = Annotated[int | None, Query(ge=0, le=SEQ_MAX, description="Milliseconds since the epoch")]


async def _wanted(
    *,
    kind: Annotated[Kind | None, Query(description="Only this kind of transfer")] = None,
    job_id: IdQuery = None,
    since_ms: AtMs = None,
    until_ms: AtMs = None,
) -> Wanted:
    return Wanted(kind=kind, job_id=job_id, since_ms=since_ms, until_ms=until_ms)


WantedDep = Annotated[Wanted, Depends(_wanted)]


@router.get("/credits", tags=["credits"], summary="What you have, hold and earn", responses=refuses(404))
async def get_credits(principal: SignedIn, hub: HubDep, *, account_id: IdQuery = None) -> CreditsView:
    return await credit_service.show(hub, principal, account_id)


@router.get(
    "/credits/statement",
    tags=["credits"],
    summary="Every transfer of yours, newest first",
    responses=refuses(404),
)
async def get_statement(
    principal: SignedIn,
    hub: HubDep,
    wanted: WantedDep,
    *,
    account_id: IdQuery = None,
    sums: Annotated[bool, Query(description="Also add everything up, by kind")] = False,
    after: Cursor = None,
    limit: Limit = 100,
) -> StatementPage:
    return await statements.page(
        hub, principal, account_id, wanted=wanted, after=after, limit=limit, with_sums=sums
    )


@router.get(
    "/credits/statement.csv",
    tags=["credits"],
    summary="The same, whole, for a spreadsheet",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Comma separated, one transfer a line",
            "content": {"text/csv": {"schema": {"type": "string"}}},
        },
        **refuses(404),
    },
)
async def export_statement(
    principal: SignedIn, hub: HubDep, wanted: WantedDep, *, account_id: IdQuery = None
) -> StreamingResponse:
    lines = statements.export(hub, principal, account_id, wanted=wanted)
    headers = {"Content-Disposition": 'attachment; filename="statement.csv"'}
    return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/credits/leaderboard", tags=["credits"], summary="Who lends and borrows most, in 30 days")
async def get_leaderboard(
    _caller: SignedIn,
    hub: HubDep,
    *,
    by: Literal["credits", "hours"] = "credits",
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> LeaderboardView:
    return await credit_service.leaderboard(hub, by=by, limit=limit)


@router.post(
    "/credits/top-ups",
    status_code=201,
    tags=["credits"],
    summary="Give an account credits, or book what it paid in",
    responses=refuses(404, 409),
)
async def top_up(
    request: Request,
    body: Annotated[TopUpRequest, Body(openapi_examples=examples.TOP_UP)],
    admin: Admin,
    hub: HubDep,
    key: RememberedDep,
) -> TopUpReply:
    remembered = for_body(key, admin, await request.body())
    return await credit_service.top_up(hub, admin, body, remembered=remembered)


@router.post(
    "/quotes",
    tags=["credits"],
    summary="What such jobs would cost, and when they would start and end",
    responses=refuses(409),
)
async def quote(
    body: Annotated[QuoteRequest, Body(openapi_examples=examples.QUOTE)], principal: MayRead, hub: HubDep
) -> QuoteView:
    return await quotes.quote(hub, principal, body)


@router.get(
    "/jobs/{job_id}/cost",
    tags=["credits"],
    summary="Why the job cost that, and why its node's owner was paid that",
    responses=refuses(404),
)
async def explain_cost(job_id: IdPath, principal: SignedIn, hub: HubDep) -> CostView:
    return await costs.explain(hub, principal, job_id)


@router.get(
    "/jobs/{job_id}/receipt",
    tags=["credits"],
    summary="A receipt signed by the hub, which anybody can check offline",
    responses=refuses(404, 409),
)
async def get_receipt(job_id: IdPath, principal: SignedIn, hub: HubDep) -> SignedReceipt:
    return await receipts.issue(hub, principal, job_id)


@router.get("/prices", tags=["prices"], summary="The price table in force")
async def get_prices(_caller: SignedIn, hub: HubDep) -> PriceTableView:
    return await prices.show(hub)


@router.get("/prices/versions", tags=["prices"], summary="Every version there was, newest first")
async def list_price_versions(_caller: SignedIn, hub: HubDep) -> PriceVersions:
    return await prices.history(hub)


@router.get(
    "/prices/{version}", tags=["prices"], summary="One version of the price table", responses=refuses(404)
)
async def get_price_version(
    version: Annotated[int, Path(ge=1, le=2**31 - 1)], _caller: SignedIn, hub: HubDep
) -> PriceTableView:
    return await prices.show(hub, version)


@router.put(
    "/prices", tags=["prices"], summary="Put a new version of the prices in force", responses=refuses(409)
)
async def change_prices(
    body: Annotated[PricesRequest, Body(openapi_examples=examples.PRICES)], admin: Admin, hub: HubDep
) -> PriceTableView:
    return await prices.change(hub, admin, body)
