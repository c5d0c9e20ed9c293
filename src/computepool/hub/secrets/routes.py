"""Routes of secrets."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path

from computepool.hub.http.dependencies import Allow, HubDep, Submitter
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.identity.access import Action, Principal, Scope
from computepool.hub.secrets import secrets
from computepool.protocol.secrets import SecretList, SecretName, SecretRequest, SecretView

router = guarded_router(tags=["accounts"])
_Name = Annotated[SecretName, Path()]
#: A key that only submits jobs uses secrets, and does not change them.
_Keeper = Annotated[Principal, Depends(Allow(Action.SUBMIT, Scope.ACCOUNT))]


@router.get("/secrets")
async def list_secrets(principal: Submitter, hub: HubDep) -> SecretList:
    """List your secrets, without their values."""
    return await secrets.page(hub, principal)


@router.put("/secrets/{name}", responses=refuses(413))
async def set_secret(name: _Name, body: SecretRequest, principal: _Keeper, hub: HubDep) -> SecretView:
    """Store a secret, or replace its value. Nothing shows the value again."""
    return await secrets.put(hub, principal, name, request=body)


@router.delete("/secrets/{name}", status_code=204, responses=refuses(404))
async def remove_secret(name: _Name, principal: _Keeper, hub: HubDep) -> None:
    """Remove a secret. Jobs that name it fail when they start."""
    await secrets.remove(hub, principal, name)
