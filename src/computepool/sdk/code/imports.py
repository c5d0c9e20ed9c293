"""Imports of code, found without running it."""

from __future__ import annotations

import ast
import dis
import types
import warnings

from computepool.sdk.code.source_lines import code_objects


def of_function(function: types.FunctionType) -> set[str]:
    """Names of the modules that the function and its inner functions import."""
    package = str(function.__globals__.get("__package__") or "")
    names: set[str] = set()
    for code in code_objects(function.__code__):
        loads: list[object] = []
        for step in dis.get_instructions(code):
            if step.opname == "IMPORT_NAME":
                level = loads[-2] if len(loads) >= 2 else 0  # pushed before the imported names
                names.add(package if level else str(step.argval))
            elif step.opname.startswith("LOAD_"):
                loads.append(step.argval)
    return names


def of_source(source: str) -> set[str]:
    """Names of all imported modules, except by relative imports, which stay within their package."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()  # the node will report the error
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names
