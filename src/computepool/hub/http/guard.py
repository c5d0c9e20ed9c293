"""Guarded routes: the caller is checked by the headers alone before the body is read, within the caller's limits.

FastAPI reads and parses a body before it calls a route's dependencies, such as its policy. Here the policy comes first, so
that a stranger's body is never read.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Message, Receive

from computepool.hub.http.bodies import Bodies, Caller, replay
from computepool.hub.http.policy import find_declared

#: Routes whose bodies carry work: programs, arguments, results, attempts of a node, keys of groups.
LARGE_BODIES = frozenset(
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
#: Routes that read their bodies piece by piece, within limits of their own.
STREAMED_BODIES = frozenset({"/artifacts/{digest}", "/attempts/{attempt_id}/gang/packets"})


class GuardedRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        [policy] = find_declared(self.dependant)

        async def handle_guarded(request: Request) -> Response:
            caller = await policy(request)
            if self.path in STREAMED_BODIES:
                return await handle(request)
            receive = self._body_of(request, caller)
            if self.body_field is not None:
                # Read here, because FastAPI would turn every error into a bad request.
                receive = replay((await receive())["body"], request.receive)
            return await handle(Request(request.scope, receive))

        return handle_guarded

    def _body_of(self, request: Request, caller: Caller) -> Receive:
        """A `receive` that reads the whole body when it is first called."""
        bodies: Bodies = request.app.state.bodies
        was_read = False

        async def receive() -> Message:
            nonlocal was_read
            if was_read:
                return await request.receive()
            was_read = True
            body = await bodies.read(request.scope, request.receive, caller, large=self.path in LARGE_BODIES)
            return {"type": "http.request", "body": body, "more_body": False}

        return receive


def guarded_router(**options: Any) -> APIRouter:
    """A router of guarded routes."""
    return APIRouter(route_class=GuardedRoute, **options)
