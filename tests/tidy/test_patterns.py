"""Regular expressions take time in proportion to the text, whoever wrote it.

Python's own engine backtracks. It cannot be made to where no two unlimited repetitions compete for the same characters: none
inside another, and none next to another that may begin with a character of the first. Models' patterns (`pattern=`) are run by
pydantic's engine, which never backtracks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from tests.tidy.tree import name, sources, tree

#: From so many on, a repetition is as good as unlimited.
MANY = 300
ALPHABET = frozenset(range(256))
_CALLS = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w",
    op.CATEGORY_NOT_WORD: r"\W",
}
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT)


def competing(pattern: str | bytes, flags: int = 0) -> str:
    """What two repetitions compete for, or nothing."""
    return _among(list(parser.parse(pattern, flags)))


def _among(items: list[Any]) -> str:
    """In one sequence: of each unlimited repetition, with what may come right after it."""
    for place, (kind, argument) in enumerate(items):
        for part in _parts(kind, argument):
            if found := _among(part):
                return found
        if kind not in _REPEATS or argument[1] < MANY:
            continue
        inner = list(argument[2])
        if any(_has_repeat(*item) for item in inner):
            return f"a repetition inside a repetition: {inner}"
        following = _first_of_repeats(items[place + 1 :])
        if shared := _characters(inner[0]) & following:
            return f"repetitions next to one another of {''.join(map(chr, sorted(shared)))!a:.40}"
    return ""


def _first_of_repeats(items: list[Any]) -> frozenset[int]:
    """Characters that unlimited repetitions take which may come next, before anything that has to."""
    found: frozenset[int] = frozenset()
    for kind, argument in items:
        if kind in (op.AT, op.ASSERT, op.ASSERT_NOT):
            continue
        if kind in _REPEATS and argument[1] >= MANY:
            found |= _characters(argument[2][0])
        else:
            found |= frozenset().union(*map(_first_of_repeats, _parts(kind, argument)))
        if not _may_be_empty(kind, argument):
            break
    return found


def _may_be_empty(kind: Any, argument: Any) -> bool:
    if kind in _REPEATS:
        return bool(argument[0] == 0)
    if kind is op.SUBPATTERN:
        return bool(argument[3].getwidth()[0] == 0)
    return kind is op.BRANCH and any(branch.getwidth()[0] == 0 for branch in argument[1])


def _parts(kind: Any, argument: Any) -> Iterator[list[Any]]:
    if kind in _REPEATS:
        yield list(argument[2])
    elif kind is op.SUBPATTERN:
        yield list(argument[3])
    elif kind is op.BRANCH:
        yield from map(list, argument[1])


def _has_repeat(kind: Any, argument: Any) -> bool:
    if kind in _REPEATS and argument[1] >= MANY:
        return True
    return any(_has_repeat(*item) for part in _parts(kind, argument) for item in part)


def _characters(item: Any) -> frozenset[int]:
    kind, argument = item
    if kind is op.LITERAL:
        return frozenset({argument})
    if kind is op.NOT_LITERAL:
        return ALPHABET - {argument}
    if kind is op.ANY:
        return ALPHABET
    if kind is op.SUBPATTERN:
        return _characters(argument[3][0]) if argument[3] else frozenset()
    if kind is op.IN:
        return _class(argument)
    return ALPHABET


def _class(members: list[Any]) -> frozenset[int]:
    found: frozenset[int] = frozenset()
    for kind, argument in members:
        if kind is op.LITERAL:
            found |= {argument}
        elif kind is op.RANGE:
            found |= frozenset(range(argument[0], min(argument[1], 255) + 1))
        elif kind is op.CATEGORY:
            found |= {code for code in ALPHABET if re.match(_CATEGORIES[argument], chr(code))}
    return ALPHABET - found if members[0][0] is op.NEGATE else found


def patterns() -> Iterator[tuple[str, str | bytes]]:
    """Every literal pattern that Python's engine gets, with its place."""
    for path in sources():
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            called = node.func
            if called.attr in _CALLS and isinstance(called.value, ast.Name) and called.value.id == "re":
                text = _literal(node.args[0])
                if text is not None:
                    yield f"{name(path)}:{node.lineno}", text


def _literal(node: ast.expr) -> str | bytes | None:
    """What is put in between is a name, or a class of characters: it repeats nothing itself."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
        return "".join(map(str, parts))
    return None


def test_no_pattern_can_be_made_to_backtrack() -> None:
    found = list(patterns())
    assert len(found) > 40
    assert {place: why for place, text in found if (why := competing(text))} == {}


@pytest.mark.parametrize(
    "bad",
    [
        "(a+)+b", "(a*b?)*", "(a|b+)+", r"\s*x?\s*$", r"\d+\.?\d*$", ".*.*x", r"\w+[a-z_]*@", r"(\s*#.*)*y", r"a*(b|a*)c",
        # as they were: of requirement strings, and of a script's block
        r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[A-Za-z0-9._,\s-]*\])?\s*(;[^\n@\\#${]*)?",
        r"^# /// script\s*$\n(?P<body>(^#(| .*)$\n)+?)^# ///\s*$",
    ],
)  # fmt: skip
def test_a_pattern_that_backtracks_is_found(bad: str) -> None:
    assert competing(bad)


@pytest.mark.parametrize(
    "good", [r"[a-z]+@[a-z]+", r"\d{1,9}\.\d*", r"a*b+c*", r"([a-z]{1,9},){0,9}x", r"\x1b\[[0-?]*[ -/]*[@-~]"]
)
def test_others_are_not(good: str) -> None:
    assert competing(good) == ""
