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
#: Snapshots have a copy of these.
COPIED = frozenset({"StorageUsage", "LeaseRules"})


def _classes_of_memory() -> frozenset[str]:
    """Classes of the domains' states, and of the live nodes."""
    files = [*(SRC / "hub").glob("*/state.py"), SRC / "hub/fleet/registry.py"]
    found = {node.name for path in files for node in tree(path).body if isinstance(node, ast.ClassDef)}
    assert {"JobsState", "NodeSession", "QuotaUse", "Lane"} <= found
    return frozenset(found - COPIED)


#: What only the event loop may touch, by its type.
LIVE = (
    _classes_of_memory()
    | set(STATES.values())
    | {"Hub", "Fleet", "Backlog", "Queue", "Market", "Dispatcher", "Authenticator"}
)
_HOLDERS = {"hub", "registry", "fleet", "store", "queue", "backlog", "lanes", "market"}
#: What holds one of these, by the name of its attribute.
HOLDERS = frozenset(_HOLDERS | {f"_{name}" for name in _HOLDERS})
#: Parts of it that never change.
VALUES = frozenset({"settings", "hub_id", "table"})
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
    """A part of the hub's memory: a domain's state, a holder, or what one of them has or finds."""
    if isinstance(value, ast.Call):  # `registry.get(node_id)`; what other methods return is a value
        return isinstance(value.func, ast.Attribute) and value.func.attr == "get" and _is_holder(value.func.value, live)
    if isinstance(value, ast.Subscript):
        return _is_holder(value.value, live)
    if isinstance(value, ast.ListComp):  # `[session for session in registry.sessions if …]`
        [first, *_] = value.generators
        of_live = isinstance(first.iter, ast.Attribute) and ast.unparse(first.iter.value) in live
        return ast.unparse(value.elt) == ast.unparse(first.target) and (of_live or _is_holder(first.iter, live))
    if not isinstance(value, ast.Attribute) or value.attr in VALUES:
        return False
    if isinstance(value.value, ast.Name) and value.value.id in live:
        return value.attr in STATES or value.attr in HOLDERS
    return value.attr in HOLDERS or _is_holder(value.value, live)


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
        "class Work:\n    def unit(self, tx: Tx) -> int:\n        return len(self._fleet)",
        "class Work:\n    hub: Hub\n    tx: Tx",
        "def unit(tx: Tx, lane: Lane) -> None: ...",
        "def unit(tx: Tx, attempts: dict[str, WatchedAttempt]) -> None: ...",
        "def use(hub: Hub) -> None:\n    one = hub.nodes.registry.get('n')\n    def unit(tx: Tx) -> int:\n        return one.ms",
        "def use(hub: Hub) -> None:\n    uses = hub.jobs.quota_uses\n    def unit(tx: Tx) -> int:\n        return len(uses)",
        "def use(some: Registry) -> None:\n    all = [one for one in some.sessions]\n    def unit(tx: Tx):\n        return all",
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
