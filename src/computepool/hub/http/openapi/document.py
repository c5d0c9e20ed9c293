"""The API's OpenAPI document: what FastAPI derives from the routes, plus who may call them and how they refuse."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute

from computepool.hub.http.dependencies import COOKIE, Anyone
from computepool.hub.http.guard import guarded
from computepool.hub.http.openapi import examples, problems
from computepool.hub.http.policy import RoutePolicy, policies
from computepool.hub.identity.access import Action
from computepool.protocol.accounts import Problem

_TAGS = {
    "jobs": "Submit, watch, cancel, and ask why.",
    "groups": "Jobs that belong together, and their stream of results.",
    "mesh": "The pool as a whole, for those who watch it.",
    "nodes": "The machines of the pool, and what their owners want of them.",
    "artifacts": "Files, named by their SHA-256.",
    "accounts": "Accounts, keys and signing in.",
    "credits": "What you have, what jobs cost and earn, quotes and receipts.",
    "prices": "The versioned price table.",
    "market": "Spot prices, floors, and what a node earns.",
    "payouts": "Matured credits on their way to a bank account or a UPI id.",
    "events": "Every state transition: who, what, from, to, why, when.",
    "hub": "The pool as a whole.",
    "agent": "What the program on a node says to the hub.",
}
_SCHEMES = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "cp_<id>_<secret>_<checksum>",
        "description": "An API key; made with `pool keys create` or by signing in.",
    },
    "node": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A token that the node signs with its own Ed25519 key (EdDSA only, at most 15 minutes).",
    },
    "cookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "A browser's session, made by a sign-in link; refused when a request comes from another site.",
    },
}
_PERSON: list[dict[str, list[str]]] = [{"key": []}, {"cookie": []}]
_SECURITY: dict[Action, list[dict[str, list[str]]]] = {
    Action.ANYONE: [{}, *_PERSON],
    Action.NODE: [{"node": []}],
    Action.SIGNED_IN_OR_NODE: [*_PERSON, {"node": []}],
}
_WITH_ROLE = frozenset({Action.SUBMIT, Action.PROVIDE, Action.ADMIN})
_SAFE = frozenset({"GET", "HEAD"})

router = guarded(include_in_schema=False)


@router.get("/openapi.json")
async def openapi(request: Request, _caller: Anyone) -> Response:
    """By a thread: making it takes most of a second, in which no node would be heard."""
    return Response(await asyncio.to_thread(request.app.document), media_type="application/json")


def operation_id(route: APIRoute) -> str:
    """The function's own name: short, and what generated clients call their methods."""
    return route.name.strip("_")


class Api(FastAPI):
    """An application that documents its policies and refusals. The document is made once, when it is first asked for."""

    _written: bytes | None = None
    _writing = threading.Lock()

    def document(self) -> bytes:
        with self._writing:
            if self._written is None:
                self._written = json.dumps(self.openapi(), separators=(",", ":")).encode()
            return self._written

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self._complete(super().openapi())
        return super().openapi()

    def _complete(self, document: dict[str, Any]) -> None:
        document["tags"] = [{"name": name, "description": text} for name, text in _TAGS.items()]
        components = document["components"]
        components["securitySchemes"] = _SCHEMES
        schemas = components["schemas"]
        schemas["Problem"] = Problem.model_json_schema()
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for name, example in examples.REPLIES.items():
            schemas[name]["examples"] = [example]
        components["schemas"] = dict(sorted(schemas.items()))
        for policy in policies(self.routes):
            if policy.documented:
                operation = document["paths"][policy.path][policy.method.lower()]
                _name(operation)
                _describe(operation, policy)
                _show(operation)


def _name(operation: dict[str, Any]) -> None:
    """The first line of a route's docstring is its summary."""
    summary, _, more = operation["description"].partition("\n")
    operation["summary"] = summary.removesuffix(".")
    operation["description"] = " ".join(more.split())
    if not more:
        del operation["description"]


def _describe(operation: dict[str, Any], policy: RoutePolicy) -> None:
    assert policy.action is not None
    operation["security"] = _SECURITY.get(policy.action, _PERSON)
    if policy.scope is not None:
        operation["x-scope"] = policy.scope.value
    responses = operation["responses"]
    for status in _general(operation, policy):
        responses[str(status)] = problems.response(status)
    if policy.method == "HEAD":
        for response in responses.values():
            response.pop("content", None)
    operation["responses"] = dict(sorted(responses.items()))


def _show(operation: dict[str, Any]) -> None:
    """Examples of what to send, unless the route has its own."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body is not None and "examples" not in body:
        body["examples"] = examples.REQUESTS[body["schema"]["$ref"].rpartition("/")[2]]


def _general(operation: dict[str, Any], policy: RoutePolicy) -> set[int]:
    """What every route of this kind may refuse."""
    found = {503}
    if policy.action is not Action.NODE or "requestBody" in operation:
        found.add(429)
    if policy.action is not Action.ANYONE:
        found.add(401)
    by_cookie = policy.action not in (Action.ANYONE, Action.NODE)
    if policy.action in _WITH_ROLE or (by_cookie and policy.method not in _SAFE):
        found.add(403)
    if "requestBody" in operation:
        found.add(413)
    if "requestBody" in operation or operation.get("parameters"):
        found.add(422)
    return found
