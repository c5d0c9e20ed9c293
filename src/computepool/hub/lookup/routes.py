"""The route that turns what people type into an id."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from computepool.hub.http.dependencies import HubDep, SearchText, SignedIn
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi.problems import refuses
from computepool.hub.lookup import references
from computepool.protocol.references import Reference, ReferenceKind

router = guarded_router(tags=["jobs"])


@router.get("/find", responses=refuses(404, 409))
async def find(
    principal: SignedIn,
    hub: HubDep,
    *,
    kind: ReferenceKind,
    word: Annotated[SearchText, Query(min_length=1, description="An id, its beginning, a name, or `last`")],
) -> Reference:
    """Resolve an ID prefix, a name, or `last`."""
    return await references.find(hub, principal, kind=kind, word=word)
