"""Files, functions and folders stay small. What grows too large is split."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.tree import files, name, sources, tree

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
FOLDER_MODULES_MAX = 15
POSITIONAL_MAX = 3

Function = ast.FunctionDef | ast.AsyncFunctionDef

#: These decorators leave the signature ours; any other one means that a framework calls the function.
PLAIN_DECORATORS = {"staticmethod", "classmethod", "property", "override", "cache", "cached_property", "contextmanager"}


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def decorators(function: Function) -> set[str]:
    bare = (item.func if isinstance(item, ast.Call) else item for item in function.decorator_list)
    return {ast.unparse(item).rpartition(".")[2] for item in bare}


def positional(function: Function) -> int:
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def test_files_are_short() -> None:
    lengths = {name(path): len(path.read_text().splitlines()) for path in files() if path.suffix == ".py"}
    assert not {path: lines for path, lines in lengths.items() if lines > FILE_LINES_MAX}


def test_folders_are_small() -> None:
    modules = Counter(name(path.parent) for path in sources() if path.name != "__init__.py")
    assert not {folder: count for folder, count in modules.items() if count > FOLDER_MODULES_MAX}


def test_functions_are_short() -> None:
    long = {
        f"{name(path)}:{function.lineno} {function.name}": lines
        for path in sources()
        for function in functions(path)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES_MAX
    }
    assert not long


def test_functions_take_at_most_three_positional_arguments() -> None:
    many = [
        f"{name(path)}:{function.lineno} {function.name} takes {positional(function)}"
        for path in sources()
        for function in functions(path)
        if decorators(function) <= PLAIN_DECORATORS and positional(function) > POSITIONAL_MAX
    ]
    assert not many
