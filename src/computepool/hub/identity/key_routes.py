"""Routes of API keys and sessions: made, replaced, ended."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response

from computepool.hub.http import dependencies
from computepool.hub.http.dependencies import (
    Cursor,
    HubDep,
    IdPath,
    IdQuery,
    Limit,
    MayRead,
    RememberedDep,
    SignedIn,
)
from computepool.hub.http.guard import guarded
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.identity import keys
from computepool.protocol.accounts import KeyPage, KeyRequest, KeyRotateRequest, NewKeyReply, RevokedReply

router = guarded(tags=["accounts"])


@router.get("/keys", responses=refuses(404))
async def list_keys(
    principal: SignedIn,
    hub: HubDep,
    *,
    account_id: Annotated[IdQuery, Query(description="Of this account; for administrators")] = None,
    everybody: Annotated[bool, Query(alias="all", description="Of everybody; for administrators")] = False,
    sessions: Annotated[bool, Query(description="With the sessions of browsers")] = False,
    after: Cursor = None,
    limit: Limit = 100,
) -> KeyPage:
    """List your API keys."""
    return await keys.page(
        hub, principal, account_id, everybody=everybody, sessions=sessions, after=after, limit=limit
    )


@router.post("/keys", status_code=201, responses=refuses(404, 409))
async def create_key(
    body: KeyRequest, principal: SignedIn, hub: HubDep, remembered: RememberedDep
) -> NewKeyReply:
    """Create an API key; it is shown once."""
    return await keys.create(hub, principal, body, remembered=remembered)


@router.post("/keys/{key_id}/rotate", status_code=201, responses=refuses(404, 409))
async def rotate_key(
    key_id: IdPath, body: KeyRotateRequest, principal: SignedIn, hub: HubDep, remembered: RememberedDep
) -> NewKeyReply:
    """Replace a key; both work until the overlap ends."""
    return await keys.rotate(hub, principal, key_id, request=body, remembered=remembered)


@router.delete("/keys/{key_id}", status_code=204, responses=refuses(404))
async def revoke_key(key_id: IdPath, principal: SignedIn, hub: HubDep) -> None:
    """Revoke a key; it stops working at once."""
    await keys.revoke(hub, principal, key_id)


@router.delete("/keys", responses=refuses(404))
async def revoke_all_keys(
    principal: SignedIn,
    hub: HubDep,
    *,
    keep_this: Annotated[bool, Query(description="Leave the key that asks")] = True,
    account_id: IdQuery = None,
) -> RevokedReply:
    """Sign out everywhere: revoke every key and session of the account."""
    return RevokedReply(revoked=await keys.revoke_all(hub, principal, account_id, keep_this=keep_this))


@router.post("/signout", status_code=204)
async def sign_out(request: Request, response: Response, principal: MayRead, hub: HubDep) -> None:
    """Revoke the calling key or session."""
    await keys.sign_out(hub, principal)
    dependencies.clear_cookie(request, response)
