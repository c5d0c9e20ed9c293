"""Names are words of the field: a word that was retired does not come back as a module, a class or a function."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.tidy.tree import name, sources, tree

#: Retired word -> what to say instead.
RETIRED = {
    "aftermath": "follow_ups",
    "beats": "loop_health",
    "closeness": "tolerance",
    "declaring": "capabilities",
    "doorman": "slow_client_guard",
    "errand": "hub_job",
    "errands": "hub_jobs",
    "exploring": "exploration",
    "gatewords": "gate_messages",
    "hardwarewords": "hardware_messages",
    "insight": "safe_paths",
    "jobside": "job_runtime",
    "lone": "single_job",
    "meshes": "mesh_version",
    "paces": "relative_speed",
    "patient": "guarded",
    "purse": "balance",
    "purses": "balances",
    "quotewords": "quote_messages",
    "receiving": "slow_client_guard",
    "ripe": "matured",
    "strikes": "violations",
    "struck": "penalised",
    "surroundings": "job_environment",
    "walls": "isolation_evidence",
    "conduct": "submitter_reputation",
    "homecoming": "result_delivery",
}
#: Names of the API document: models, and routes whose names are operation ids.
IN_THE_API = {"ConductView", "HomecomingView", "get_homecoming", "get_homecoming_items"}


def words_of(identifier: str) -> list[str]:
    """`_lookUp` and `LookUp` are the words look and up, as `look_up` is."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower().strip("_").split("_")


def defined(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def retired(module: ast.Module, stem: str) -> list[str]:
    found = [each for each in (stem, *defined(module)) if each not in IN_THE_API]
    return [
        f"{each}: say {RETIRED[word]}, not {word}"
        for each in found
        for word in words_of(each)
        if word in RETIRED
    ]


def test_no_retired_word_is_back() -> None:
    found = {
        name(path): retired(tree(path), path.stem) for path in sources() if "migrations" not in path.parts
    }
    assert not {path: words for path, words in found.items() if words}


def test_a_retired_word_is_found_wherever_it_names_something() -> None:
    planted = ast.parse(
        "class Doorman:\n"
        "    def _run_errands(self): ...\n"
        "async def homecoming(): ...\n"
        "class HomecomingView: ...\n"
        "def stripe(errand): ...\n"
    )
    assert retired(planted, "walls") == [
        "walls: say isolation_evidence, not walls",
        "Doorman: say slow_client_guard, not doorman",
        "homecoming: say result_delivery, not homecoming",
        "_run_errands: say hub_jobs, not errands",
    ]


def test_one_class_name_is_one_thing() -> None:
    """Public classes only: a private one is never met outside of its module."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sources():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(name(path))
    assert not {each: paths for each, paths in modules.items() if len(paths) > 1}
