"""Dependencies of routes: the hub, the caller and common parameters. Every route declares its policy with one of them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Header, Path, Query, Request, Response

from computepool.core.errors import Forbidden, Unauthenticated
from computepool.hub.context import Hub
from computepool.hub.http.rate_limit import limit_sign_in, limits_of
from computepool.hub.identity.access import Action, NodePrincipal, Principal, Scope, check_action, scope_for
from computepool.hub.identity.idempotency import Remembered

COOKIE = "computepool_session"
#: Over HTTPS. A browser accepts this name only from the host itself, with Secure and the path `/`.
SECURE_COOKIE = f"__Host-{COOKIE}"
#: Over HTTPS under a path prefix, where another hub on the same host may have a cookie of its own.
PREFIXED_COOKIE = f"__Secure-{COOKIE}"
#: Ids and cursors, checked before they reach the database, which refuses some characters.
ID_PATTERN = "^[A-Za-z0-9_-]+$"
SEQ_MAX = 2**62
PAGE_MAX = 500
KEY_MAX = 200  #: characters of an idempotency key
WAIT_MAX_MS = 60_000
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
#: In a request's scope: the policy that was already checked, and its caller.
_CALLER = "computepool.caller"


# Dependencies are async because FastAPI would run plain functions on threads, which costs far more than they do.


async def get_hub(request: Request) -> Hub:
    return _hub(request)


def _hub(request: Request) -> Hub:
    hub: Hub = request.app.state.hub
    return hub


def bearer(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


class Allow:
    """A route's policy: who may call it at all. Checks of single objects follow in hub/identity/access.py."""

    def __init__(self, action: Action, scope: Scope | None = None) -> None:
        self.action = action
        self._scope = scope

    def scope(self, method: str) -> Scope | None:
        """The scope that a person's key needs, or None."""
        if self.action in (Action.ANYONE, Action.NODE):
            return None
        return self._scope or scope_for(self.action, safe=method in _SAFE_METHODS)

    async def __call__(self, request: Request) -> Principal | NodePrincipal | None:
        """Called before the body is read (hub/http/guard.py), and again by the route, which gets the same answer."""
        key = (self.action, self._scope)
        known: tuple[object, Principal | NodePrincipal | None] = request.scope.get(_CALLER, (None, None))
        if known[0] == key:
            return known[1]
        caller = await self._admit(request)
        request.scope[_CALLER] = key, caller
        return caller

    async def _admit(self, request: Request) -> Principal | NodePrincipal | None:
        if self.action is Action.ANYONE:
            return await self._optional(request)
        if self.action is Action.NODE:
            return await self._node(request)
        if self.action is Action.SIGNED_IN_OR_NODE and _is_node_token(bearer(request)):
            return await self._node(request)
        principal = await self._person(request)
        check_action(principal, self.action, scope=self.scope(request.method) or Scope.READ)
        return principal

    async def _optional(self, request: Request) -> Principal | None:
        if bearer(request) is None and session_cookie(request) is None:
            return None
        try:
            return await self._person(request)
        except Unauthenticated:
            return None

    async def _node(self, request: Request) -> NodePrincipal:
        token = bearer(request)
        if token is None:
            raise Unauthenticated("This needs a node's token.")
        return await _hub(request).identity.authenticator.node(token)

    async def _person(self, request: Request) -> Principal:
        key = bearer(request)
        if key is None:
            key = session_cookie(request)
            if key is None:
                raise Unauthenticated()
            refuse_cross_site(request)
        with limit_sign_in(request, key):
            principal = await _hub(request).identity.authenticator.person(key)
        limits_of(request.app.state).requests.take(principal.account_id)
        return principal


def session_cookie(request: Request) -> str | None:
    names = (PREFIXED_COOKIE,) if _hub(request).settings.prefix else (SECURE_COOKIE,)
    return next(filter(None, map(request.cookies.get, (*names, COOKIE))), None)


def set_cookie(request: Request, response: Response, key: str) -> None:
    settings = _hub(request).settings
    # Behind a proxy that terminates TLS, the request itself looks insecure; the public address does not.
    secure = request.url.scheme == "https" or settings.address.startswith("https:")
    secure_name = PREFIXED_COOKIE if settings.prefix else SECURE_COOKIE
    response.set_cookie(
        secure_name if secure else COOKIE,
        key,
        max_age=round(settings.cookie_lifetime_s),
        httponly=True,
        samesite="lax",
        secure=secure,
        path=settings.prefix or "/",
    )


def clear_cookie(request: Request, response: Response) -> None:
    path = _hub(request).settings.prefix or "/"
    for name in (SECURE_COOKIE, PREFIXED_COOKIE, COOKIE):
        if name in request.cookies:
            response.delete_cookie(name, path=path, httponly=True, samesite="lax", secure=name != COOKIE)


async def reload_caller(request: Request) -> Principal | None:
    """The caller again, for streams: a key that was revoked meanwhile, or lost a role, must not go on reading."""
    key = bearer(request) or session_cookie(request)
    try:
        return await _hub(request).identity.authenticator.person(key or "")
    except Unauthenticated:
        return None


def _is_node_token(token: str | None) -> bool:
    return token is not None and not token.startswith("cp_")


def refuse_cross_site(request: Request) -> None:
    """Refuse requests from other sites: a browser sends cookies by itself, so they do not prove a person's intention."""
    if request.method in _SAFE_METHODS:
        return
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        trusted = site in ("same-origin", "none")
    else:
        origin = request.headers.get("origin")
        trusted = origin is not None and (
            urlsplit(origin).netloc == request.headers.get("host") or origin in _hub(request).settings.origins()
        )
    if not trusted:
        raise Forbidden("This request came from another site.")


async def bounded_wait(
    request: Request,
    wait_ms: Annotated[int, Query(ge=0, le=WAIT_MAX_MS, description="How long to wait for news before answering")] = 0,
) -> int:
    return min(wait_ms, round(_hub(request).settings.wait_max_s * 1000))


async def get_remembered(
    request: Request,
    idempotency_key: Annotated[
        str,
        Header(
            max_length=KEY_MAX,
            pattern=r"^[\x20-\x7e]*$",
            description="The same key with the same body gets the same reply, and one effect",
        ),
    ] = "",
) -> Remembered:
    """The idempotency key alone; `for_body` adds the account and the body's hash."""
    # Replies that hold a secret are encrypted with something that only the caller has.
    credential = bearer(request) or session_cookie(request) or ""
    return Remembered(
        account_id="", route=request.scope["path"], key=idempotency_key, request_hash="", credential=credential
    )


def for_body(base: Remembered, principal: Principal, body: bytes) -> Remembered:
    return replace(base, account_id=principal.account_id, request_hash=hashlib.sha256(body).hexdigest())


async def get_remembered_body(request: Request, key: Annotated[Remembered, Depends(get_remembered)]) -> Remembered:
    """The idempotency key with account and body, for routes whose policy has already admitted the caller."""
    _, caller = request.scope[_CALLER]
    return for_body(key, caller, await request.body())


HubDep = Annotated[Hub, Depends(get_hub)]
Anyone = Annotated[Principal | None, Depends(Allow(Action.ANYONE))]
SignedIn = Annotated[Principal, Depends(Allow(Action.SIGNED_IN))]
#: Any signed-in person with a key of this scope, where the method (such as a POST that only reads) does not imply it.
MayRead = Annotated[Principal, Depends(Allow(Action.SIGNED_IN, Scope.READ))]
MaySubmit = Annotated[Principal, Depends(Allow(Action.SIGNED_IN, Scope.SUBMIT))]
MayProvide = Annotated[Principal, Depends(Allow(Action.SIGNED_IN, Scope.PROVIDE))]
Submitter = Annotated[Principal, Depends(Allow(Action.SUBMIT))]
Provider = Annotated[Principal, Depends(Allow(Action.PROVIDE))]
Admin = Annotated[Principal, Depends(Allow(Action.ADMIN))]
Node = Annotated[NodePrincipal, Depends(Allow(Action.NODE))]
PersonOrNode = Annotated[Principal | NodePrincipal, Depends(Allow(Action.SIGNED_IN_OR_NODE))]
SubmitterOrNode = Annotated[Principal | NodePrincipal, Depends(Allow(Action.SIGNED_IN_OR_NODE, Scope.SUBMIT))]
KeyDep = Annotated[Remembered, Depends(get_remembered)]
RememberedDep = Annotated[Remembered, Depends(get_remembered_body)]

Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
WaitMs = Annotated[int, Depends(bounded_wait)]
Cursor = Annotated[str | None, Query(max_length=2_000, pattern=ID_PATTERN, description="`next` of the page before")]
#: A text to search for.
SearchText = Annotated[str, Query(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
TimeMs = Annotated[int | None, Query(ge=0, le=2**53, description="Milliseconds since the epoch")]
Seq = Annotated[int, Query(ge=0, le=SEQ_MAX, description="`cursor` of the page before")]
IdPath = Annotated[str, Path(max_length=64, pattern=ID_PATTERN)]
IdQuery = Annotated[str | None, Query(max_length=64, pattern=ID_PATTERN)]
