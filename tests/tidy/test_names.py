"""Files are named after what they own, and packages hide nothing in their `__init__.py`."""

from __future__ import annotations

import ast
import re

from tests.tidy.tree import SRC, files, name, sources, tree

BANNED_STEMS = {"util", "utils", "helper", "helpers", "common", "manager", "misc", "base_classes"}
#: Participles that do not end in -ed or -ing.
IRREGULAR = {"built", "chosen", "done", "drawn", "found", "given", "gone", "held", "hidden", "kept", "known", "left"}
IRREGULAR |= {"lost", "made", "paid", "seen", "sent", "shown", "spent", "taken", "told", "worn", "written"}
#: Verbs and nouns that look like participles.
NO_PARTICIPLES = {"feed", "need", "speed", "succeed", "greeting", "ranking", "setting", "warning"}
#: Names that jobs and callers use: those of `concurrent.futures`, and the SDK's own.
PUBLIC = {"done", "running", "restored", "stopping"}
INIT_WITH_NAMES = {SRC / "__init__.py", SRC / "sdk" / "__init__.py"}


def test_no_file_is_called_after_nothing() -> None:
    code = {".py", ".ts", ".tsx", ".sh"}
    assert not [name(path) for path in files() if path.suffix in code and path.stem.lower() in BANNED_STEMS]


def test_init_files_are_empty() -> None:
    inits = [path for path in sources() if path.name == "__init__.py" and path not in INIT_WITH_NAMES]
    assert not [name(path) for path in inits if path.read_text().strip()]


def test_every_package_has_an_init_file() -> None:
    folders = {path.parent for path in sources()}
    assert not [name(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()]


def bare_participles(module: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions, except properties, whose whole name is a participle: it tells neither what they do nor what they return."""
    functions = [node for node in ast.walk(module) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    found = []
    for function in functions:
        word = function.name.strip("_")
        participle = word in IRREGULAR or re.fullmatch(r"[a-z0-9]+(ed|ing)", word) is not None
        is_property = any(ast.unparse(mark).endswith("property") for mark in function.decorator_list)
        if participle and not is_property and word not in NO_PARTICIPLES and function.name not in PUBLIC:
            found.append(function)
    return found


def test_functions_are_named_after_what_they_do_or_return() -> None:
    assert not [
        f"{name(path)}:{function.lineno} {function.name}"
        for path in sources()
        for function in bare_participles(tree(path))
    ]


def test_a_bare_participle_is_found() -> None:
    planted = """
def _kept(): ...
async def waiting(): ...
class Queue:
    def submitted(self): ...
    @property
    def delayed(self): ...
def is_kept(): ...
def waiting_jobs(): ...
def warning(): ...
def running(): ...
"""
    assert [function.name for function in bare_participles(ast.parse(planted))] == ["_kept", "waiting", "submitted"]


def test_public_names_exist() -> None:
    """What `computepool` and `computepool.sdk` promise in `__all__` can really be imported."""
    import computepool
    import computepool.sdk

    for package in (computepool, computepool.sdk):
        missing = [word for word in getattr(package, "__all__", ()) if not hasattr(package, word)]
        assert not missing, package.__name__
