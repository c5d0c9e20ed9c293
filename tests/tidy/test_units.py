"""Units of work run on the writer thread, so they must not see the hub's memory, which the event loop changes.

What takes a `Tx` is such a unit, or called by one. It is given a `Snapshot`, as a `JobTx` has one, or values. See
hub/snapshot.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.tree import SRC, name, sources, tree


def _fields_of_hub() -> dict[str, str]:
    """By name, the types of what the hub has; all but two belong to the event loop."""
    [hub] = [
        node for node in tree(SRC / "hub/context.py").body if isinstance(node, ast.ClassDef) and node.name == "Hub"
    ]
    fields = [node for node in hub.body if isinstance(node, ast.AnnAssign)]
    found = {ast.unparse(field.target): ast.unparse(field.annotation) for field in fields}
    return {name: type_ for name, type_ in found.items() if name not in {"settings", "clock"}}


STATES = _fields_of_hub()
TRANSACTIONS = frozenset({"Tx", "JobTx"})
#: What only the event loop may touch, by its type.
LIVE = frozenset(STATES.values()) | {
    "Hub", "Registry", "NodeSession", "LiveAttempt", "Fleet", "Backlog", "Queue", "Market", "Dispatcher", "Authenticator",
}  # fmt: skip
#: What holds one of these, by the name of its attribute.
HOLDERS = frozenset({"hub", "_hub", "registry", "store", "queue", "_queue", "backlog", "market"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
#: It runs the units.
WRITER = SRC / "hub" / "db" / "session.py"


def violations(module: ast.Module) -> list[str]:
    """A line for each unit that could reach what belongs to the event loop."""
    return [*_functions(module, live=frozenset()), *_classes(module)]


def _functions(node: ast.AST, *, live: frozenset[str]) -> Iterator[str]:
    """`live`: names of what belongs to the event loop, in the functions around."""
    for child in ast.iter_child_nodes(node):
        inner = live
        if isinstance(child, _Function):
            arguments = _arguments(child)
            own = {each.arg for each in arguments if _types(each.annotation) & LIVE}
            if isinstance(child, ast.Lambda):
                own |= {each.arg for each in arguments if each.arg == "hub"}
            inner = (live - {each.arg for each in arguments}) | own
            inner |= _assigned(child, inner)
            if any(_types(each.annotation) & TRANSACTIONS or each.arg == "tx" for each in arguments):
                seen = sorted(own | _reached(child, inner))
                yield from (f"{child.lineno}: {_title(child)} sees {what}" for what in seen)
                continue
        yield from _functions(child, live=inner)


def _classes(module: ast.Module) -> Iterator[str]:
    """An object that has a transaction must have nothing of the event loop's beside it."""
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef):
            fields = [_types(each.annotation) for each in node.body if isinstance(each, ast.AnnAssign)]
            found = frozenset[str]().union(*fields)
            if found & TRANSACTIONS and found & LIVE:
                yield f"{node.lineno}: {node.name} has a transaction and {', '.join(sorted(found & LIVE))}"


def _arguments(function: _Function) -> list[ast.arg]:
    given = function.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]


def _types(annotation: ast.expr | None) -> frozenset[str]:
    """What it may be, or have in it; a function that is handed one later is none."""
    names = {each.id for each in ast.walk(annotation or ast.Pass()) if isinstance(each, ast.Name)}
    return frozenset() if "Callable" in names else frozenset(names)


def _assigned(function: _Function, live: frozenset[str]) -> set[str]:
    """Other names that the function gives to it: `hub = self._hub`, `registry, money = hub.nodes.registry, hub.money`."""
    body = () if isinstance(function, ast.Lambda) else function.body
    return {
        name.id
        for statement in body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        for name, value in _pairs(target, statement.value)
        if isinstance(name, ast.Name) and _is_holder(value, live)
    }


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def _is_holder(value: ast.expr, live: frozenset[str]) -> bool:
    if not isinstance(value, ast.Attribute):
        return False
    of_hub = isinstance(value.value, ast.Name) and value.value.id in live and value.attr in STATES
    return of_hub or value.attr in HOLDERS


def _reached(function: _Function, live: frozenset[str]) -> set[str]:
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id in live:
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and node.attr in HOLDERS:
            found.add(ast.unparse(node))
    return found


def _title(function: _Function) -> str:
    return "lambda" if isinstance(function, ast.Lambda) else function.name


def units() -> list[Path]:
    return [path for path in sources() if path.is_relative_to(SRC / "hub") and path != WRITER]


def test_units_of_work_do_not_see_the_hub() -> None:
    found = [f"{name(path)}:{line}" for path in units() for line in violations(tree(path))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "planted",
    [
        "def unit(hub: Hub, tx: Tx) -> None: ...",
        "def unit(tx: Tx, *, session: NodeSession | None) -> None: ...",
        "async def use(hub: Hub) -> None:\n    def unit(tx: Tx) -> int:\n        return len(hub.artifacts.usage)",
        "def use(hub: Hub) -> None:\n    money, now = hub.money, 1\n    def unit(tx: Tx) -> int:\n        return money.matured",
        "def unit(tx: Tx, state: MoneyState) -> None: ...",
        "async def use(hub: Hub) -> None:\n    await hub.store.write(lambda tx: unit(hub, tx))",
        "async def use(found: Hub) -> None:\n    await found.store.write(lambda tx: unit(found, tx))",
        "def use(self) -> None:\n    hub = self._hub\n    def unit(tx: Tx) -> int:\n        return hub.now_ms()",
        "class Work:\n    def unit(self, tx: Tx) -> int:\n        return self._hub.registry.lease_ms",
        "class Work:\n    hub: Hub\n    tx: Tx",
        "class Work:\n    registry: Registry\n    unit: JobTx",
    ],
)
def test_a_planted_violation_is_found(planted: str) -> None:
    assert violations(ast.parse(planted))


@pytest.mark.parametrize(
    "fine",
    [
        "def unit(tx: Tx, snapshot: Snapshot) -> int:\n    return snapshot.settings.recheck_max",
        "async def use(hub: Hub) -> None:\n    most = hub.settings.most\n    await hub.store.write(lambda tx: unit(tx, most))",
    ],
)
def test_snapshots_and_values_are_allowed(fine: str) -> None:
    assert not violations(ast.parse(fine))
