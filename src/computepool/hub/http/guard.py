"""The way into every route: first who is calling, by the headers alone; then the body, as long as this caller may send one.

FastAPI reads and parses a body before it asks a route's dependencies, the policy among them. Here the policy is asked first,
so a stranger's body is not read at all.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Message, Receive

from computepool.hub.http.bodies import Bodies, Caller, replay
from computepool.hub.http.policy import declared_by

#: What carries work: programs, arguments, results, what a node holds, keys of groups.
LARGE = frozenset(
    {
        "/jobs",
        "/jobs/preview",
        "/next",
        "/heartbeat",
        "/complete",
        "/logs",
        "/checkpoint",
        "/groups",
        "/groups/{group_id}/keys",
        "/groups/{group_id}/reports",
        "/attempts/{attempt_id}/jobs",
        "/result-deliveries/{group_id}/arrival",
    }
)
#: Read by its route, piece by piece, under limits of its own.
STREAMED = frozenset({"/artifacts/{digest}"})


class GuardedRoute(APIRoute):
    """A route whose policy is asked before anything is read of the body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        [policy] = declared_by(self.dependant)

        async def guarded(request: Request) -> Response:
            caller = await policy(request)
            if self.path in STREAMED:
                return await handle(request)
            receive = self._body_of(request, caller)
            if self.body_field is not None:
                # Before FastAPI reads it, which would call every refusal a bad request.
                receive = replay((await receive())["body"], request.receive)
            return await handle(Request(request.scope, receive))

        return guarded

    def _body_of(self, request: Request, caller: Caller) -> Receive:
        """The whole body, when somebody asks for it."""
        bodies: Bodies = request.app.state.bodies
        was_read = False

        async def receive() -> Message:
            nonlocal was_read
            if was_read:
                return await request.receive()
            was_read = True
            body = await bodies.read(request.scope, request.receive, caller, large=self.path in LARGE)
            return {"type": "http.request", "body": body, "more_body": False}

        return receive


def guarded(**options: Any) -> APIRouter:
    """A router of such routes."""
    return APIRouter(route_class=GuardedRoute, **options)
