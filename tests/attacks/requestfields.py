"""Every string that a request may carry, found in the API's own description, so that new fields are covered."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from computepool.hub.app import create_api

#: Places in a body: names of fields, 0 for an item of a list, `*` for a value of a table, `=` for its name.
DOCUMENT: dict[str, Any] = create_api().openapi()
Place = tuple[str | int, ...]
_KEY = "k"


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    name: str
    schema: dict[str, Any]
    example: Any
    by_node: bool


def operations() -> list[Operation]:
    found = []
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body is not None:
                example = next(iter(body["examples"].values()))["value"]
                by_node = operation["security"] == [{"node": []}]
                name = operation["operationId"]
                found.append(Operation(method.upper(), path, name, body["schema"], example, by_node))
    return found


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def places(schema: dict[str, Any], at: Place = ()) -> Iterator[Place]:
    schema = _resolved(schema)
    for choice in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(choice, []):
            yield from places(one, at)
    kind = schema.get("type")
    if kind == "string":
        yield at
    elif kind == "array":
        yield from places(schema.get("items", {}), (*at, 0))
    elif kind == "object":
        for name, inner in schema.get("properties", {}).items():
            yield from places(inner, (*at, name))
        tables = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
        for inner in tables:
            if isinstance(inner, dict):
                yield from places(inner, (*at, "*"))
                yield (*at, "=")


def planted(operation: Operation, at: Place, word: str, *, into: Any = None) -> Any:
    """The example with the word at this place; missing parents are created, as small as possible."""
    found = copy.deepcopy(operation.example if into is None else into)
    return _set(found, operation.schema, at, word)


def _set(value: Any, schema: dict[str, Any], at: Place, word: str) -> Any:
    if not at:
        return word
    schema = _chosen(schema, at[0])
    step, rest = at[0], at[1:]
    if step == 0:
        items = list(value) if isinstance(value, list) and value else [_smallest(schema["items"])]
        items[0] = _set(items[0], schema["items"], rest, word)
        return items
    table = dict(value) if isinstance(value, dict) else _smallest(schema)
    if step == "=":
        return {word: _smallest(_inner(schema))}
    inner = _inner(schema) if step == "*" else schema["properties"][step]
    name = _KEY if step == "*" else step
    table[name] = _set(table.get(name), inner, rest, word)
    return table


def _inner(schema: dict[str, Any]) -> dict[str, Any]:
    tables = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
    return next(inner for inner in tables if isinstance(inner, dict))


def _chosen(schema: dict[str, Any], step: str | int) -> dict[str, Any]:
    """The alternative of the schema that has such a step."""
    schema = _resolved(schema)
    for choice in ("anyOf", "oneOf", "allOf"):
        for one in map(_resolved, schema.get(choice, [])):
            wanted = "array" if step == 0 else "object"
            if one.get("type") == wanted:
                return one
    return schema


def _smallest(schema: dict[str, Any]) -> Any:
    schema = _resolved(schema)
    if "default" in schema:
        return copy.deepcopy(schema["default"])
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {name: _smallest(schema["properties"][name]) for name in schema.get("required", [])}
    if kind == "array":
        return []
    if kind in ("integer", "number"):
        return max(1, schema.get("minimum", 1))
    if kind == "boolean":
        return False
    return _text(schema.get("pattern", ""))


def _text(pattern: str) -> str:
    known = {"^[0-9a-f]{64}$": "0" * 64, r"^3\.\d{1,2}$": "3.11", "^(stdout|stderr)$": "stdout"}
    return known.get(pattern, "x")
