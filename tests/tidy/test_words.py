"""Retired words do not return as names in the code, on the wire, or in the docs."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.tree import ROOT, name, sources, tree

#: Retired word -> what to say instead. In no name, alone or as a part of it.
RETIRED = {
    "aftermath": "follow_ups",
    "beats": "loop_health",
    "behalf": "on_behalf_of",
    "cheated": "tampered",
    "closeness": "tolerance",
    "conduct": "submitter_reputation",
    "conducts": "submitter_reputations",
    "declaring": "capabilities",
    "desk": "batch",
    "doorman": "slow_client_guard",
    "dues": "newcomer_jobs",
    "errand": "hub_job",
    "errands": "hub_jobs",
    "exploring": "exploration",
    "fate": "outcome",
    "gatewords": "gate_messages",
    "guesses": "sign_in_limits",
    "guessing": "limited_sign_in",
    "hardwarewords": "hardware_messages",
    "heard": "reachable",
    "hears": "receives",
    "homecoming": "result_delivery",
    "homecomings": "result_deliveries",
    "hurry": "urgent",
    "insight": "safe_paths",
    "jobside": "job_runtime",
    "kick": "wake",
    "lone": "single_job",
    "meshes": "mesh_version",
    "noted": "pending_writes",
    "octets": "byte_length",
    "pace": "relative_speed",
    "paces": "relative_speed",
    "patience": "timeout",
    "patient": "guarded",
    "purse": "balance",
    "balances_of": "balances",
    "quotewords": "quote_messages",
    "receiving": "slow_client_guard",
    "ripe": "matured",
    "said": "what it is: reply, report, fields",
    "speaking": "in_request",
    "strike": "violation",
    "strikes": "violations",
    "struck": "penalised",
    "surprise": "error_response",
    "surroundings": "job_environment",
    "told": "what it is: message, notified",
    "trouble": "problem",
    "untidy": "what is wrong",
    "victims": "processes",
    "walls": "isolation_evidence",
    "willing": "available",
    "wish": "preference",
    "wishes": "preferences",
    "worn": "expired",
}
#: In no name alone: they say that something was done, and not what it is.
BARE = {
    "asked": "requested, or what it is: request",
    "hear": "receive",
    "say": "emit, or write",
    "tell": "notify",
    "wanted": "requested, or what it is: needs, filters",
}
#: Parts of names that are more than the word in them.
WHOLE = ("on_behalf_of",)
#: Plain English in a sentence, unlike in a name.
ENGLISH = {
    "beats",
    "behalf",
    "declaring",
    "guesses",
    "guessing",
    "heard",
    "lone",
    "meshes",
    "noted",
    "pace",
    "patient",
    "receiving",
    "said",
    "told",
    "walls",
    "worn",
}
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[./:-][A-Za-z0-9_{}]+)*")


def words_of(identifier: str) -> list[str]:
    """`_lookUp` and `LookUp` are the words look and up, as `look_up` is; so are the parts of a path or an event."""
    for whole in WHOLE:
        identifier = identifier.replace(whole, "")
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier)
    return [word for word in re.split(r"[^a-z0-9]+", words.lower()) if word]


def names_in(module: ast.Module) -> Iterator[str]:
    """Of classes, functions, attributes, parameters and variables; strings that could be a name on the wire or a column."""
    for node in ast.walk(module):
        match node:
            case ast.ClassDef(name=found) | ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found):
                yield found
            case ast.Name(id=found) | ast.Attribute(attr=found) | ast.arg(arg=found):
                yield found
            case ast.keyword(arg=str(found)):
                yield found
            case ast.Constant(value=str(found)) if re.search(r"[_./-]", found):
                if _IDENTIFIER.fullmatch(found.strip("/")):
                    yield found


def retired(module: ast.Module, stem: str) -> list[str]:
    found = []
    for each in sorted({stem, *names_in(module)}):
        words = words_of(each)
        found += [f"{each}: say {RETIRED[word]}, not {word}" for word in words if word in RETIRED]
        found += [f"{each}: say {BARE[word]}, not {word}" for word in words if words == [word] and word in BARE]
    return found


def test_no_retired_word_is_back() -> None:
    found = {name(path): retired(tree(path), path.stem) for path in sources() if "migrations" not in path.parts}
    assert not {path: words for path, words in found.items() if words}


def test_no_retired_word_is_in_the_docs() -> None:
    """The changelog alone names what things were called before."""
    pages = [*ROOT.glob("docs/*.md"), *(ROOT / page for page in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"))]
    assert len(pages) > 20
    found = {page.name: in_text(page) for page in pages}
    assert not {page: words for page, words in found.items() if words}


def test_no_retired_word_is_in_the_api() -> None:
    names = re.findall(r'"([a-zA-Z0-9_./{}-]+)"', (ROOT / "docs" / "openapi.json").read_text())
    found = {each for each in names for word in words_of(each) if word in RETIRED and word not in ENGLISH}
    assert not found


def in_text(page: Path) -> set[str]:
    words = set(re.findall(r"[a-z]+", page.read_text().lower()))
    return words & (RETIRED.keys() - ENGLISH)


def test_a_retired_word_is_found_wherever_it_names_something() -> None:
    planted = ast.parse(
        "class Doorman:\n"
        "    def _run_errands(self): ...\n"
        "async def homecoming(): ...\n"
        "def stripe(errand): ...\n"
        "row.strikes_lately = told\n"
        "emit(action='node.struck', on_behalf_of=True)\n"
        "Column('struck_at_ms')\n"
        "wanted = 'a sentence that was said'\n"
        "ram_wanted = 1\n"
    )
    assert retired(planted, "walls") == [
        "Doorman: say slow_client_guard, not doorman",
        "_run_errands: say hub_jobs, not errands",
        "errand: say hub_job, not errand",
        "homecoming: say result_delivery, not homecoming",
        "node.struck: say penalised, not struck",
        "strikes_lately: say violations, not strikes",
        "struck_at_ms: say penalised, not struck",
        "told: say what it is: message, notified, not told",
        "walls: say isolation_evidence, not walls",
        "wanted: say requested, or what it is: needs, filters, not wanted",
    ]


def test_module_docstrings_begin_with_a_noun_or_a_verb() -> None:
    begun = {name(path): (ast.get_docstring(tree(path)) or "").partition(" ")[0] for path in sources()}
    questions = {"How", "What", "Where", "Whether", "Which", "Who", "Whose", "Why"}
    assert not {path for path, word in begun.items() if word in questions and "migrations" not in path}


def test_one_class_name_is_one_thing() -> None:
    """Public classes only: a private one is never met outside of its module."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sources():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(name(path))
    assert not {each: paths for each, paths in modules.items() if len(paths) > 1}
