"""Routes of accounts, sign-in and the hub itself."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import Request, Response

from computepool.hub.http import dependencies
from computepool.hub.http.dependencies import (
    Admin,
    Anyone,
    Cursor,
    HubDep,
    IdPath,
    Limit,
    RememberedDep,
    SignedIn,
)
from computepool.hub.http.guard import guarded
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.http.rate_limit import guessing
from computepool.hub.identity import sign_in as identity
from computepool.hub.identity.signing import rotation
from computepool.hub.jobs import quotas
from computepool.hub.money import new_accounts
from computepool.hub.observability import health_routes, queries
from computepool.hub.trust import submitter_reputation
from computepool.protocol.accounts import (
    AccountPage,
    AccountRequest,
    AccountView,
    HubInfo,
    LinkReply,
    QuotaRequest,
    SignInReply,
    SignInRequest,
)
from computepool.protocol.hub_keys import HubKeys
from computepool.protocol.version import PROTOCOL

router = guarded()
router.include_router(health_routes.router)


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
        nodes=await queries.enrolled(hub),
        queued=len(hub.jobs.queue.backlog),
        running=running,
        account=account,
        mesh_version=hub.settings.mesh_version,
        setup=not await queries.signed_in_before(hub),
        signin_hint="" if account is not None else queries.SIGN_IN_HINT,
    )


@router.get("/hub/keys", tags=["agent"])
async def hub_keys(hub: HubDep, _caller: Anyone) -> HubKeys:
    """The hub's public signing keys."""
    return hub.identity.secrets.published


@router.post("/hub/keys/rotate", tags=["hub"], responses=refuses(409))
async def rotate_hub_key(admin: Admin, hub: HubDep) -> HubKeys:
    """Switch to the next signing key."""
    return await rotation.rotate(hub, admin)


@router.get("/me", tags=["accounts"])
async def me(principal: SignedIn, hub: HubDep) -> AccountView:
    """Get the account of this key."""
    return submitter_reputation.shown(hub, await identity.get_account(hub, principal.account_id))


@router.get("/accounts", tags=["accounts"])
async def list_accounts(
    _admin: Admin, hub: HubDep, *, after: Cursor = None, limit: Limit = 100
) -> AccountPage:
    """List accounts."""
    return submitter_reputation.shown_all(hub, await identity.list_accounts(hub, after=after, limit=limit))


@router.post("/accounts", status_code=201, tags=["accounts"], responses=refuses(409))
async def create_account(
    body: AccountRequest, admin: Admin, hub: HubDep, remembered: RememberedDep
) -> AccountView:
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
    with guessing(request, body.code):
        reply = await identity.sign_in(hub, body)
    if body.kind == "key":
        return reply
    dependencies.set_cookie(request, response, reply.key or "")
    return reply.model_copy(update={"key": None})
