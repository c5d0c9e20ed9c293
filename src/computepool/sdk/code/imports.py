"""Imports of code, found by looking at it; nothing is run."""

from __future__ import annotations

import ast
import dis
import types
import warnings


def of_function(function: types.FunctionType) -> set[str]:
    """Names of modules that its body imports, also in functions inside it."""
    package = str(function.__globals__.get("__package__") or "")
    return _of_code(function.__code__, package)


def of_source(source: str) -> set[str]:
    """Of the whole text, at whatever depth. Relative ones are left out: they stay within their package."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()  # a mistake that a node will show
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


def _of_code(code: types.CodeType, package: str) -> set[str]:
    names: set[str] = set()
    loads: list[object] = []
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            level = loads[-2] if len(loads) >= 2 else 0  # pushed before the names that are taken from it
            names.add(package if level else str(step.argval))
        elif step.opname.startswith("LOAD_"):
            loads.append(step.argval)
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            names |= _of_code(part, package)
    return names
