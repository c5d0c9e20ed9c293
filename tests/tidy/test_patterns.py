"""Regular expressions take time in proportion to the text, whoever wrote it.

Python's own engine backtracks. It cannot be made to where no two unlimited repetitions compete for the same characters: none
inside another, and none that another can reach by giving back what it took. And a search begins anew at every place: what it
scans in vain from one place, it must not scan again from the next. Models' patterns (`pattern=`) are run by pydantic's
engine, which never backtracks.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from re import (
    _constants as op,  # type: ignore[attr-defined]
    _parser as parser,  # type: ignore[attr-defined]
)
from typing import Any

import pytest

from computepool.core.trust import tiers
from tests.tidy.tree import SRC, name, sources, tree

#: From so many on, a repetition is as good as unlimited.
MANY = 300
#: The last one stands for all that are no bytes.
ALPHABET = frozenset(range(257))
_SEARCHES = {"search", "sub", "subn", "split", "findall", "finditer"}
_CALLS = {"compile", "match", "fullmatch", *_SEARCHES}
#: Put together when they run: from the routes' own paths, for the dashboard's own files, and from a table that is looked
#: at below.
_MADE = {f"src/computepool/{each}" for each in ("hub/http/policy.py", "hub/http/dashboard.py", "core/trust/tiers.py")}
_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w",
    op.CATEGORY_NOT_WORD: r"\W",
}
_GIVES_BACK = (op.MAX_REPEAT, op.MIN_REPEAT)
_REPEATS = (*_GIVES_BACK, op.POSSESSIVE_REPEAT)
_ZERO_WIDTH = (op.AT, op.ASSERT, op.ASSERT_NOT)
Items = list[Any]


def competing(pattern: str | bytes, flags: int = 0) -> str:
    """What two repetitions compete for, or nothing."""
    return _among(list(parser.parse(pattern, flags)), [])


def _among(items: Items, after: Items) -> str:
    """In one sequence, and what comes after it: of each unlimited repetition, with those it reaches by giving back."""
    for place, (kind, argument) in enumerate(items):
        rest = items[place + 1 :] + after
        for part in _parts(kind, argument):
            once_more = part if kind in _REPEATS and argument[1] > 1 else []
            if found := _among(part, once_more + rest):
                return found
        if kind not in _GIVES_BACK or argument[1] < MANY:
            continue
        inner = list(argument[2])
        if any(_has_repeat(*item) for item in inner):
            return f"a repetition inside a repetition: {inner}"
        taken = _all_characters(inner)
        if shared := taken & _reached(rest, taken)[0]:
            return f"repetitions of {''.join(map(chr, sorted(shared)))!a:.40}"
    return ""


def _reached(items: Items, taken: frozenset[int]) -> tuple[frozenset[int], bool]:
    """What unlimited repetitions take that come before anything which must not be one of the taken characters; and whether
    the end is reached, too.
    """
    found: frozenset[int] = frozenset()
    for kind, argument in items:
        inner = [_reached(part, taken) for part in _parts(kind, argument)]
        found = found.union(*(characters for characters, _ in inner))
        if kind in _REPEATS and argument[1] >= MANY:
            found |= _all_characters(list(argument[2]))
        if kind in _ZERO_WIDTH or (kind in _REPEATS and argument[0] == 0):
            continue
        if not (any(ends for _, ends in inner) if inner else _characters((kind, argument)) & taken):
            return found, False
    return found, True


def rescanning(pattern: str | bytes, flags: int = 0) -> str:
    """What a search scans in vain from many places, or nothing."""
    return _scanning(list(parser.parse(pattern, flags)))


def _scanning(items: Items, first: frozenset[int] | None = None, barred: frozenset[int] = frozenset()) -> str:
    """`first`: how a match begins, if with something before these; `barred`: what stands before no match."""
    for place, (kind, argument) in enumerate(items):
        rest = items[place + 1 :]
        if kind is op.AT and argument in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
            return ""
        if kind is op.AT and argument is op.AT_BOUNDARY:
            barred |= _class([(op.CATEGORY, op.CATEGORY_WORD)])
        elif kind is op.ASSERT_NOT and argument[0] < 0:
            barred |= _all_characters(list(argument[1]))
        elif kind in _REPEATS and argument[1] >= MANY:
            taken = _all_characters(list(argument[2]))
            if (taken if first is None else first) & taken - barred and _may_fail(rest, taken):
                return f"from many places: {''.join(map(chr, sorted(taken)))!a:.40}"
        if kind not in _ZERO_WIDTH and (parts := list(_parts(kind, argument))):
            ways = [*parts, []] if kind in _REPEATS and argument[0] == 0 else parts
            found = (_scanning(way + rest, first, barred) for way in ways)
            return next(filter(None, found), "") if kind not in _REPEATS or argument[1] < MANY else ""
        if kind not in _ZERO_WIDTH and first is None:
            first = _characters((kind, argument))
    return ""


def _may_fail(items: Items, taken: frozenset[int]) -> bool:
    """Not where nothing has to follow, or the end of the text will do and is always reached."""
    for kind, argument in items:
        parts = list(_parts(kind, argument))
        at_end = taken == ALPHABET and any(part == [(op.AT, op.AT_END)] for part in parts)
        if kind in _ZERO_WIDTH or not (at_end or _may_be_empty(kind, argument)):
            return True
    return False


def _may_be_empty(kind: Any, argument: Any) -> bool:
    if kind in _REPEATS:
        return bool(argument[0] == 0)
    return any(all(_may_be_empty(*item) for item in part) for part in _parts(kind, argument))


def _parts(kind: Any, argument: Any) -> Iterator[Items]:
    if kind in _REPEATS:
        yield list(argument[2])
    elif kind is op.SUBPATTERN:
        yield list(argument[3])
    elif kind is op.ATOMIC_GROUP:
        yield list(argument)
    elif kind is op.BRANCH:
        yield from map(list, argument[1])
    elif kind in (op.ASSERT, op.ASSERT_NOT):
        yield list(argument[1])


def _has_repeat(kind: Any, argument: Any) -> bool:
    if kind in _REPEATS and argument[1] >= MANY:
        return True
    return any(_has_repeat(*item) for part in _parts(kind, argument) for item in part)


def _all_characters(items: Items) -> frozenset[int]:
    """That a sequence may have, anywhere."""
    return frozenset().union(*map(_characters, items))


def _characters(item: Any) -> frozenset[int]:
    kind, argument = item
    if kind in _ZERO_WIDTH:
        return frozenset()
    if parts := list(_parts(kind, argument)):
        return frozenset().union(*map(_all_characters, parts))
    if kind is op.LITERAL:
        return frozenset({min(argument, 256)})
    if kind is op.NOT_LITERAL:
        return ALPHABET - {argument}
    return _class(argument) if kind is op.IN else ALPHABET


@cache
def _category(category: Any) -> frozenset[int]:
    return frozenset(code for code in ALPHABET if re.match(_CATEGORIES[category], chr(code)))


def _class(members: Items) -> frozenset[int]:
    found: frozenset[int] = frozenset()
    for kind, argument in members:
        if kind is op.LITERAL:
            found |= {min(argument, 256)}
        elif kind is op.RANGE:
            found |= frozenset(range(min(argument[0], 256), min(argument[1], 256) + 1))
        elif kind is op.CATEGORY:
            found |= _category(argument)
    return ALPHABET - found if members[0][0] is op.NEGATE else found


def patterns(path: Path) -> Iterator[tuple[str, str | bytes | None, bool]]:
    """Every pattern that Python's engine gets: its place, its text (None where only a run makes it), whether it searches."""
    methods: dict[str, set[str]] = {}
    calls, names = [], {}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[id(node.value)] = node.targets[0].id
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[id(node.value)] = node.target.id
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if isinstance(node.func.value, ast.Name):
            methods.setdefault(node.func.value.id, set()).add(node.func.attr)
            if node.func.value.id == "re" and node.func.attr in _CALLS:
                calls.append((node, node.func.attr))
    for node, method in calls:
        used = methods.get(names.get(id(node), ""), set()) if method == "compile" else {method}
        where = f"{name(path)}:{node.lineno}:{node.col_offset}"
        yield where, _value(path, node.args[0]), not used.isdisjoint(_SEARCHES)


def _value(path: Path, node: ast.expr) -> str | bytes | None:
    """In its module, where the constants have names."""
    module = ".".join(("computepool", *path.relative_to(SRC).with_suffix("").parts)).removesuffix(".__init__")
    expression = compile(ast.Expression(node), str(path), "eval")
    try:
        found = eval(expression, vars(importlib.import_module(module)).copy())
    except NameError:
        return None
    return found if isinstance(found, str | bytes) else None


def test_no_pattern_can_be_made_to_backtrack() -> None:
    found = [each for path in sources() for each in patterns(path)]
    assert len(found) > 40
    assert {place.partition(":")[0] for place, text, _ in found if text is None} == _MADE
    cards = [(pattern, pattern, True) for pattern, _ in tiers.GPU_PATTERNS]
    families = [(pattern, pattern, False) for pattern, _ in tiers._FAMILIES]
    listed = [*found, *cards, *families]
    known = [(place, text, searches) for place, text, searches in listed if text is not None]
    assert {place: why for place, text, _ in known if (why := competing(text))} == {}
    assert {place: why for place, text, searches in known if searches and (why := rescanning(text))} == {}


@pytest.mark.parametrize(
    "bad",
    [
        "(a+)+b", "(a*b?)*", "(a|b+)+", r"\s*x?\s*$", r"\d+\.?\d*$", ".*.*x", r"\w+[a-z_]*@", r"(\s*#.*)*y", r"a*(b|a*)c",
        # around what the first of two could take itself, out of a group, out of one that comes several times
        ".*,.*,.*x", "[ab]*b[ab]*c", "(a*)a*c", r"(\d+)(\d+)x", "([a-z]+){2,9}!", "a*(?=a*b)", "a*a++b", "(ab)*a?(ba)*c",
        # as they were: of requirement strings, and of a script's block
        r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[A-Za-z0-9._,\s-]*\])?\s*(;[^\n@\\#${]*)?",
        r"^# /// script\s*$\n(?P<body>(^#(| .*)$\n)+?)^# ///\s*$",
    ],
)  # fmt: skip
def test_a_pattern_that_backtracks_is_found(bad: str) -> None:
    assert competing(bad)


@pytest.mark.parametrize(
    "good",
    [r"[a-z]+@[a-z]+", r"\d{1,9}\.\d*", r"a*b+c*", r"([a-z]{1,9},){0,9}x", r"\x1b\[[0-?]*[ -/]*[@-~]", "a++a*b", "(a*)b(a*)c"],
)  # fmt: skip
def test_a_pattern_that_cannot_backtrack_is_accepted(good: str) -> None:
    assert competing(good) == ""


@pytest.mark.parametrize("bad", [r"\d+$", "a*b", "x[a-z]*!", "(?:a|x+)y", r"<.*>", r"(?<!b)a+c", r"\s*#"])
def test_a_search_that_rescans_is_found(bad: str) -> None:
    assert rescanning(bad)


@pytest.mark.parametrize(
    "good",
    [
        r"^\d+$", r"[^a-z]+", r"https?://[^\s]+", r"\bjob_\w+|\d+", r"\b0x[0-9a-f]{6,}", r"(?<!\d)\d+x", r"by\s+d",
        r"(?s)<.*?(?:>|$)",
    ],
)  # fmt: skip
def test_a_search_that_cannot_rescan_is_accepted(good: str) -> None:
    assert rescanning(good) == ""
