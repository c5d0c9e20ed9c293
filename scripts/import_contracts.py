"""The import contract that goes by the names of files: routes, use cases and rows, in every domain of the hub.

`lint-imports` runs it with the contracts of pyproject.toml. Layers between the domains are there; this one is about the
kinds of file inside each: `routes.py` calls use cases, use cases call `rows.py`, and nothing calls back up.
"""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output

_HUB = "computepool.hub."
_ROUTES, _USE_CASES, _ROWS = "routes", "use cases", "rows"
#: What each kind must not import: other kinds, and libraries.
_FORBIDDEN: dict[str, set[str]] = {
    _ROUTES: {_ROWS, "sqlalchemy", "alembic", "psycopg"},
    _USE_CASES: {_ROUTES, "sqlalchemy", "alembic", "psycopg", "fastapi", "starlette"},
    _ROWS: {_ROUTES, _USE_CASES, "fastapi", "starlette"},
}
#: Rows that go by another name: what a transaction does at its end, and questions about the whole database.
_ALSO_ROWS = ("money.booking", "artifacts.inline_cleanup", "observability.consistency")
#: Wiring, which may import everything, and values without a kind, which everything may import.
_NO_KIND = ("app", "main", "openapi", "settings", "clock")


def kind_of(module: str) -> str | None:
    """The kind of a module of the hub; None for wiring, for values, and outside the hub."""
    if not module.startswith(_HUB):
        return None
    name = module.removeprefix(_HUB)
    domain, _, rest = name.partition(".")
    if domain in _NO_KIND or not rest and domain in ("db", "http", "loops"):
        return None
    if domain in ("http", "loops") or name.endswith("routes"):
        return _ROUTES
    if domain == "db" or name.endswith("rows") or name.startswith(_ALSO_ROWS):
        return _ROWS
    return _USE_CASES


class KindsContract(Contract):  # type: ignore[misc]
    """routes > use cases > rows, whatever the domain."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        broken = [
            f"{importer} ({kind}) imports {imported}"
            for importer in sorted(graph.modules)
            if (kind := kind_of(importer)) is not None
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if (kind_of(imported) or imported) in _FORBIDDEN[kind]
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        broken: Any = check.metadata["broken"]
        for line in broken:
            output.print_error(line)
