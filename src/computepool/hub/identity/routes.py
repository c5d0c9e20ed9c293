"""Routes of accounts, keys, sign-in and the hub itself."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

from fastapi import Query, Request, Response

from computepool.hub.http import dependencies
from computepool.hub.http.dependencies import (
    Admin,
    Anyone,
    Cursor,
    HubDep,
    IdPath,
    IdQuery,
    Limit,
    MayRead,
    RememberedDep,
    SignedIn,
    WaitMs,
)
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.http.rate_limit import limit_sign_in
from computepool.hub.identity import keys, sign_in as identity
from computepool.hub.identity.signing import rotation
from computepool.hub.jobs import quotas
from computepool.hub.money import new_accounts
from computepool.hub.observability import health, queries, rule_checks
from computepool.hub.trust import submitter_reputation
from computepool.protocol.accounts import (
    AccountPage,
    AccountRequest,
    AccountView,
    HubInfo,
    KeyPage,
    KeyRequest,
    KeyRotateRequest,
    LinkReply,
    NewKeyReply,
    QuotaRequest,
    RevokedReply,
    SignInReply,
    SignInRequest,
)
from computepool.protocol.base import PROTOCOL
from computepool.protocol.health import CheckView, HealthView
from computepool.protocol.hub_keys import HubKeys

router = guarded_router()


@router.get("/hub/health", tags=["hub"])
async def hub_health(_admin: Admin, hub: HubDep) -> HealthView:
    """Get the health of each part of the hub, and what to do."""
    return await health.view(hub)


@router.post("/hub/check", status_code=202, tags=["hub"])
async def start_check(admin: Admin, hub: HubDep) -> CheckView:
    """Check the database invariants, in one snapshot."""
    return await rule_checks.start(hub, admin)


@router.get("/hub/check", tags=["hub"])
async def last_check(_admin: Admin, hub: HubDep, wait_ms: WaitMs) -> CheckView:
    """Get the last or current check; can wait for it to finish."""
    return await rule_checks.last(hub, wait_ms=wait_ms)


@router.get("/hub", tags=["hub"])
async def hub_info(principal: Anyone, hub: HubDep) -> HubInfo:
    """Get the pool's name, version and size, and your account."""
    sessions = hub.nodes.registry.sessions
    running = sum(len(session.attempts) for session in sessions)
    account = None if principal is None else await identity.get_account(hub, principal.account_id)
    return HubInfo(
        name=hub.settings.name,
        version=version("computepool"),
        protocol=PROTOCOL,
        time_ms=hub.now_ms(),
        nodes_online=hub.nodes.registry.online(hub.now_ms()),
        nodes=await queries.count_enrolled(hub),
        queued=len(hub.jobs.queue.backlog),
        running=running,
        account=account,
        mesh_version=hub.settings.mesh_version,
        setup=not await queries.has_anybody_signed_in(hub),
        signin_hint="" if account is not None else queries.SIGN_IN_HINT,
    )


@router.get("/hub/keys", tags=["agent"])
async def hub_keys(hub: HubDep, _caller: Anyone) -> HubKeys:
    """Get the hub's public signing keys."""
    return hub.identity.secrets.published


@router.post("/hub/keys/rotate", tags=["hub"], responses=refuses(409))
async def rotate_hub_key(admin: Admin, hub: HubDep) -> HubKeys:
    """Switch to the next signing key."""
    return await rotation.rotate(hub, admin)


@router.get("/me", tags=["accounts"])
async def me(principal: SignedIn, hub: HubDep) -> AccountView:
    """Get the account of this key."""
    return submitter_reputation.add_to_view(hub, await identity.get_account(hub, principal.account_id))


@router.get("/accounts", tags=["accounts"])
async def list_accounts(_admin: Admin, hub: HubDep, *, after: Cursor = None, limit: Limit = 100) -> AccountPage:
    """List accounts."""
    page = await identity.list_accounts(hub, after=after, limit=limit)
    accounts = [submitter_reputation.add_to_view(hub, account) for account in page.accounts]
    return AccountPage(accounts=accounts, next=page.next)


@router.post("/accounts", status_code=201, tags=["accounts"], responses=refuses(409))
async def create_account(body: AccountRequest, admin: Admin, hub: HubDep, remembered: RememberedDep) -> AccountView:
    """Create an account."""
    return await new_accounts.create(hub, admin, body, remembered=remembered)


@router.post("/accounts/{account_id}/link", status_code=201, tags=["accounts"], responses=refuses(404))
async def create_link(account_id: IdPath, admin: Admin, hub: HubDep) -> LinkReply:
    """Create a one-time sign-in link for an account."""
    return await identity.create_link(hub, admin, account_id)


@router.put("/accounts/{account_id}/quotas", tags=["accounts"], responses=refuses(404))
async def set_quotas(account_id: IdPath, body: QuotaRequest, admin: Admin, hub: HubDep) -> AccountView:
    """Set an account's quotas."""
    return await quotas.change(hub, admin, account_id, request=body)


@router.post("/signin", tags=["accounts"])
async def sign_in(
    request: Request, response: Response, body: SignInRequest, hub: HubDep, _caller: Anyone
) -> SignInReply:
    """Exchange a one-time code for a key or a browser session."""
    with limit_sign_in(request, body.code):
        reply = await identity.sign_in(hub, body)
    if body.kind == "key":
        return reply
    dependencies.set_cookie(request, response, reply.key or "")
    return reply.model_copy(update={"key": None})


@router.get("/keys", tags=["accounts"], responses=refuses(404))
async def list_keys(
    principal: SignedIn,
    hub: HubDep,
    *,
    account_id: Annotated[IdQuery, Query(description="Keys of this account (admin only)")] = None,
    everybody: Annotated[bool, Query(alias="all", description="Include all accounts (admin only)")] = False,
    sessions: Annotated[bool, Query(description="Include browser sessions")] = False,
    after: Cursor = None,
    limit: Limit = 100,
) -> KeyPage:
    """List your API keys."""
    return await keys.page(hub, principal, account_id, everybody=everybody, sessions=sessions, after=after, limit=limit)


@router.post("/keys", status_code=201, tags=["accounts"], responses=refuses(404, 409))
async def create_key(body: KeyRequest, principal: SignedIn, hub: HubDep, remembered: RememberedDep) -> NewKeyReply:
    """Create an API key; it is shown once."""
    return await keys.create(hub, principal, body, remembered=remembered)


@router.post("/keys/{key_id}/rotate", status_code=201, tags=["accounts"], responses=refuses(404, 409))
async def rotate_key(
    key_id: IdPath, body: KeyRotateRequest, principal: SignedIn, hub: HubDep, remembered: RememberedDep
) -> NewKeyReply:
    """Replace a key; both work until the overlap ends."""
    return await keys.rotate(hub, principal, key_id, request=body, remembered=remembered)


@router.delete("/keys/{key_id}", status_code=204, tags=["accounts"], responses=refuses(404))
async def revoke_key(key_id: IdPath, principal: SignedIn, hub: HubDep) -> None:
    """Revoke a key; it stops working at once."""
    await keys.revoke(hub, principal, key_id)


@router.delete("/keys", tags=["accounts"], responses=refuses(404))
async def revoke_all_keys(
    principal: SignedIn,
    hub: HubDep,
    *,
    keep_this: Annotated[bool, Query(description="Keep the calling key")] = True,
    account_id: IdQuery = None,
) -> RevokedReply:
    """Sign out everywhere: revoke every key and session of the account."""
    return RevokedReply(revoked=await keys.revoke_all(hub, principal, account_id, keep_this=keep_this))


@router.post("/signout", status_code=204, tags=["accounts"])
async def sign_out(request: Request, response: Response, principal: MayRead, hub: HubDep) -> None:
    """Revoke the calling key or session."""
    await keys.sign_out(hub, principal)
    dependencies.clear_cookie(request, response)
