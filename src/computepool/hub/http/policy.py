"""Access policies of all routes, read from the wired application for the API's document and for the tests.

Nothing is decided here. A route without a policy fails the tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute, Mount

from computepool.hub.http.dependencies import Allow
from computepool.hub.identity.access import Action, Scope


@dataclass(frozen=True, slots=True)
class RoutePolicy:
    method: str
    path: str
    action: Action | None  #: None: not declared
    documented: bool
    scope: Scope | None = None  #: that a person's key must have


def policies(routes: Sequence[BaseRoute], prefix: str = "") -> Iterator[RoutePolicy]:
    """The policy of every method of every route, including those of mounted applications."""
    for context in iter_route_contexts(routes):
        route = context.original_route
        path = prefix + str(getattr(context, "path", None) or getattr(route, "path", ""))
        if isinstance(route, Mount) and route.routes:
            yield from policies(route.routes, path)
            continue
        declared = list(find_declared(getattr(context, "dependant", None)))
        found = {allow.action for allow in declared}
        for method in sorted(getattr(context, "methods", None) or getattr(route, "methods", None) or {"*"}):
            yield RoutePolicy(
                method=method,
                path=path,
                action=min(found) if len(found) == 1 else None,
                documented=bool(getattr(context, "include_in_schema", False)),
                scope=declared[0].scope(method) if len(found) == 1 else None,
            )


def methods_at(routes: Sequence[BaseRoute], path: str) -> list[str]:
    """The methods of all routes at this path."""
    templates = ((route, re.escape(route.path).replace(r"\{", "{").replace(r"\}", "}")) for route in policies(routes))
    return sorted({route.method for route, text in templates if re.fullmatch(re.sub("{[^{}]+}", "[^/]+", text), path)})


def find_declared(dependant: Dependant | None) -> Iterator[Allow]:
    if dependant is None:
        return
    if isinstance(dependant.call, Allow):
        yield dependant.call
    for inner in dependant.dependencies:
        yield from find_declared(inner)
