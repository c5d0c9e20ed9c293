"""Routes of credits: balances, statements, costs, quotes, receipts, the leaderboard, top-ups, and the price table."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Path, Query
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
)
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.money import costs, credits as credit_service, prices, receipts, statements
from computepool.hub.submission import quotes
from computepool.protocol.jobs.filters import StatementFilter
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

router = guarded_router()
AtMs = Annotated[int | None, Query(ge=0, le=SEQ_MAX, description="Milliseconds since the epoch")]


async def _filters(
    *,
    kind: Annotated[Kind | None, Query(description="Only this kind of transfer")] = None,
    job_id: IdQuery = None,
    since_ms: AtMs = None,
    until_ms: AtMs = None,
) -> StatementFilter:
    return StatementFilter(
        kinds=() if kind is None else (kind.value,), job_id=job_id, since_ms=since_ms, until_ms=until_ms
    )


FilterDep = Annotated[StatementFilter, Depends(_filters)]


@router.get("/credits", tags=["credits"], responses=refuses(404))
async def get_credits(principal: SignedIn, hub: HubDep, *, account_id: IdQuery = None) -> CreditsView:
    """Get your balances."""
    return await credit_service.show(hub, principal, account_id)


@router.get("/credits/statement", tags=["credits"], responses=refuses(404))
async def get_statement(
    principal: SignedIn,
    hub: HubDep,
    filters: FilterDep,
    *,
    account_id: IdQuery = None,
    sums: Annotated[bool, Query(description="Include totals by kind")] = False,
    after: Cursor = None,
    limit: Limit = 100,
) -> StatementPage:
    """List your transfers, newest first."""
    return await statements.page(hub, principal, account_id, filters=filters, after=after, limit=limit, with_sums=sums)


@router.get(
    "/credits/statement.csv",
    tags=["credits"],
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
    principal: SignedIn, hub: HubDep, filters: FilterDep, *, account_id: IdQuery = None
) -> StreamingResponse:
    """Export the whole statement as CSV."""
    lines = statements.export(hub, principal, account_id, filters=filters)
    headers = {"Content-Disposition": 'attachment; filename="statement.csv"'}
    return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/credits/leaderboard", tags=["credits"])
async def get_leaderboard(
    _caller: SignedIn,
    hub: HubDep,
    *,
    by: Literal["credits", "hours"] = "credits",
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> LeaderboardView:
    """Show who lent and borrowed most in the last 30 days."""
    return await credit_service.leaderboard(hub, by=by, limit=limit)


@router.post("/credits/top-ups", status_code=201, tags=["credits"], responses=refuses(404, 409))
async def top_up(body: TopUpRequest, admin: Admin, hub: HubDep, remembered: RememberedDep) -> TopUpReply:
    """Give an account credits, or record a payment."""
    return await credit_service.top_up(hub, admin, body, remembered=remembered)


@router.post("/quotes", tags=["credits"], responses=refuses(409))
async def quote(body: QuoteRequest, principal: MayRead, hub: HubDep) -> QuoteView:
    """Quote the cost of jobs, and when they would start and finish."""
    return await quotes.quote(hub, principal, body)


@router.get("/jobs/{job_id}/cost", tags=["credits"], responses=refuses(404))
async def explain_cost(job_id: IdPath, principal: SignedIn, hub: HubDep) -> CostView:
    """Explain what the job cost, and what the node's owner was paid."""
    return await costs.explain(hub, principal, job_id)


@router.get("/jobs/{job_id}/receipt", tags=["credits"], responses=refuses(404, 409))
async def get_receipt(job_id: IdPath, principal: SignedIn, hub: HubDep) -> SignedReceipt:
    """Get a receipt signed by the hub, which anyone can verify offline."""
    return await receipts.issue(hub, principal, job_id)


@router.get("/prices", tags=["prices"])
async def get_prices(_caller: SignedIn, hub: HubDep) -> PriceTableView:
    """Get the current price table."""
    return await prices.show(hub)


@router.get("/prices/versions", tags=["prices"])
async def list_price_versions(_caller: SignedIn, hub: HubDep) -> PriceVersions:
    """List all versions, newest first."""
    return await prices.history(hub)


@router.get("/prices/{version}", tags=["prices"], responses=refuses(404))
async def get_price_version(
    version: Annotated[int, Path(ge=1, le=2**31 - 1)], _caller: SignedIn, hub: HubDep
) -> PriceTableView:
    """Get one version of the price table."""
    return await prices.show(hub, version)


@router.put("/prices", tags=["prices"], responses=refuses(409))
async def change_prices(body: PricesRequest, admin: Admin, hub: HubDep) -> PriceTableView:
    """Publish a new version of the price table."""
    return await prices.change(hub, admin, body)
