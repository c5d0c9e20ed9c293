"""The API's OpenAPI document: what FastAPI derives from the routes, with their policies, errors and examples."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute

from computepool.hub.http.dependencies import COOKIE, Anyone
from computepool.hub.http.guard import guarded_router
from computepool.hub.http.openapi import examples, problems
from computepool.hub.http.policy import RoutePolicy, policies
from computepool.hub.identity.access import Action
from computepool.protocol.accounts import Problem

_TAGS = {
    "jobs": "Submit, watch, cancel and explain jobs.",
    "groups": "Jobs that belong together, and their stream of results.",
    "mesh": "Key figures, the map and recent activity of the pool.",
    "nodes": "The machines of the pool, and their owners' settings.",
    "artifacts": "Files, named by their SHA-256.",
    "volumes": "Named folders that outlive jobs, with versions.",
    "accounts": "Accounts, keys and signing in.",
    "credits": "Balances, costs, earnings, quotes and receipts.",
    "prices": "The versioned price table.",
    "market": "Spot prices, price floors and earnings of nodes.",
    "payouts": "Payouts of matured credits to a bank account or a UPI id.",
    "events": "Every state transition: who, what, from, to, why, when.",
    "hub": "The state of the hub itself.",
    "agent": "Requests of the program on a node.",
}
_SCHEMES = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "cp_<id>_<secret>_<checksum>",
        "description": "An API key, created with `pool keys create` or by signing in.",
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
        "description": "A browser's session, created by a sign-in link; refused if the request comes from another site.",
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

router = guarded_router(include_in_schema=False)


@router.get("/openapi.json")
async def openapi(request: Request, _caller: Anyone) -> Response:
    """On a thread: making the document takes most of a second, in which no node would be served."""
    return Response(await asyncio.to_thread(request.app.document), media_type="application/json")


def operation_id(route: APIRoute) -> str:
    """The function's own name: a short name for the methods of generated clients."""
    return route.name.strip("_")


class Api(FastAPI):
    """An application that documents its policies and errors. The document is made when it is first requested."""

    _document: bytes | None = None
    _document_lock = threading.Lock()

    def document(self) -> bytes:
        with self._document_lock:
            if self._document is None:
                self._document = json.dumps(self.openapi(), separators=(",", ":")).encode()
            return self._document

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
                _add_summary(operation)
                _add_policy(operation, policy)
                _add_examples(operation)


def _add_summary(operation: dict[str, Any]) -> None:
    """The first line of a route's docstring."""
    summary, _, more = operation["description"].partition("\n")
    operation["summary"] = summary.removesuffix(".")
    operation["description"] = " ".join(more.split())
    if not more:
        del operation["description"]


def _add_policy(operation: dict[str, Any], policy: RoutePolicy) -> None:
    assert policy.action is not None
    operation["security"] = _SECURITY.get(policy.action, _PERSON)
    if policy.scope is not None:
        operation["x-scope"] = policy.scope.value
    responses = operation["responses"]
    for status in _common_errors(operation, policy):
        responses[str(status)] = problems.response(status)
    if policy.method == "HEAD":
        for response in responses.values():
            response.pop("content", None)
    operation["responses"] = dict(sorted(responses.items()))


def _add_examples(operation: dict[str, Any]) -> None:
    """Examples of request bodies, unless the route has its own."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body is not None and "examples" not in body:
        body["examples"] = examples.REQUESTS[body["schema"]["$ref"].rpartition("/")[2]]


def _common_errors(operation: dict[str, Any], policy: RoutePolicy) -> set[int]:
    """The error statuses of every route of this kind."""
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
