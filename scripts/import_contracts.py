"""The import contract of the hub, based on the names of files and folders. `lint-imports` runs it.

Within a domain, `routes.py` calls use cases, use cases call `rows.py`, and nothing calls upwards. Between domains, a use
case calls those of its own domain and of the layers below. Rows are one database, so any use case may read any of them.
The shared folders (`db/`, `http/`, `fleet/`) know no domain. There are no import cycles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

_HUB = "computepool.hub."
_ROUTES, _USE_CASES, _ROWS = "routes", "use cases", "rows"
#: Kinds and libraries that each kind must not import.
_FORBIDDEN: dict[str, set[str]] = {
    _ROUTES: {_ROWS, "sqlalchemy", "alembic", "psycopg"},
    _USE_CASES: {_ROUTES, "sqlalchemy", "alembic", "psycopg", "fastapi", "starlette"},
    _ROWS: {_ROUTES, _USE_CASES, "fastapi", "starlette"},
}
#: Rows with other names: the work at the end of a transaction, and queries about the whole database.
_ALSO_ROWS = ("money.booking", "artifacts.inline_cleanup", "observability.consistency")
#: Wiring, which may import everything, and values, which every module may import.
_NO_KIND = ("app", "fast_path", "main", "openapi", "settings", "clock")
#: Folders that every domain uses, with the parts of the hub that they may import themselves.
_SHARED = {
    "db": {"db", "clock", "settings"},
    "http": {"http", "identity", "context", "clock", "settings"},
    "fleet": {"fleet"},
}


def kind_of(module: str) -> str | None:
    """The kind of a module of the hub; None for wiring, values, and modules outside the hub."""
    if not module.startswith(_HUB):
        return None
    name = module.removeprefix(_HUB)
    domain, _, rest = name.partition(".")
    if domain in _NO_KIND or (not rest and domain in ("db", "http", "loops")):
        return None
    if domain in ("http", "loops") or name.endswith("routes"):
        return _ROUTES
    if domain == "db" or name.endswith("rows") or name.startswith(_ALSO_ROWS):
        return _ROWS
    return _USE_CASES


class DomainsContract(Contract):
    """`layers`: domains from the top; equal ones share a line."""

    layers = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        broken = [*_by_kind(graph), *_out_of_shared(graph), *self._upward(graph), *_circles(graph)]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def _upward(self, graph: ImportGraph) -> Iterator[str]:
        layers = cast(Sequence[str], self.layers)
        rank = {domain: at for at, line in enumerate(layers) for domain in line.split(" | ")}
        for importer, imported in _imports(graph):
            if not kind_of(importer) == kind_of(imported) == _USE_CASES:
                continue
            one, other = importer.removeprefix(_HUB), imported.removeprefix(_HUB)
            domain, below = one.split(".")[0], other.split(".")[0]
            if domain != below and rank.get(below, len(rank)) <= rank.get(domain, -1):
                yield f"{one} -> {other} goes up"

    def render_broken_contract(self, check: ContractCheck) -> None:
        broken: Any = check.metadata["broken"]
        for line in broken:
            output.print_error(line)


def _imports(graph: ImportGraph) -> Iterator[tuple[str, str]]:
    for importer in sorted(graph.modules):
        for imported in sorted(graph.find_modules_directly_imported_by(importer)):
            yield importer, imported


def _out_of_shared(graph: ImportGraph) -> Iterator[str]:
    """Shared folders must not import domains."""
    for importer, imported in _imports(graph):
        if not (importer.startswith(_HUB) and imported.startswith(_HUB)):
            continue
        shared, used = (name.removeprefix(_HUB).split(".")[0] for name in (importer, imported))
        if shared in _SHARED and used not in _SHARED[shared]:
            yield f"{importer} imports {imported}"


def _circles(graph: ImportGraph) -> Iterator[str]:
    """Remove modules that import none of the rest, or that none of the rest imports. Cycles remain."""
    left = {
        module: graph.find_modules_directly_imported_by(module) for module in graph.modules if module.startswith(_HUB)
    }
    while outside := [m for m in left if not left[m] & left.keys() or not any(m in left[n] for n in left)]:
        for module in outside:
            del left[module]
    for module in sorted(left):
        yield f"{module} imports {', '.join(sorted(left[module] & left.keys()))}, in a cycle"


def _by_kind(graph: ImportGraph) -> Iterator[str]:
    for importer, imported in _imports(graph):
        kind = kind_of(importer)
        if kind is not None and (kind_of(imported) or imported) in _FORBIDDEN[kind]:
            yield f"{importer} ({kind}) imports {imported}"
