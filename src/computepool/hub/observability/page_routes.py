"""Routes outside /api/v1: health, metrics, signing in, and a plain home page where the dashboard was not built."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import Query, Request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from starlette.responses import HTMLResponse, RedirectResponse, Response

from computepool.core.errors import ComputePoolError, RateLimited
from computepool.hub.http import dependencies
from computepool.hub.http.dependencies import Anyone, HubDep, refuse_cross_site, set_cookie
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.rate_limit import limit_sign_in
from computepool.hub.identity import keys, sign_in as identity
from computepool.hub.observability import events, queries
from computepool.protocol.accounts import SignInRequest

router = guarded_router(include_in_schema=False)

_STYLE = """
body{font:16px/1.6 system-ui,sans-serif;max-width:44rem;margin:12vh auto;padding:0 1.5rem;color:#1c2733;background:#fbfcfd}
h1{font-size:1.7rem;margin:0 0 .3rem}code,pre{font:14px ui-monospace,monospace;background:#eef2f6;border-radius:6px}
code{padding:.1em .35em}pre{padding:1rem;overflow:auto}button{font:inherit;padding:.55rem 1.4rem;border:0;border-radius:8px;
background:#1857d6;color:#fff;cursor:pointer}dl{display:flex;gap:2.5rem;flex-wrap:wrap}
dt{color:#5b6b7c}dd{margin:0;font-size:1.8rem;font-weight:600}
@media(prefers-color-scheme:dark){body{background:#10161d;color:#dde5ee}code,pre{background:#1b2530}dt{color:#93a4b5}button{background:#3d7bf0}}
"""
#: Allows this style sheet and nothing else.
_CSP = (
    f"default-src 'none'; style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width,initial-scale=1">
<style>{style}</style></head><body>{body}</body></html>"""

_SIGNED_IN = """<form method="post" action="{prefix}/signout"><p>Signed in as <strong>{name}</strong>.
<button>Sign out</button></p></form>"""


def _page(title: str, body: str, status: int = 200) -> HTMLResponse:
    headers = {"Content-Security-Policy": _CSP, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
    return HTMLResponse(_PAGE.format(title=escape(title), style=_STYLE, body=body), status, headers)


@router.get("/")
async def home(principal: Anyone, hub: HubDep) -> HTMLResponse:
    measures = await queries.measures(hub)
    shown = {
        "nodes": measures["nodes_online"],
        "waiting": measures["jobs_queued"],
        "running": measures["jobs_leased"] + measures["jobs_running"],
    }
    numbers = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in shown.items())
    prefix = hub.settings.prefix
    who = "<p>You are not signed in.</p>"
    if principal:
        who = _SIGNED_IN.format(name=escape(principal.name), prefix=prefix)
    body = f"""<h1>{escape(hub.settings.name)}</h1>{who}<dl>{numbers}</dl>
<pre>pool submit examples/hello.py --wait
pool nodes
pool node code        # lend another machine</pre>
<p>The API is described at <a href="{prefix}/api/v1/openapi.json">/api/v1/openapi.json</a>.</p>
<p>The dashboard was not built here: <code>make up</code> in a checkout builds it where Node.js 20 and npm are.</p>"""
    return _page(hub.settings.name, body)


@router.get("/signin")
async def sign_in_page(code: Annotated[str, Query(max_length=128)], hub: HubDep, _caller: Anyone) -> HTMLResponse:
    """A page with a button: programs that preview links must not use up the code."""
    body = f"""<h1>Sign in to {escape(hub.settings.name)}</h1><p>This link works once.</p>
<form method="post" action="{hub.settings.prefix}/signin"><input type="hidden" name="code" value="{escape(code, quote=True)}">
<button>Sign in</button></form>"""
    return _page("Sign in", body)


@router.post("/signin")
async def sign_in(request: Request, hub: HubDep, _caller: Anyone) -> Response:
    # Another site must not be able to sign a visitor in to an account that it controls.
    refuse_cross_site(request)
    code = "".join(parse_qs((await request.body()).decode("ascii", "replace")).get("code", [])[:1])
    try:
        with limit_sign_in(request, code):
            reply = await identity.sign_in(hub, SignInRequest(code=code, kind="cookie", name="browser"))
    except RateLimited:
        raise
    except (ComputePoolError, ValueError):
        retry = "<h1>This link no longer works</h1><p>It was already used or has expired. Ask for a new one.</p>"
        return _page("Sign in", retry, 422)
    response = RedirectResponse(f"{hub.settings.prefix}/", 303)
    set_cookie(request, response, reply.key or "")
    return response


@router.post("/signout")
async def sign_out(request: Request, principal: Anyone, hub: HubDep) -> Response:
    """End the session itself, wherever its cookie may have been copied to."""
    refuse_cross_site(request)
    if principal is not None:
        await keys.sign_out(hub, principal)
    response = RedirectResponse(f"{hub.settings.prefix}/", 303)
    dependencies.clear_cookie(request, response)
    return response


@router.get("/healthz")
async def healthz(hub: HubDep, _caller: Anyone) -> dict[str, str]:
    await events.newest(hub)
    return {"status": "ok"}


@router.get("/metrics")
async def metrics(hub: HubDep, _caller: Anyone) -> Response:
    """Gauges computed for each request, so that there is no state to maintain."""
    registry = CollectorRegistry()
    for name, value in (await queries.measures(hub)).items():
        Gauge(f"computepool_{name}", queries.MEASURES[name], registry=registry).set(value)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
